"""Where a stream of a table's rows and changes stands: the offsets that Spark notes, and what they mean.

First the rows, by page of the table's copy; then the changes, by LSN. An LSN here lies between records of the log, and
a transaction belongs to the batch in which its commit record starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipelines.sources.pgoutput import Transaction, as_number, as_text


@dataclass(frozen=True)
class Seen:
    """Which transactions the copy of the table had seen: their changes are in its rows already.

    snapshot: `xmin:xmax:xip,..` as pg_current_snapshot writes it. until: an LSN after which no transaction is of them.
    """

    snapshot: str
    until: int

    def covers(self, transaction: Transaction) -> bool:
        if transaction.commit_lsn >= self.until:
            return False
        _first, end, running = self.snapshot.split(":")
        # The stream tells the lower half of a transaction's number; it lies within 2**31 of the snapshot's.
        beyond = (transaction.xid - int(end)) & 0xFFFFFFFF
        if beyond < 0x80000000:
            return False
        return str(int(end) + beyond - (1 << 32)) not in running.split(",")


@dataclass(frozen=True)
class Position:
    """page: how much of the copy has been read, of `pages` that hold `rows`; at: when the copy was taken, ISO.

    Past the copy there is the LSN alone, and as long as it matters what the copy had seen.
    """

    lsn: int
    seen: Seen | None = None
    page: int = 0
    pages: int = 0
    rows: int = 0
    at: str = ""

    @property
    def is_copying(self) -> bool:
        return self.page < self.pages

    def turned(self, pages: int) -> "Position":
        return replace(self, page=min(self.page + pages, self.pages))

    def moved(self, lsn: int) -> "Position":
        return Position(lsn, self.seen if self.seen and lsn < self.seen.until else None)

    def as_offset(self) -> dict[str, Any]:
        offset: dict[str, Any] = {"lsn": as_text(self.lsn)}
        if self.seen:
            offset |= {"seen": self.seen.snapshot, "until": as_text(self.seen.until)}
        if self.pages:
            offset |= {"page": self.page, "pages": self.pages, "rows": self.rows, "at": self.at}
        return offset


def position(offset: Mapping[str, Any]) -> Position:
    seen = Seen(offset["seen"], as_number(offset["until"])) if "seen" in offset else None
    copy = {name: offset[name] for name in ("page", "pages", "rows", "at") if name in offset}
    return Position(as_number(offset["lsn"]), seen, **copy)

"""The batches of a table's stream: the positions where they begin and end, and the rows of the changes in between.

A stream begins with the table's rows, by page of their copy (see copy.py), and goes on with its changes, by LSN. The
LSN of a position lies between two records of the server's log, and a transaction belongs to the batch in which its
commit record begins. Spark stores positions as offsets.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tidegauge.pipelines.errors import InputLostError, SourceSetupError
from tidegauge.pipelines.sources.postgres.pgoutput import (
    UNCHANGED,
    Relation,
    RowChange,
    Transaction,
    Unchanged,
    Values,
    as_number,
    as_text,
)
from tidegauge.pipelines.sources.postgres.table import Table

# Values in the order of the wanted columns, then the kind of change, the LSN, and the commit time in microseconds.
# If old rows are wanted by key, a JSON list of the columns that were not sent comes before the kind.
Row = list[str | int | None]


@dataclass(frozen=True)
class Seen:
    """The transactions whose changes the copy of the table already contains.

    snapshot: `xmin:xmax:xip,..` as pg_current_snapshot writes it. until: an LSN; later transactions were not seen.
    """

    snapshot: str
    until: int

    def covers(self, transaction: Transaction) -> bool:
        if transaction.commit_lsn >= self.until:
            return False
        _first, end, running = self.snapshot.split(":")
        # Modulo 2**32, because the stream has only the lower 32 bits of an xid. It is within 2**31 of the snapshot's.
        beyond = (transaction.xid - int(end)) & 0xFFFFFFFF
        if beyond < 0x80000000:
            return False
        return str(int(end) + beyond - (1 << 32)) not in running.split(",")


@dataclass(frozen=True)
class LogPosition:
    """page: how much of the copy has been read, of `pages` that hold `rows`; at: when the copy was taken, ISO.

    After the copy only the LSN is set, and `seen` for as long as transactions that it covers may follow.
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

    def after_pages(self, pages: int) -> "LogPosition":
        return replace(self, page=min(self.page + pages, self.pages))

    def after_changes(self, lsn: int) -> "LogPosition":
        return LogPosition(lsn, self.seen if self.seen and lsn < self.seen.until else None)

    def as_offset(self) -> dict[str, Any]:
        offset: dict[str, Any] = {"lsn": as_text(self.lsn)}
        if self.seen:
            offset |= {"seen": self.seen.snapshot, "until": as_text(self.seen.until)}
        if self.pages:
            offset |= {"page": self.page, "pages": self.pages, "rows": self.rows, "at": self.at}
        return offset


def position(offset: Mapping[str, Any]) -> LogPosition:
    seen = Seen(offset["seen"], as_number(offset["until"])) if "seen" in offset else None
    copy = {name: offset[name] for name in ("page", "pages", "rows", "at") if name in offset}
    return LogPosition(as_number(offset["lsn"]), seen, **copy)


OldRows = Literal["full", "key"]


@dataclass(frozen=True)
class Wanted:
    """The changes to read. columns: of the table. truncates: whether a TRUNCATE is an error.

    old_rows: what precedes an update: the whole old row, only its key, or nothing (None).
    """

    table: Table
    columns: tuple[str, ...]
    truncates: bool
    old_rows: OldRows | None = None


def rows(changes: Iterable[RowChange], wanted: Wanted, start: LogPosition, end: LogPosition) -> Iterator[Row]:
    """Yield the rows of the changes between two positions, without those that the copy has seen.

    An update of a key becomes a delete of the old row and an insert of the new one. Other updates come after an
    `update_before` if old rows are wanted.
    Raises InputLostError at a TRUNCATE, SourceSetupError if a value was not sent or a column does not exist.
    """
    transaction, is_wanted, relation = None, False, None
    places: list[int] = []
    for change in changes:
        if change.transaction is not transaction:
            transaction = change.transaction
            is_wanted = _belongs(transaction, start, end)
        if not is_wanted or not _is_of(change.relation, wanted.table):
            continue
        if change.relation is not relation:
            relation = change.relation
            places = _places(relation, wanted, change.lsn)
        yield from _rows_of(change, places, wanted)


def _belongs(transaction: Transaction, start: LogPosition, end: LogPosition) -> bool:
    if not start.lsn <= transaction.commit_lsn < end.lsn:
        return False
    return start.seen is None or not start.seen.covers(transaction)


def _is_of(relation: Relation, table: Table) -> bool:
    return relation.name == table.name and relation.schema == table.schema


def _rows_of(change: RowChange, places: list[int], wanted: Wanted) -> Iterator[Row]:
    if change.kind == "truncate":
        if wanted.truncates:
            raise _truncated(change, wanted)
        return
    if wanted.old_rows == "full" and change.kind != "insert" and not change.old_is_whole:
        raise _no_old_row(change, wanted)
    if change.kind == "delete":
        assert change.old is not None
        yield _row(change.old, "delete", change, places, wanted)
        return
    new = _completed(change)
    if change.old is not None and _key_moved(change, new, wanted.table):
        yield _row(change.old, "delete", change, places, wanted)
        yield _row(new, "insert", change, places, wanted)
        return
    if wanted.old_rows and change.kind == "update":
        yield _row(_before(change, new, wanted), "update_before", change, places, wanted)
    yield _row(new, change.kind, change, places, wanted)


def _row(values: Values, kind: str, change: RowChange, places: list[int], wanted: Wanted) -> Row:
    picked: Row = []
    unchanged = []
    for place, column in zip(places, wanted.columns, strict=True):
        value = values[place]
        if isinstance(value, Unchanged):
            # Only under the same key, because the state of `with_old_rows` then has the value.
            if wanted.old_rows != "key" or kind != "update":
                raise _not_sent(column, change, wanted)
            unchanged.append(column)
            value = None
        picked.append(value)
    if wanted.old_rows == "key":
        picked.append(json.dumps(unchanged) if unchanged else None)
    return [*picked, kind, change.lsn, change.transaction.at]


def _before(change: RowChange, new: Values, wanted: Wanted) -> Values:
    """Return the old row of an update that did not change the key; only its key if no more is wanted."""
    if wanted.old_rows == "full":
        assert change.old is not None
        return change.old
    key = _places_of(wanted.table.key, change.relation)
    return [value if place in key else None for place, value in enumerate(new)]


def _completed(change: RowChange) -> Values:
    """Return the new row, with values that were not sent taken from the old row if it has them."""
    assert change.new is not None
    if change.old is None or UNCHANGED not in change.new:
        return change.new
    there = range(len(change.old)) if change.old_is_whole else _places_of(change.relation.key, change.relation)
    pairs = enumerate(zip(change.old, change.new, strict=True))
    return [old if new is UNCHANGED and place in there else new for place, (old, new) in pairs]


def _key_moved(change: RowChange, new: Values, table: Table) -> bool:
    assert change.old is not None
    # By the primary key if the old row is whole, because every column is then marked as key.
    key = _places_of(table.key if change.old_is_whole else change.relation.key, change.relation)
    return any(change.old[place] != new[place] for place in key)


def _places_of(names: Iterable[str], relation: Relation) -> list[int]:
    return [relation.columns.index(name) for name in names if name in relation.columns]


def _places(relation: Relation, wanted: Wanted, lsn: int) -> list[int]:
    missing = [name for name in wanted.columns if name not in relation.columns]
    if missing:
        raise SourceSetupError(
            f"table {str(wanted.table)!r}: the changes at LSN {as_text(lsn)} have no column {', '.join(missing)}: it "
            "was added later, or dropped; leave it out of the source's schema"
        )
    return [relation.columns.index(name) for name in wanted.columns]


def _truncated(change: RowChange, wanted: Wanted) -> InputLostError:
    or_else = "" if wanted.old_rows else ", or keep the counts with ignore_truncate=True"
    return InputLostError(
        f"table {str(wanted.table)!r}: was truncated at LSN {as_text(change.lsn)}, and the log does not have the "
        f"removed rows; start again from the table as it is (PostgresChanges.drop(), then --reprocess){or_else}"
    )


def _no_old_row(change: RowChange, wanted: Wanted) -> SourceSetupError:
    return SourceSetupError(
        f"table {str(wanted.table)!r}: the {change.kind} at LSN {as_text(change.lsn)} came without the old row, "
        "because REPLICA IDENTITY was not FULL then; run ALTER TABLE .. REPLICA IDENTITY FULL and start again "
        "(PostgresChanges.drop(), then --reprocess)"
    )


def _not_sent(column: str, change: RowChange, wanted: Wanted) -> SourceSetupError:
    return SourceSetupError(
        f"table {str(wanted.table)!r}: the {change.kind} at LSN {as_text(change.lsn)} did not change {column!r}, and "
        "PostgreSQL does not send large unchanged values; leave the column out of the source's schema, or run ALTER "
        "TABLE .. REPLICA IDENTITY FULL and start again (PostgresChanges.drop(), then --reprocess)"
    )

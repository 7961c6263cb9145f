"""Trimming rows that are in another store than the ledger, a page at a time, each under the ledger's row.

The row is shared meanwhile, so that no batch begins or ends under a page; the store looks at each row again as it goes.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import psycopg
from psycopg import sql

from state_backends.committed import ledger_sql
from state_backends.errors import UnknownStateError
from state_backends.journal.trim import Step


class Page(Protocol):
    @property
    def rows(self) -> Sequence[Any]: ...


class StoredRows(Protocol):
    """Where the rows are; RedisUpkeep is one. A page is handed back as it came."""

    def pages(self) -> Iterator[Any]:
        """Yield all rows in pages."""

    def expire(self, page: Any, settled: int | None, clock: datetime, ttl: timedelta | None) -> int:
        """Free the rows whose ttl has run out at `clock`, written by batch `settled` or before; None: by any."""

    def drop_tombstones(self, page: Any, settled: int | None) -> int:
        """Free the rows that batch `settled` or an earlier one removed."""

    def sizes(self) -> tuple[int, int]:
        """Return how many rows there are, and about how many bytes they take."""


def trim_pages(
    conn: psycopg.Connection,
    state: str,
    step: str,
    stored: StoredRows,
    trim: Callable[[Any, dict[str, Any]], int],
) -> Iterator[Step]:
    """Trim page after page; stop iterating to stop. trim: given a page and what `clock` says, returns rows freed."""
    seen = freed = 0
    for page in stored.pages():
        with conn.transaction():
            freed += trim(page, clock(conn, state))
        seen += len(page.rows)
        yield Step(step, seen, freed)


def clock(conn: psycopg.Connection, state: str) -> dict[str, Any]:
    """Return `state`, the `committed` txid, and `clock` and `ttl` by which versions are dead to every later batch.

    Held until the transaction ends, so that no batch begins with an earlier time meanwhile. Raises UnknownStateError.
    """
    ledger = ledger_sql("s.name, p.committed_txid, coalesce(p.open_time, clock_timestamp())")
    row = conn.execute(ledger + sql.SQL(" FOR SHARE OF p"), [state]).fetchone()
    if row is None:
        raise UnknownStateError(f"state {state!r} is not registered with any pipeline")
    # Asked once the row is held: the statement that waits for it sees what was there when it began to wait.
    ttl = conn.execute("SELECT tidemark.ttl_at_hand(%s)", [state]).fetchone()
    assert ttl is not None
    return dict(zip(("state", "committed", "clock", "ttl"), (*row, *ttl), strict=True))

"""Expiry: free the rows whose time to live has run out. Readers stopped seeing them the moment it did."""

from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql

from state_backends.committed import live_sql
from state_backends.journal.stored import StoredRows, clock, trim_pages
from state_backends.journal.trim import Step, Walk
from state_backends.spec import StateSpec
from state_backends.table import StateTable


def expire(conn: psycopg.Connection, spec: StateSpec, stored: StoredRows | None = None) -> Iterator[Step]:
    """Delete expired rows of a registered state, a page per step; stop iterating to stop.

    conn: in autocommit mode. stored: where the rows are, if not in the state's table. A row goes only if it is expired
    by the clock and the ttl of the batch that is open, or now if none is: every later merge would take it as nothing
    too, so freeing it changes no result. What an open batch wrote stays, as that may be reverted. The row lock
    re-checks both. A changelog keeps what it has, and there it is past its ttl, too. Without one nothing tells any more
    what the row was: reads in the past reach back to the next batch, at whose time it is dead.
    """
    table = StateTable(spec)
    if stored is not None:
        yield from _expire_stored(conn, table, stored)
        return
    settled = sql.SQL("t.txid <= %(committed)s") if table.keeps_txid else sql.SQL("true")
    expired = sql.SQL("NOT t.removed AND NOT {live} AND {settled}").format(
        live=live_sql("t", sql.SQL("%(ttl)s::interval"), sql.SQL("%(clock)s::timestamptz")), settled=settled
    )
    walk = Walk("expired rows", table.name, list(table.key), expired, open_page=lambda conn: clock(conn, spec.name))
    if not spec.changelog:
        walk.close_page = _shorten_reach
    yield from walk.run(conn)


def _expire_stored(conn: psycopg.Connection, table: StateTable, stored: StoredRows) -> Iterator[Step]:
    def free(page: Any, now: dict[str, Any]) -> int:
        settled = now["committed"] if table.keeps_txid else None
        return stored.expire(page, settled, now["clock"], now["ttl"])

    if table.spec.ttl is not None:
        yield from trim_pages(conn, table.spec.name, "expired rows", stored, free)


def _shorten_reach(conn: psycopg.Connection, page: dict[str, Any]) -> None:
    conn.execute(
        "UPDATE tidemark.state SET oldest_txid = %(committed)s + 1 WHERE name = %(state)s "
        "AND oldest_txid <= %(committed)s",
        page,
    )

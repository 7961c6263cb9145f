"""Compaction and expiry of state tables: rows freed in key order, a page per transaction."""

from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql

from tidegauge.state_backends.committed import live_sql
from tidegauge.state_backends.maintenance import Horizon, Step, Walk, clock, note_expired
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable, commas, previous
from tidegauge.state_backends.spec.types import type_of


def expire(conn: psycopg.Connection, spec: StateSpec) -> Iterator[Step]:
    """Delete expired rows. The row lock re-checks each: expired still, and of a batch that cannot be reverted.

    A changelog keeps what it has, and there it is past its ttl, too. Without one nothing says any more what the row
    was: reads in the past reach back to the next batch, at whose time it is dead.
    """
    table = StateTable(spec)
    settled = sql.SQL("t.txid <= %(committed)s") if table.keeps_txid else sql.SQL("true")
    expired = sql.SQL("NOT t.removed AND NOT {live} AND {settled}").format(
        live=live_sql("t", sql.SQL("%(ttl)s::interval"), sql.SQL("%(clock)s::timestamptz")), settled=settled
    )

    def note(conn: psycopg.Connection, page: dict[str, Any]) -> None:
        note_expired(conn, spec.name, page["clock"])
        if not spec.changelog:
            _shorten_reach(conn, page)

    def open_page(conn: psycopg.Connection) -> dict[str, Any]:
        return clock(conn, spec.name)

    return Walk("expired rows", table.name, list(table.key), expired, open_page=open_page, close_page=note).run(conn)


def compact(conn: psycopg.Connection, table: StateTable, horizon: Horizon) -> Iterator[Step]:
    """Delete tombstones older than the horizon, then release previous versions of wide values."""
    yield from _drop_tombstones(table, horizon).run(conn)
    # Of values that grow without bound, a second version costs more than it is worth.
    if table.keeps_previous and any(type_of(kind).is_large for kind in table.values.values()):
        yield from _release_previous(table, horizon).run(conn)


def _drop_tombstones(table: StateTable, horizon: Horizon) -> Walk:
    settled = sql.SQL("t.txid <= {}").format(sql.Literal(horizon.txid)) if table.keeps_txid else sql.SQL("true")
    return Walk("tombstones", table.name, list(table.key), sql.SQL("t.removed AND {}").format(settled))


def _release_previous(table: StateTable, horizon: Horizon) -> Walk:
    unreachable = sql.SQL("t.prev_txid IS NOT NULL AND t.txid <= {}").format(sql.Literal(horizon.txid))
    names = [*previous(table.version), "prev_txid"]
    release = commas(sql.SQL("{} = NULL").format(sql.Identifier(name)) for name in names)
    return Walk("previous versions", table.name, list(table.key), unreachable, release)


def _shorten_reach(conn: psycopg.Connection, page: dict[str, Any]) -> None:
    conn.execute(
        "UPDATE tidegauge.state SET oldest_txid = %(committed)s + 1 WHERE name = %(state)s "
        "AND oldest_txid <= %(committed)s",
        page,
    )

"""Maintenance: compaction and expiry of a state, in small steps.

Compaction deletes what neither a replay nor a reader at the committed batch can need. Expiry deletes rows that are past
their time to live, which readers no longer see. Each backend trims its own rows; the changelog and the ledger are
trimmed here. A table is walked in key order, with a transaction per page, so that writers hardly wait. A walk may be
stopped between pages or killed anywhere, because each page is complete and the next walk starts over.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql

from tidegauge.state_backends.committed import ledger_sql, live_sql
from tidegauge.state_backends.errors import UnknownStateError
from tidegauge.state_backends.ledger.batch_time import checked_clock
from tidegauge.state_backends.ledger.state_lock import StateWork, lock_unless
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable, columns

# Rows per page: about 30 ms of work here; a driver that wants to commit waits no longer than one page.
PAGE_ROWS = 5_000

# Join row by row through the index, because a hash join would read the whole table for every page, and the time of a
# walk would grow with the square of the rows (0.3 s a page, not 0.1 s, at 400,000 keys, and worse with partitions).
BY_INDEX = "SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)"

UNITS = ("rows", "bytes")

# Newest batches that the ledger keeps regardless of their age, for the dashboard and to revert a commit.
KEPT_BATCHES = 1_000


@dataclass(frozen=True)
class Step:
    """Progress of a run after one page. step: what is being done; seen, removed: rows of that step so far."""

    step: str
    seen: int
    removed: int


@dataclass
class Walk:
    """One walk over `table` in the order of `order` (unique, indexed).

    useless: an SQL condition on `t`, true for rows to trim; it may use the parameters that `open_page` returns and is
    checked with the row locked. release: SQL assignments that trim a row; None deletes it. open_page runs first in each
    page's transaction; close_page runs last if the page has lost rows, with the same parameters.
    """

    step: str
    table: sql.Composable
    order: list[str]
    useless: sql.Composable
    release: sql.Composable | None = None
    open_page: Callable[[psycopg.Connection], dict[str, Any]] = field(default=lambda conn: {})
    close_page: Callable[[psycopg.Connection, dict[str, Any]], None] = field(default=lambda conn, parameters: None)

    def run(self, conn: psycopg.Connection) -> Iterator[Step]:
        seen = removed = 0
        last: tuple[Any, ...] | None = None
        while True:
            with conn.transaction():
                page_rows, trimmed, *last_key = self._trim_page(conn, last)
            if not page_rows:
                return
            seen, removed, last = seen + page_rows, removed + trimmed, tuple(last_key)
            yield Step(self.step, seen, removed)

    def _trim_page(self, conn: psycopg.Connection, last: tuple[Any, ...] | None) -> tuple[Any, ...]:
        conn.execute(BY_INDEX)
        parameters = self.open_page(conn)
        bounds = {f"after_{i}": part for i, part in enumerate(last or ())}
        row = conn.execute(self._page_sql(last is not None), parameters | bounds).fetchone()
        assert row is not None
        if row[1]:
            self.close_page(conn, parameters)
        return row

    def _page_sql(self, onward: bool) -> sql.Composed:
        after = sql.SQL("true")
        order = columns(self.order)
        if onward:
            marks = sql.SQL(", ").join(sql.Placeholder(f"after_{i}") for i in range(len(self.order)))
            after = sql.SQL("({}) > ({})").format(order, marks)  # type: ignore[assignment]
        same = sql.SQL(" AND ").join(sql.SQL("t.{0} = k.{0}").format(sql.Identifier(name)) for name in self.order)
        # Rows that a writer has locked are skipped, because they are about to change and waiting could deadlock.
        return sql.SQL(
            "WITH page AS MATERIALIZED (SELECT {order} FROM {table} WHERE {after} ORDER BY {order} LIMIT {rows}), "
            "chosen AS MATERIALIZED (SELECT {keys} FROM {table} t JOIN page k ON {same} WHERE {useless} "
            "FOR UPDATE OF t SKIP LOCKED), "
            "trimmed AS ({trim} WHERE {same} AND {useless} RETURNING 1), "
            "last AS (SELECT * FROM page ORDER BY {descending} LIMIT 1) "
            "SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM trimmed), last.* "
            "FROM (SELECT) one LEFT JOIN last ON true"
        ).format(
            order=order,
            keys=columns(self.order, "t"),
            same=same,
            table=self.table,
            after=after,
            rows=sql.Literal(PAGE_ROWS),
            useless=self.useless,
            trim=self._trim_sql(),
            descending=sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(name)) for name in self.order),
        )

    def _trim_sql(self) -> sql.Composed:
        if self.release is None:
            return sql.SQL("DELETE FROM {} t USING chosen k").format(self.table)
        return sql.SQL("UPDATE {} t SET {} FROM chosen k").format(self.table, self.release)


@dataclass(frozen=True)
class Horizon:
    """txid: the newest batch that is older than what is to be kept, and older than the committed one; 0 for none.

    time: its batch time; a version that is dead then is dead to all later readers. ttl: of the open or next batch.
    """

    txid: int
    time: datetime | None
    ttl: timedelta | None


def compact(
    conn: psycopg.Connection, spec: StateSpec, *, keep: timedelta, work: StateWork | None = None
) -> Iterator[Step]:
    """Trim a registered state, a page per step; stop iterating to stop.

    conn: in autocommit mode. keep: how far back as-of reads and histories must reach. As of any younger batch, reads
    return the same afterwards as before; `tidegauge.state.oldest_txid` is the oldest batch that can still be read.
    work: the state's lock, if the caller holds it.
    Trims, in this order: changelog entries that a later one older than `keep` replaces, entries that mean the same as
    no entry, tombstones, previous versions of wide values, ledger rows, dead space.
    Raises UnknownStateError, StateBusyError while another work has the state's tables.
    """
    with lock_unless(work, conn, spec.name, "compaction"):
        yield from _compact(conn, spec, keep)


def _compact(conn: psycopg.Connection, spec: StateSpec, keep: timedelta) -> Iterator[Step]:
    table, backend = StateTable(spec), BACKENDS[spec.backend]
    horizon = _horizon(conn, spec.name, keep)
    # Recorded before anything is deleted, so that a reader that finds less than there was also finds this limit.
    conn.execute(
        "UPDATE tidegauge.state SET oldest_txid = %s WHERE name = %s AND oldest_txid < %s",
        [horizon.txid, spec.name, horizon.txid],
    )
    if spec.changelog:
        yield from _drop_replaced(table, horizon).run(conn)
        yield from _drop_dead(table, horizon).run(conn)
    yield from backend.compact(conn, spec, horizon)
    yield _trim_ledger(conn, spec.name, keep)
    if backend.tables:
        backend.tables.vacuum(conn, spec)
    if spec.changelog:
        vacuum(conn, table.changelog)
    yield Step("dead space", 0, 0)


def expire(conn: psycopg.Connection, spec: StateSpec, *, work: StateWork | None = None) -> Iterator[Step]:
    """Delete expired rows of a registered state, a page per step; stop iterating to stop.

    conn: in autocommit mode. A row is deleted only if it has expired by the time and ttl of the open batch, or by now
    if none is open. Every later merge would ignore it too, so its deletion changes no result. Rows that an open batch
    wrote stay, because it may be reverted. A changelog keeps its entries, which are past their ttl too.
    If the committed batch comes again, its time is not earlier than the time by which rows were freed.
    work: the state's lock, if the caller holds it.
    Raises UnknownStateError, StateBusyError while another work has the state's tables.
    """
    with lock_unless(work, conn, spec.name, "expiry"):
        yield from BACKENDS[spec.backend].expire(conn, spec)


def note_expired(conn: psycopg.Connection, state: str, clock: datetime) -> None:
    """Record that rows past their ttl at `clock` are freed. Call it before they are, or in the same transaction."""
    conn.execute(
        "UPDATE tidegauge.state SET expired_until = greatest(expired_until, %s) WHERE name = %s", [clock, state]
    )


def sizes(conn: psycopg.Connection, spec: StateSpec) -> dict[str, int]:
    """Return rows and bytes of the state and its changelog, for a run's figures before and after."""
    figures = {"state": BACKENDS[spec.backend].sizes(conn, spec)}
    if spec.changelog:
        figures["changelog"] = table_sizes(conn, StateTable(spec).changelog)
    return {
        f"{part}_{unit}": size
        for part, pair in figures.items()
        for unit, size in zip(("rows", "bytes"), pair, strict=True)
    }


def vacuum(conn: psycopg.Connection, name: sql.Identifier) -> None:
    conn.execute(sql.SQL("VACUUM (ANALYZE) {}").format(name))


def table_sizes(conn: psycopg.Connection, name: sql.Identifier) -> tuple[int, int]:
    """Return the rows of a table, counted, and the bytes of it and its indexes."""
    row = conn.execute(
        sql.SQL(
            # The partitions are added, because a partitioned table has no pages of its own.
            "SELECT (SELECT count(*) FROM {name}), pg_total_relation_size({oid}) + "
            "(SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0) FROM pg_inherits WHERE inhparent = {oid})"
        ).format(name=name, oid=sql.SQL("{}::regclass").format(sql.Literal(name.as_string(conn))))
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def clock(conn: psycopg.Connection, state: str) -> dict[str, Any]:
    """Return `state`, the `committed` txid, and `clock` and `ttl` by which versions are dead to every later batch.

    Locks the ledger's row until the transaction ends, so that no batch begins with an earlier time meanwhile. Raises
    UnknownStateError; ClockError for a wrong clock, because rows that it frees too early cannot be restored.
    """
    ledger = ledger_sql("s.name, p.committed_txid, p.open_time")
    row = conn.execute(ledger + sql.SQL(" FOR SHARE OF p"), [state]).fetchone()
    if row is None:
        raise UnknownStateError(f"state {state!r} is not registered with any pipeline")
    # A second statement, because the one that waits for the row sees the ttl from when it began to wait.
    ttl = conn.execute("SELECT tidegauge.ttl_at_hand(%s)", [state]).fetchone()
    assert ttl is not None
    name, committed, open_time = row
    now = checked_clock(conn, f"state {state!r}")
    return {"state": name, "committed": committed, "clock": min(now, open_time or now), "ttl": ttl[0]}


def _horizon(conn: psycopg.Connection, state: str, keep: timedelta) -> Horizon:
    now = checked_clock(conn, f"state {state!r}")
    older = sql.SQL(
        "LEFT JOIN LATERAL (SELECT * FROM tidegauge.batch b WHERE b.pipeline = p.name AND b.txid < p.committed_txid "
        "AND b.batch_time <= %s::timestamptz - %s::interval ORDER BY b.txid DESC LIMIT 1) b ON true"
    )
    statement = ledger_sql("coalesce(b.txid, 0), b.batch_time, tidegauge.ttl_at_hand(s.name)", older)
    row = conn.execute(statement, [now, keep, state]).fetchone()
    if row is None:
        raise UnknownStateError(f"state {state!r} is not registered with any pipeline")
    return Horizon(*row)


def _drop_replaced(table: StateTable, horizon: Horizon) -> Walk:
    replaced = sql.SQL("EXISTS (SELECT FROM {log} n WHERE {same} AND n.txid > t.txid AND n.txid <= {horizon})").format(
        log=table.changelog, same=table.same_key("n", "t"), horizon=sql.Literal(horizon.txid)
    )
    return Walk("changelog entries", table.changelog, [*table.key, "txid"], replaced)


def _drop_dead(table: StateTable, horizon: Horizon) -> Walk:
    # Only without an older entry, because one that the walk has skipped would become the key's newest and revive it.
    dead = sql.SQL(
        "t.txid <= {horizon} AND NOT {live} AND NOT EXISTS (SELECT FROM {log} o WHERE {same} AND o.txid < t.txid)"
    ).format(
        horizon=sql.Literal(horizon.txid),
        live=live_sql("t", sql.Literal(horizon.ttl), sql.SQL("{}::timestamptz").format(sql.Literal(horizon.time))),
        log=table.changelog,
        same=table.same_key("o", "t"),
    )
    return Walk("dead entries", table.changelog, [*table.key, "txid"], dead)


def _trim_ledger(conn: psycopg.Connection, state: str, keep: timedelta) -> Step:
    removed = conn.execute(
        # Batches that as-of reads of any of the pipeline's states can reach stay, because the reads need their time.
        "DELETE FROM tidegauge.batch b USING tidegauge.state s, tidegauge.pipeline p WHERE s.name = %s "
        "AND p.name = s.pipeline AND b.pipeline = p.name AND b.txid < p.committed_txid - %s "
        "AND b.batch_time < now() - %s::interval AND NOT EXISTS (SELECT FROM tidegauge.state r "
        "WHERE r.pipeline = p.name AND (r.definition ->> 'changelog')::boolean AND r.oldest_txid <= b.txid) "
        # So do batches that fed the states that a reprocess has replaced, because a roll-back needs them.
        "AND NOT EXISTS (SELECT FROM tidegauge.pipeline k WHERE k.name = p.name || '@kept' "
        "AND b.txid <= k.committed_txid)",
        [state, KEPT_BATCHES, keep],
    ).rowcount
    return Step("ledger rows", removed, removed)

"""Trimming a table in small steps: walk it in key order, a page per transaction, so that writers hardly wait.

A walk may be stopped between pages and killed anywhere: each page is whole, and the next walk starts over.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

import psycopg
from psycopg import sql

from state_backends.committed import ledger_sql, live_sql
from state_backends.errors import UnknownStateError
from state_backends.spec import StateSpec
from state_backends.table import StateTable, columns, commas, previous
from state_backends.types import type_of

# About 30 ms of work here; a driver that wants to commit waits no longer than one page.
PAGE_ROWS = 5_000


# Row by row through the index: a hash join would read the whole table for every page, and the walk would take the
# square of its time (0.3 s a page against 0.1 s at 400,000 keys, and worse with partitions).
BY_INDEX = "SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)"


@dataclass(frozen=True)
class Step:
    """Progress of a run after one page. step: what is being done; seen, removed: rows of that step so far."""

    step: str
    seen: int
    removed: int


@dataclass
class Walk:
    """One walk over `table` in the order of `order` (unique, indexed).

    useless: which rows to trim, a condition on `t` that may use the parameters that `open_page` returns; it is checked
    under each row's lock. release: assignments that trim a row; None deletes it. open_page runs first in each page's
    transaction, close_page last in that of a page that lost rows, with the same parameters.
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
        # A row that a writer holds is about to change: it is passed over, not waited for, so the two cannot deadlock.
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


# Trimming rows that are in another store than the ledger, a page at a time, each under the ledger's row.
#
# The row is shared meanwhile, so that no batch begins or ends under a page; the store looks at each row again as it
# goes.


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


# Compaction: drop what neither a replay nor a reader at the committed batch could need.


# The ledger keeps this many batches whatever their age, for the dashboard and to set a commit back.
KEPT_BATCHES = 1_000


@dataclass(frozen=True)
class Horizon:
    """txid: the newest batch that is older than what is to be kept, and older than the committed one; 0 for none.

    time: its batch time, at which a version is dead to every reader from then on. ttl: as of the batch at hand.
    """

    txid: int
    time: datetime | None
    ttl: timedelta | None


def compact(
    conn: psycopg.Connection, spec: StateSpec, stored: StoredRows | None = None, *, keep: timedelta
) -> Iterator[Step]:
    """Trim a registered state, a page per step; stop iterating to stop.

    conn: in autocommit mode. stored: where the rows are, if not in the state's table. keep: how far back reads in the
    past and histories reach. The state at any batch younger than that can be told afterwards as it could be before;
    `tidemark.state.oldest_txid` says from which batch on.
    In turn: changelog entries that a later one older than `keep` replaces, those that say no more than their absence
    would, tombstones, previous versions of wide values, ledger rows, dead space.
    """
    table = StateTable(spec)
    horizon = _horizon(conn, spec.name, keep)
    # First said, then done: who finds less than there was finds this, too.
    conn.execute(
        "UPDATE tidemark.state SET oldest_txid = %s WHERE name = %s AND oldest_txid < %s",
        [horizon.txid, spec.name, horizon.txid],
    )
    if spec.changelog:
        yield from _drop_replaced(table, horizon).run(conn)
        yield from _drop_dead(table, horizon).run(conn)
    if stored is not None:
        yield from _drop_stored_tombstones(conn, table, stored)
    else:
        yield from _drop_tombstones(table, horizon).run(conn)
    # Of values that grow without bound, a second version costs more than it is worth.
    if table.keeps_rows and table.keeps_previous and any(type_of(kind).is_large for kind in table.values.values()):
        yield from _release_previous(table, horizon).run(conn)
    yield _trim_ledger(conn, spec.name, keep)
    yield _vacuum(conn, table)


def _horizon(conn: psycopg.Connection, state: str, keep: timedelta) -> Horizon:
    older = sql.SQL(
        "LEFT JOIN LATERAL (SELECT * FROM tidemark.batch b WHERE b.pipeline = p.name AND b.txid < p.committed_txid "
        "AND b.batch_time <= now() - %s::interval ORDER BY b.txid DESC LIMIT 1) b ON true"
    )
    statement = ledger_sql("coalesce(b.txid, 0), b.batch_time, tidemark.ttl_at_hand(s.name)", older)
    row = conn.execute(statement, [keep, state]).fetchone()
    if row is None:
        raise UnknownStateError(f"state {state!r} is not registered with any pipeline")
    return Horizon(*row)


def _drop_replaced(table: StateTable, horizon: Horizon) -> Walk:
    replaced = sql.SQL("EXISTS (SELECT FROM {log} n WHERE {same} AND n.txid > t.txid AND n.txid <= {horizon})").format(
        log=table.changelog, same=table.same_key("n", "t"), horizon=sql.Literal(horizon.txid)
    )
    return Walk("changelog entries", table.changelog, [*table.key, "txid"], replaced)


def _drop_dead(table: StateTable, horizon: Horizon) -> Walk:
    # An entry that was passed over, and is older still, would come back to life if the newest were dropped.
    dead = sql.SQL(
        "t.txid <= {horizon} AND NOT {live} AND NOT EXISTS (SELECT FROM {log} o WHERE {same} AND o.txid < t.txid)"
    ).format(
        horizon=sql.Literal(horizon.txid),
        live=live_sql("t", sql.Literal(horizon.ttl), sql.SQL("{}::timestamptz").format(sql.Literal(horizon.time))),
        log=table.changelog,
        same=table.same_key("o", "t"),
    )
    return Walk("dead entries", table.changelog, [*table.key, "txid"], dead)


def _drop_tombstones(table: StateTable, horizon: Horizon) -> Walk:
    settled = sql.SQL("t.txid <= {}").format(sql.Literal(horizon.txid)) if table.keeps_txid else sql.SQL("true")
    return Walk("tombstones", table.name, list(table.key), sql.SQL("t.removed AND {}").format(settled))


def _drop_stored_tombstones(conn: psycopg.Connection, table: StateTable, stored: StoredRows) -> Iterator[Step]:
    # The committed batch may come again, and then what it removed comes back; earlier ones are settled. No read in the
    # past looks at these rows.
    def free(page: Any, now: dict[str, Any]) -> int:
        return stored.drop_tombstones(page, now["committed"] - 1 if table.keeps_txid else None)

    return trim_pages(conn, table.spec.name, "tombstones", stored, free)


def _release_previous(table: StateTable, horizon: Horizon) -> Walk:
    unreachable = sql.SQL("t.prev_txid IS NOT NULL AND t.txid <= {}").format(sql.Literal(horizon.txid))
    names = [*previous(table.version), "prev_txid"]
    release = commas(sql.SQL("{} = NULL").format(sql.Identifier(name)) for name in names)
    return Walk("previous versions", table.name, list(table.key), unreachable, release)


def _trim_ledger(conn: psycopg.Connection, state: str, keep: timedelta) -> Step:
    removed = conn.execute(
        # Reads in the past need the time of the batch, in whichever state of the pipeline they still reach it.
        "DELETE FROM tidemark.batch b USING tidemark.state s, tidemark.pipeline p WHERE s.name = %s "
        "AND p.name = s.pipeline AND b.pipeline = p.name AND b.txid < p.committed_txid - %s "
        "AND b.batch_time < now() - %s::interval AND NOT EXISTS (SELECT FROM tidemark.state r "
        "WHERE r.pipeline = p.name AND (r.definition ->> 'changelog')::boolean AND r.oldest_txid <= b.txid)",
        [state, KEPT_BATCHES, keep],
    ).rowcount
    return Step("ledger rows", removed, removed)


def _vacuum(conn: psycopg.Connection, table: StateTable) -> Step:
    for name in _tables(table).values():
        conn.execute(sql.SQL("VACUUM (ANALYZE) {}").format(name))
    return Step("dead space", 0, 0)


def _tables(table: StateTable) -> dict[str, sql.Identifier]:
    names = {"state": table.name} if table.keeps_rows else {}
    return names | ({"changelog": table.changelog} if table.spec.changelog else {})


def sizes(conn: psycopg.Connection, spec: StateSpec, stored: StoredRows | None = None) -> dict[str, int]:
    """Return rows and bytes of the state and its changelog, for a run's figures before and after.

    stored: where the rows are, if not in the state's table; their bytes are an estimate, all else is counted exactly.
    """
    figures: dict[str, int] = {}
    if stored is not None:
        figures["state_rows"], figures["state_bytes"] = stored.sizes()
    for label, name in _tables(StateTable(spec)).items():
        row = conn.execute(
            sql.SQL(
                # A partitioned table has no pages of its own; its partitions have them.
                "SELECT (SELECT count(*) FROM {name}), pg_total_relation_size({oid}) + "
                "(SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0) FROM pg_inherits WHERE inhparent = {oid})"
            ).format(name=name, oid=sql.SQL("{}::regclass").format(sql.Literal(name.as_string(conn))))
        ).fetchone()
        assert row is not None
        figures |= {f"{label}_rows": int(row[0]), f"{label}_bytes": int(row[1])}
    return figures


# Expiry: free the rows whose time to live has run out. Readers stopped seeing them the moment it did.


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

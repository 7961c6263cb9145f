"""Compaction: drop what neither a replay nor a reader at the committed batch could need."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql

from state_backends.committed import ledger_sql, live_sql
from state_backends.errors import UnknownStateError
from state_backends.journal.stored import StoredRows, trim_pages
from state_backends.journal.trim import Step, Walk
from state_backends.spec import StateSpec
from state_backends.table import StateTable, commas, previous
from state_backends.types import type_of

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

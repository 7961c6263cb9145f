"""Compaction: drop what neither a replay nor a reader at the committed batch could need."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import psycopg
from psycopg import sql

from state_backends.errors import UnknownStateError
from state_backends.journal.trim import Step, Walk
from state_backends.spec import StateSpec
from state_backends.table import StateTable, commas, previous

# The ledger keeps this many batches whatever their age, for the dashboard and to set a commit back.
KEPT_BATCHES = 1_000


@dataclass(frozen=True)
class Horizon:
    """committed: the committed batch. txid: the newest batch, before it, that is older than what is to be kept."""

    committed: int
    txid: int


def compact(conn: psycopg.Connection, spec: StateSpec, *, keep: timedelta) -> Iterator[Step]:
    """Trim a registered state, a page per step; stop iterating to stop.

    conn: in autocommit mode. keep: how far back reads in the past and histories reach; the newest version of each key
    older than that stays in the changelog, so that the state at any later batch can be told.
    In turn: the changelog, tombstones, previous versions of JSON values, ledger rows, dead space.
    """
    table = StateTable(spec)
    horizon = _horizon(conn, spec.name, keep)
    conn.execute(
        "UPDATE tidemark.state SET oldest_txid = %s WHERE name = %s AND oldest_txid < %s",
        [horizon.txid, spec.name, horizon.txid],
    )
    if spec.changelog:
        yield from _trim_changelog(table, horizon).run(conn)
    yield from _drop_tombstones(table, horizon).run(conn)
    if table.keeps_previous and spec.value == "jsonb":
        yield from _release_previous(table, horizon).run(conn)
    yield _trim_ledger(conn, spec.name, keep)
    yield _vacuum(conn, table)


def _horizon(conn: psycopg.Connection, state: str, keep: timedelta) -> Horizon:
    row = conn.execute(
        "SELECT p.committed_txid, coalesce(max(b.txid), 0) FROM tidemark.state s "
        "JOIN tidemark.pipeline p ON p.name = s.pipeline LEFT JOIN tidemark.batch b "
        "ON b.pipeline = p.name AND b.txid < p.committed_txid AND b.batch_time <= now() - %s::interval "
        "WHERE s.name = %s GROUP BY p.committed_txid",
        [keep, state],
    ).fetchone()
    if row is None:
        raise UnknownStateError(f"state {state!r} is not registered with any pipeline")
    return Horizon(*row)


def _trim_changelog(table: StateTable, horizon: Horizon) -> Walk:
    superseded = sql.SQL(
        "EXISTS (SELECT FROM {log} n WHERE {same} AND n.txid > t.txid AND n.txid <= {horizon})"
    ).format(log=table.changelog, same=table.same_key("n", "t"), horizon=sql.Literal(horizon.txid))
    return Walk("changelog entries", table.changelog, [*table.key, "txid"], superseded)


def _drop_tombstones(table: StateTable, horizon: Horizon) -> Walk:
    settled = sql.SQL("t.txid < {}").format(sql.Literal(horizon.committed)) if table.keeps_txid else sql.SQL("true")
    return Walk("tombstones", table.name, list(table.key), sql.SQL("t.removed AND {}").format(settled))


def _release_previous(table: StateTable, horizon: Horizon) -> Walk:
    unreachable = sql.SQL("t.prev_txid IS NOT NULL AND t.txid < {} AND t.txid <= {}").format(
        sql.Literal(horizon.committed), sql.Literal(horizon.txid)
    )
    names = [*previous(table.version), "prev_txid"]
    release = commas(sql.SQL("{} = NULL").format(sql.Identifier(name)) for name in names)
    return Walk("previous versions", table.name, list(table.key), unreachable, release)


def _trim_ledger(conn: psycopg.Connection, state: str, keep: timedelta) -> Step:
    removed = conn.execute(
        "DELETE FROM tidemark.batch b USING tidemark.state s, tidemark.pipeline p WHERE s.name = %s "
        "AND p.name = s.pipeline AND b.pipeline = p.name AND b.txid < p.committed_txid - %s "
        "AND b.batch_time < now() - %s::interval",
        [state, KEPT_BATCHES, keep],
    ).rowcount
    return Step("ledger rows", removed, removed)


def _vacuum(conn: psycopg.Connection, table: StateTable) -> Step:
    for name in [table.name, *([table.changelog] if table.spec.changelog else [])]:
        conn.execute(sql.SQL("VACUUM (ANALYZE) {}").format(name))
    return Step("dead space", 0, 0)


def sizes(conn: psycopg.Connection, spec: StateSpec) -> dict[str, int]:
    """Return rows and bytes of the state and its changelog, for a run's figures before and after. Counts exactly."""
    table = StateTable(spec)
    figures: dict[str, int] = {}
    for label, name in [("state", table.name), *([("changelog", table.changelog)] if spec.changelog else [])]:
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

"""Move a state to another backend, or to another pipeline.

To another backend: the rows are copied as of the committed batch and compared, one transaction switches to the copy,
and the old rows are dropped after it. Txids stay, so history, replays and reverts work as before.

To another pipeline: a txid counts the batches of one pipeline and means nothing in another. So every row, and the only
changelog entry that it keeps, gets txid 0. What was counted before the move is in the state from the start, and no
revert by the new pipeline can undo it.
"""

from dataclasses import replace

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tidegauge.state_backends.errors import LifeError
from tidegauge.state_backends.ledger.batch_ledger import notify
from tidegauge.state_backends.life.copying import copy_state
from tidegauge.state_backends.life.settled import Position, at_rest, pipeline_of, position
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.schema.definition import definition
from tidegauge.state_backends.schema.kept import Kept
from tidegauge.state_backends.schema.table_locks import locked_tables
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable, columns


def move_to_backend(conn: psycopg.Connection, state: str, backend: str) -> int:
    """Move the rows of a state to another backend; its declaration must name that from then on. Returns the rows moved.

    conn: in autocommit mode. Safe to re-run after a crash. Drops the tables kept for rolling back the last reprocess.
    Raises UnknownStateError, SpecError for a state that the backend cannot hold, PipelineHeldError, StateBusyError,
    SwapError, DependentObjectsError, FindingError, LifeError.
    """
    spec = Catalog(conn).get(state)
    target = replace(spec, backend=backend)
    pipeline, rows = pipeline_of(conn, state), 0
    with at_rest(conn, [pipeline], [state]):
        if spec.backend != backend:
            rows = _move_rows(conn, spec, target, position(conn, pipeline))
        # Also without a move, because an earlier call may have been killed before it dropped the old rows.
        _drop_left_rows(conn, target)
    return rows


def _move_rows(conn: psycopg.Connection, spec: StateSpec, target: StateSpec, at: Position) -> int:
    backend = BACKENDS[target.backend]
    backend.check()
    if backend.tables:
        backend.tables.check_names(conn, target, [])
    rows = copy_state(conn, spec, target, at)
    with locked_tables(conn, [spec.name]):
        Kept(conn, at.pipeline).drop()
        if BACKENDS[spec.backend].tables is not None:
            # Without its changelog, because that stays in the ledger's database, whichever backend has the rows.
            BACKENDS[spec.backend].drop(conn, replace(spec, changelog=False))
        backend.end_copy(conn, target, at.committed)
        conn.execute(
            "UPDATE tidegauge.state SET definition = %s, version = version + 1, finding = '', warning = '' "
            "WHERE name = %s",
            [Jsonb(definition(target)), spec.name],
        )
        notify(conn, at.pipeline)
    return rows


def _drop_left_rows(conn: psycopg.Connection, spec: StateSpec) -> None:
    """Drop the old rows that a move has left in a store outside the ledger's database."""
    for name, backend in BACKENDS.items():
        if name != spec.backend and backend.tables is None and backend.holds(spec):
            left = spec if backend.has_partitions else replace(spec, partitions=1)
            backend.drop(conn, replace(left, backend=name, changelog=False))


def move_to_pipeline(conn: psycopg.Connection, state: str, pipeline: str, *, spout: str | None = None) -> None:
    """Have another pipeline feed a state from its next batch on; both declarations must say so from then on.

    spout: the spout of a pipeline that has not run yet, which is then registered. None: the pipeline must have run.
    The move is one transaction.
    Raises UnknownStateError, UnknownPipelineError, PipelineHeldError, StateBusyError, SwapError, and LifeError for a
    state that is not in the ledger's database, or if one of the two pipelines has an open batch.
    """
    spec, source = Catalog(conn).get(state), pipeline_of(conn, state)
    if spout is not None:
        Catalog(conn).register_pipeline(pipeline, spout=spout)
    position(conn, pipeline)
    if source == pipeline:
        raise LifeError(f"state {state!r}: pipeline {pipeline!r} feeds it already")
    if BACKENDS[spec.backend].tables is None:
        raise LifeError(
            f"state {state!r}: lives in {spec.backend}, which cannot change the txids of all rows in one transaction; "
            f"move it to postgres first, then to pipeline {pipeline!r}, and back"
        )
    with at_rest(conn, [source, pipeline], [state]):
        left, arrived = position(conn, source), position(conn, pipeline)
        for at in (left, arrived):
            _check_no_open_batch(state, at)
        with locked_tables(conn, [state]):
            Kept(conn, source).drop()
            _settle_rows(conn, spec)
            conn.execute(
                "UPDATE tidegauge.state SET pipeline = %s, oldest_txid = %s, since_txid = 0, measures_since = '{}', "
                "last_fed_txid = NULL, measures_last_fed = '{}', version = version + 1 WHERE name = %s",
                [pipeline, arrived.committed, state],
            )
            notify(conn, source)
            notify(conn, pipeline)


def _check_no_open_batch(state: str, at: Position) -> None:
    if at.open_txid is not None:
        raise LifeError(
            f"state {state!r}: batch {at.open_txid} of pipeline {at.pipeline!r} is open; let the pipeline finish it "
            "first, with `tidegauge run --once`"
        )


def _settle_rows(conn: psycopg.Connection, spec: StateSpec) -> None:
    """Give every row txid 0, and replace the changelog by one entry per row, also with txid 0."""
    table = StateTable(spec)
    if table.keeps_txid:
        previous = [name for name in table.row if table.keeps_previous and name.startswith("prev_")]
        reset = [sql.SQL("txid = 0"), *(sql.SQL("{} = NULL").format(sql.Identifier(name)) for name in previous)]
        conn.execute(sql.SQL("DELETE FROM {} WHERE removed").format(table.name))
        conn.execute(sql.SQL("UPDATE {} SET {}").format(table.name, sql.SQL(", ").join(reset)))
    if spec.changelog:
        entry = columns([*table.key, *table.version, "txid"])
        conn.execute(sql.SQL("DELETE FROM {}").format(table.changelog))
        conn.execute(sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(table.changelog, entry, entry, table.name))

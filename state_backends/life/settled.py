"""Settled rows: what a state holds as of the committed batch, while no driver feeds it.

If a driver has died and left a batch open, its rows are read as they were before it, if they keep that version.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psycopg

from tidegauge.state_backends.errors import LifeError, SwapError
from tidegauge.state_backends.ledger.batch_ledger import BatchLedger
from tidegauge.state_backends.ledger.state_lock import state_locks
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.schema import reprocess
from tidegauge.state_backends.schema.former import unknown
from tidegauge.state_backends.schema.reprocess import AFTER_MOVE, Phase
from tidegauge.state_backends.spec.row import Key, Versioned
from tidegauge.state_backends.spec.state_spec import StateSpec

# How long to wait for a pipeline's lock, because the session of a driver may last a moment longer than the driver.
PATIENCE_MS = 10_000


@dataclass(frozen=True)
class Position:
    """Where a pipeline stands. open_txid: the batch that was begun and not committed; None if there is none."""

    pipeline: str
    committed: int
    open_txid: int | None
    epoch: str
    checkpoint_id: str | None


def position(conn: psycopg.Connection, pipeline: str) -> Position:
    """Return where a pipeline stands. Raises UnknownPipelineError."""
    row = conn.execute(
        "SELECT name, committed_txid, open_txid, epoch, checkpoint_id FROM tidegauge.pipeline "
        "WHERE name = %s AND reprocesses IS NULL",
        [pipeline],
    ).fetchone()
    if row is None:
        names = conn.execute("SELECT name FROM tidegauge.pipeline WHERE reprocesses IS NULL ORDER BY name")
        raise unknown(conn, "pipeline", pipeline, [name for (name,) in names])
    return Position(*row)


def pipeline_of(conn: psycopg.Connection, state: str) -> str:
    """Return the pipeline that feeds a state that is in the catalog."""
    row = conn.execute("SELECT pipeline FROM tidegauge.state WHERE name = %s", [state]).fetchone()
    assert row is not None
    return str(row[0])


@contextmanager
def at_rest(conn: psycopg.Connection, pipelines: list[str], states: list[str]) -> Iterator[None]:
    """Lock pipelines and states, so that no driver feeds them, no reprocess fills them and no maintenance trims them.

    Raises PipelineHeldError, StateBusyError, and SwapError if a reprocess has not ended.
    """
    with ExitStack() as held:
        # In sorted order, so that two callers that lock the same pipelines do not wait for each other.
        for pipeline in sorted(pipelines):
            held.enter_context(BatchLedger(conn, pipeline).idle(patience_ms=PATIENCE_MS))
        held.enter_context(state_locks(conn, states, "retirement"))
        for pipeline in pipelines:
            _check_reprocess(conn, pipeline)
        yield


def settled_rows(conn: psycopg.Connection, spec: StateSpec, at: Position) -> Iterator[tuple[Key, Versioned]]:
    """Yield every row, in key order, with the versions that it had when batch `at.committed` was committed.

    Raises LifeError if that is unknown, because the open batch has written rows that do not keep their version before
    it; FindingError if a store outside the database does not hold what was committed.
    """
    backend = BACKENDS[spec.backend]
    backend.check_one_back(conn, spec, at.committed)
    if at.open_txid is not None and spec.kind == "non_transactional":
        raise _open(spec, at)
    for key, row in backend.rows(conn, spec).scan():
        if row.txid is None or row.txid <= at.committed:
            yield key, row
        elif spec.kind != "opaque":
            raise _open(spec, at)
        elif row.prev_txid is not None:
            yield key, Versioned(row.prev, row.prev_txid, at=row.prev_at)


def _open(spec: StateSpec, at: Position) -> LifeError:
    return LifeError(
        f"state {spec.name!r}: batch {at.open_txid} of pipeline {at.pipeline!r} is open and has written rows, and a "
        f"{spec.kind} state does not keep the versions from before it; let the pipeline finish that batch first"
    )


def _check_reprocess(conn: psycopg.Connection, pipeline: str) -> None:
    found = reprocess.current(conn, pipeline)
    if found is not None and (found.phase == Phase.FEEDING or found.phase in AFTER_MOVE):
        raise SwapError(
            f"pipeline {pipeline!r}: its reprocess, begun {found.started_at:%Y-%m-%d %H:%M:%S %Z}, has not ended "
            f"({found.phase}); finish it, or abort it with `tidegauge run {pipeline} --abort-reprocess`"
        )

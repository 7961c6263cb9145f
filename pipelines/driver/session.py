"""Driver session: the time in which a process holds a pipeline, and what it reports about itself."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, ClassVar

import psycopg
from psycopg.pq import TransactionStatus

from tidegauge.pipelines.checkpoint.files import CheckpointPath
from tidegauge.pipelines.checkpoint.folder import checkpoint_id, plan_without_input
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.announcing import acquired
from tidegauge.pipelines.driver.progress import Measured
from tidegauge.pipelines.sources.pending import Pending
from tidegauge.state_backends.dead_letters import replay as dead_letter_replay
from tidegauge.state_backends.errors import PipelineHeldError, SynchronizerError
from tidegauge.state_backends.ledger import driver_status, findings
from tidegauge.state_backends.ledger.backfill import check_live
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.ledger.batch_ledger import BatchLedger
from tidegauge.state_backends.ledger.batch_time import DATABASE_CLOCK, BatchClock
from tidegauge.state_backends.ledger.driver_status import DesiredState
from tidegauge.state_backends.ledger.epochs import LastBatch
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.schema.inputs import record_inputs
from tidegauge.state_backends.session import VANISHED_SECONDS, unsafe_settings
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.synchronizer.membership import Membership

PATIENCE_MS = 3_000  # until the database has ended the session of a driver that was killed a moment ago

# No row while a batch is open, because that one must be replayed as it was.
NEXT_BATCH = """
SELECT p.checkpoint_id, p.committed_batch_id + 1 FROM tidegauge.pipeline p WHERE p.name = %s AND NOT EXISTS (
    SELECT FROM tidegauge.batch b WHERE b.pipeline = p.name AND b.txid = p.open_txid)
"""

logger = logging.getLogger(__name__)


def check_declarations(pipeline: Pipeline, dsn: str) -> None:
    """Raise SpecMismatchError if a state has changed in a way that its rows cannot follow.

    Checked here, because a driver finds it only after Spark has started. If the database does not answer, or has no
    catalog of this version yet, the driver will say so.
    """
    not_here = psycopg.OperationalError, psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn
    with suppress(*not_here), connect(dsn, f"{pipeline.name} check") as conn:
        Catalog(conn).check_declarations(pipeline.name, pipeline.specs)


class DriverSession:
    """The time in which this process holds a pipeline: its lock, its fence, its states registered, its membership.

    name: the name of its ledger. shadow: whether it feeds the shadows of the states. clock: the driver's.
    accept_gap: as in RunOptions. last: the last batch that its checkpoint has seen committed.
    A context manager. Raises PipelineHeldError while another driver lives, SpecMismatchError if the states differ.
    """

    shadow: ClassVar[bool] = False

    def __init__(
        self,
        pipeline: Pipeline,
        dsn: str,
        clock: BatchClock | None = None,
        accept_gap: bool = False,
        last: LastBatch | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.accept_gap = accept_gap
        self.name = self.ledger_name(pipeline)
        self.dsn = dsn
        self._clock = clock
        self._last = last
        self._membership: Membership | None = None

    @staticmethod
    def ledger_name(pipeline: Pipeline) -> str:
        return pipeline.name

    def __enter__(self) -> "DriverSession":
        self.conn = connect(self.dsn, self.name)
        self.ledger = BatchLedger(self.conn, self.name, self._clock)
        try:
            # Separate, because the ledger's connection belongs to the thread that runs the batches.
            self._reports = connect(self.dsn, f"{self.name} reports")
            Catalog(self.conn).install()
            self._take_over()
            acquired(self.name)
            self._index_timers()
            self._join()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Because the server ends a closed session some milliseconds later, and until then no driver could start.
        # Not after an error, because a server that is out of reach would be waited for.
        if kind is None and self.ledger.fence is not None and self._is_idle():
            with suppress(psycopg.Error):
                self.ledger.release()
        self.conn.close()
        if self._membership is not None:
            # Suppressed, because if the database has failed, the missing heartbeat says the same.
            with suppress(SynchronizerError, psycopg.Error):
                self._membership.leave()
        if hasattr(self, "_reports"):
            self._reports.close()

    def report(self, status: str, message: str = "", progress: Mapping[str, Any] | None = None, **tries: Any) -> None:
        """Report the status of this driver, and that it lives. tries: as driver_status.report takes them."""
        driver_status.report(self._reports, self.name, status, message, progress, **tries)
        # Suppressed, because the members' log only informs people, and must not stop the pipeline.
        if self._membership is not None:
            with suppress(SynchronizerError):
                self._membership.heartbeat()

    def desired_state(self) -> DesiredState:
        """Return the desired state, to be followed between two batches.

        Raises FencedError once another driver has taken over, OperationalError if the session with the lock is gone.
        """
        desired = driver_status.read_desired_state(self._reports, self.name)
        self.ledger.check(desired.fence, desired.token)
        if not desired.held:
            raise psycopg.OperationalError(f"pipeline {self.name!r}: the session that held its lock has ended")
        return desired

    def plan_replay(self, checkpoint: CheckpointPath) -> bool:
        """Plan a batch without other input for the dead letters that wait to be replayed. Returns whether any wait.

        No query may be running. If another batch must come first, as it was, nothing is planned.
        """
        if not dead_letter_replay.are_waiting(self.conn, self.name):
            return False
        row = self.conn.execute(NEXT_BATCH, [self.name]).fetchone()
        if row is not None and row[0] == checkpoint_id(checkpoint):
            plan_without_input(checkpoint, row[1])
        return True

    def clock(self) -> datetime:
        """Return the time by the database's clock, from which batches take theirs."""
        return self._reports.execute(DATABASE_CLOCK).fetchall()[0][0]  # type: ignore[no-any-return]

    def committed_batch(self) -> Batch:
        """Return the committed batch, as attempt 0 under this driver's fence."""
        with self.conn.transaction():
            return self.ledger.start(self.ledger.lock_committed())

    def record(self, measured: Iterable[Measured], left: Pending | None = None) -> None:
        """Store what was measured for some batches. left: as for Measured.record, asked for after they ended."""
        for each in measured:
            each.record(self._reports, left)

    def _take_over(self) -> None:
        """Register the pipeline, acquire its ledger, register its states; tell the backends what is committed."""
        catalog, pipeline = Catalog(self.conn), self.pipeline
        catalog.register_pipeline(pipeline.name, spout=pipeline.source.spout, description=pipeline.description)
        self._check_backfill()
        self._acquire()
        known = catalog.names()
        for spec in pipeline.specs:
            if spec.name not in known:
                BACKENDS[spec.backend].check_new(self.conn, spec)
        catalog.register_states(
            pipeline.name,
            pipeline.specs,
            pipeline.guarantees,
            self._report_copied,
            self._report_waiting,
            accept_gap=self.accept_gap,
        )
        record_inputs(self.conn, pipeline.inputs)
        self._catch_up(catalog.specs(pipeline.name))

    def _check_backfill(self) -> None:
        check_live(self.conn, self.name)

    def _acquire(self) -> None:
        """Acquire the ledger; wait for the server to end the session of a driver whose host has vanished.

        A driver that lives is not waited for; it reports twice a second.
        """
        reported = driver_status.reported_at(self.conn, self.name)
        try:
            self.ledger.acquire(patience_ms=PATIENCE_MS, last=self._last)
        except PipelineHeldError as held:
            if driver_status.reported_at(self.conn, self.name) != reported:
                raise
            logger.warning("%s; it reports nothing, waiting %s s for its connection to end", held, VANISHED_SECONDS)
            self.ledger.acquire(patience_ms=VANISHED_SECONDS * 1_000, last=self._last)
        self._report_unsafe_settings()

    def _report_unsafe_settings(self) -> None:
        if names := unsafe_settings(self.conn):
            logger.warning(
                "pipeline %s: the database runs with %s off: a crash of its host can lose or damage committed batches; "
                "turn them on",
                self.name,
                ", ".join(names),
            )

    def _catch_up(self, specs: Sequence[StateSpec]) -> None:
        """Compare every backend with the ledger, and show what is committed. Raises FencedError, FindingError."""
        with findings.recorded(self.conn), self.conn.transaction():
            # Locked until it is published, so that the batch is not reverted meanwhile.
            start = self.ledger.start(self.ledger.lock_committed())
            rows = self.conn.execute("SELECT name, since_txid FROM tidegauge.state WHERE pipeline = %s", [self.name])
            since: dict[str, int] = dict(rows.fetchall())
            for spec in specs:
                is_new = since[spec.name] == start.txid
                warning = BACKENDS[spec.backend].catch_up(self.conn, spec, start, is_new=is_new)
                findings.warn(self.conn, spec.name, warning)
                findings.record(self.conn, spec.name, "")

    def _index_timers(self) -> None:
        timers = [(fed.spec, fed.due) for fed in self.pipeline.timers]
        for spec, due in timers + [(fed.spec, fed.closing.column) for fed in self.pipeline.closing if fed.closing]:
            assert spec is not None
            assert due is not None
            if tables := BACKENDS[spec.backend].tables:
                tables.index_timers(self.conn, spec, due, shadow=self.shadow)

    def _report_copied(self, state: str, rows: int) -> None:
        self.report("starting", f"migrating state {state!r}: {rows} rows copied")

    def _report_waiting(self, readers: str) -> None:
        self.report("starting", f"waiting to change tables that are being read by {readers}")

    def _join(self) -> None:
        # As in `report`, the pipeline runs without it.
        with suppress(SynchronizerError):
            membership = Membership(self._reports, "driver", self.name)
            membership.join()
            self._membership = membership

    def _is_idle(self) -> bool:
        return self.conn.info.transaction_status == TransactionStatus.IDLE

"""Driver: runs one pipeline, from acquiring it to a clean stop.

A failed query is restarted after a growing pause; a failure that a retry cannot correct ends the driver at once. A stop
or a pause takes effect at the end of a batch. While the driver waits, it holds the pipeline and reports its status.
"""

import logging
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from tidegauge.pipelines.checkpoint.files import StorePath
from tidegauge.pipelines.checkpoint.folder import last_batch, note_batch, settle
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.check import check
from tidegauge.pipelines.driver.query import OnBatch, QueryRun
from tidegauge.pipelines.driver.run_options import RunOptions
from tidegauge.pipelines.driver.session import DriverSession
from tidegauge.pipelines.errors import PipelinePausedError, failure_reason, is_retryable
from tidegauge.pipelines.sources.pending import Pending, as_progress
from tidegauge.pipelines.sources.source import Source
from tidegauge.pipelines.spark.session import has_ended
from tidegauge.state_backends.errors import FencedError, PipelineHeldError
from tidegauge.state_backends.ledger import driver_status
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.ledger.batch_time import BatchClock, max_skew
from tidegauge.state_backends.ledger.driver_status import DesiredState

# Between two checks of the query and the desired state: how fast a stop is noticed, how old a reported lag may be.
WATCH_SECONDS = 0.5
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
STORE_SECONDS = 10.0  # how old the lag may be if the checkpoint is in a store

logger = logging.getLogger(__name__)


class Driver:
    """Runs one pipeline until it is stopped, has finished, or has failed.

    dsn: the database, for this process and the executors. on_batch: called with each batch after its commit.
    stopping: setting it stops the driver, as `stop` does. session: the class that acquires and holds the pipeline.
    commits: how many batches it has committed.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        dsn: str,
        options: RunOptions,
        on_batch: OnBatch | None = None,
        stopping: threading.Event | None = None,
        session: type[DriverSession] = DriverSession,
    ) -> None:
        self.pipeline = pipeline
        self._session = session
        self.spark = spark
        self._dsn = dsn
        self._options = options
        self._on_batch = on_batch or (lambda batch: None)
        self._stopping = stopping or threading.Event()
        self._clock = BatchClock(max_skew())
        self._failures = self.commits = 0
        self._reason = ""  # of the last failure, until a batch is committed
        self._left: Pending | None = None  # of the input, as the source last reported it
        self._is_new = False  # whether that report is new
        self._look_at = 0.0

    def stop(self) -> None:
        """Request a stop at the end of the current batch. Safe to call from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Run until stopped, or until the available input is processed if `once` is set.

        Raises PipelinePausedError if `once` is set and the pipeline is paused, FencedError or PipelineHeldError if
        another driver holds the pipeline, and otherwise the error of the last failure: a TidegaugeError, or what Spark
        or the database raised.
        """
        check(self.pipeline, self.spark)
        while not self._stopping.is_set():
            with ExitStack() as held:
                session = None
                try:
                    session = held.enter_context(self._open_session())
                    return self._run_session(session)
                except Exception as error:
                    # Inside the session, so that the pipeline stays held while the driver waits to try again.
                    self._wait_or_raise(error, session)
        self._try_report("stopped")

    def _open_session(self) -> DriverSession:
        last = last_batch(self._options.checkpoint, self._session.ledger_name(self.pipeline))
        return self._session(self.pipeline, self._dsn, self._clock, self._options.accept_gap, last)

    def _run_session(self, session: DriverSession) -> None:
        # A reprocess may have been killed between its swap and the move of its checkpoint.
        settle(session.conn, session.name, self._options.checkpoint)
        ended = False
        while not ended and not self._stopping.is_set():
            self._wait_while_paused(session)
            ended = self._stopping.is_set() or self._run_queries(session)
        self._report(session, "stopped" if self._stopping.is_set() else "finished")

    def _wait_while_paused(self, session: DriverSession) -> None:
        while (desired := session.desired_state()).paused and not self._stopping.is_set():
            if self._options.once:
                self._report(session, "stopped")
                raise PipelinePausedError(_paused_message(self.pipeline.name, desired))
            self._report(session, "paused")
            self._stopping.wait(WATCH_SECONDS)

    def _run_queries(self, session: DriverSession) -> bool:
        """Run the pipeline until its query ends or must end. Returns True if it ended by itself.

        If there are bootstrap sources, a query that ends with their input comes first; the other sources wait in it.
        """
        waiting = self.pipeline.waiting
        if waiting:
            logger.info("pipeline %s reads %s first", session.name, ", ".join(map(str, self.pipeline.bootstrap)))
            if not self._run_query(session, {"availableNow": True}, waiting):
                return False
            logger.info("pipeline %s now reads %s as well", session.name, ", ".join(map(str, waiting)))
        return self._run_query(session, self._options.trigger)

    def _run_query(self, session: DriverSession, trigger: Mapping[str, Any], waiting: Collection[Source] = ()) -> bool:
        """Run a query until it ends or must end. Returns True if it ended by itself.

        Dead letters that are to be replayed get a batch of their own, the first of a query, so a query ends for them.
        """
        before, waited = self.commits, session.plan_replay(self._options.checkpoint)
        query = QueryRun(
            self.spark,
            session,
            self._options.checkpoint,
            self._after_commit,
            trigger=trigger,
            rebind=self._options.rebind,
            waiting=waiting,
        )
        try:
            query.start()
            self._report(session, "running")
            while not query.await_end(WATCH_SECONDS):
                measured = query.progress.take()
                self._report(session, "running", query.progress.pending)
                session.record(measured, self._left if self._is_new else None)
                query.ask_if_idle()
                desired = session.desired_state()
                # Letters that waited at the start end no query before its first batch, because that batch replays them.
                replay = desired.replay and (not waited or self.commits > before)
                if desired.paused or replay or self._stopping.is_set():
                    query.end(WATCH_SECONDS)
            query.raise_failure()
            more = session.desired_state().replay and (not waited or self.commits > before)
            return not query.was_ended and not more
        finally:
            query.close()
            # Suppressed, so that the error of the query is raised and not one of these.
            with suppress(psycopg.Error, OSError):
                session.record(query.progress.take(), self._pending("ended"))

    def _after_commit(self, batch: Batch) -> None:
        self._failures, self._reason = 0, ""
        self.commits += 1
        note_batch(self._options.checkpoint, batch)
        self._on_batch(batch)

    def _wait_or_raise(self, error: Exception, session: DriverSession | None) -> None:
        """Wait before the next attempt, or raise the error if there is none."""
        if isinstance(error, PipelineHeldError | FencedError | PipelinePausedError):
            # Not reported as failed, because the status is another driver's, or was set when the pause was found.
            raise error
        if self._stopping.is_set() and (isinstance(error, Py4JNetworkError) or has_ended(self.spark)):
            # A supervisor that stops all processes of a service has ended Spark's as well.
            logger.warning(
                "pipeline %s: Spark was ended before the batch; the next start reads the batch again",
                self.pipeline.name,
                extra=self._log_fields(),
            )
            return
        self._failures += 1
        self._reason = failure_reason(error)
        # Not if Java has ended, because a Spark session cannot run another query without its Java process.
        retryable = is_retryable(error) and not isinstance(error, Py4JNetworkError)
        if not retryable or self._failures >= self._options.max_failures or self._options.once:
            self._try_report("failed", self._reason)
            logger.error("pipeline %s failed for good: %s", self.pipeline.name, self._reason, extra=self._log_fields())
            raise error
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (self._failures - 1), LONGEST_PAUSE_SECONDS)
        logger.warning(
            "pipeline %s tries again in %g s: %s", self.pipeline.name, pause, self._reason, extra=self._log_fields()
        )
        self._wait_for_next_try(pause, session)

    def _wait_for_next_try(self, seconds: float, session: DriverSession | None) -> None:
        next_try_at = datetime.now(UTC) + timedelta(seconds=seconds)
        deadline = time.monotonic() + seconds
        self._try_report("restarting", self._reason, next_try_at=next_try_at)
        while (left := deadline - time.monotonic()) > 0 and not self._stopping.wait(min(left, WATCH_SECONDS)):
            if session is not None:
                with suppress(psycopg.Error):
                    session.report("restarting", self._reason, **self._failure_counts(), next_try_at=next_try_at)

    def _report(self, session: DriverSession, status: str, lag: Pending | None = None) -> None:
        progress = as_progress(self._pending(status) or lag)
        # A query that runs has not succeeded yet: the reason of the last failure stays visible until a commit.
        reason = self._reason if status == "running" else ""
        session.report(status, reason, progress, **self._failure_counts())

    def _pending(self, status: str) -> Pending | None:
        """Return what is left of the input. While batches run, a store is asked less often, because it may cost."""
        self._is_new = status != "running" or time.monotonic() >= self._look_at
        if self._is_new:
            self._left = self.pipeline.source.pending(self._options.checkpoint)
            is_stored = isinstance(self._options.checkpoint, StorePath)
            self._look_at = time.monotonic() + (STORE_SECONDS if is_stored else 0)
        return self._left

    def _try_report(self, status: str, message: str = "", next_try_at: datetime | None = None) -> None:
        """Report on a separate connection, because the session's may be what failed."""
        try:
            name = self._session.ledger_name(self.pipeline)
            with connect(self._dsn, name) as conn:
                driver_status.report(conn, name, status, message, **self._failure_counts(), next_try_at=next_try_at)
        except psycopg.Error:
            return  # the database does not answer; the next start reports

    def _log_fields(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline.name, **self._failure_counts()}

    def _failure_counts(self) -> dict[str, Any]:
        return {"failures": self._failures, "max_failures": self._options.max_failures}


def _paused_message(pipeline: str, desired: DesiredState) -> str:
    return (
        f"pipeline {pipeline!r} is paused (by {desired.by}, since {desired.since:%Y-%m-%d %H:%M:%S %Z}), so its "
        f"input was not processed; resume it first: `tidegauge pipelines resume {pipeline}`"
    )

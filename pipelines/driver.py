"""The driver: the life of a pipeline, from taking it over to a clean stop.

A failed query is started again with a growing pause; what cannot get better by trying again ends at once. A stop and a
pause are taken at the end of a batch. Whatever it waits for, the driver holds the pipeline and says so.
"""

import logging
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from pipelines.check import check
from pipelines.checkpoint import promote
from pipelines.connections import connect
from pipelines.driver_session import DriverSession
from pipelines.errors import PipelineError, PipelinePausedError, failure_reason, is_retryable
from pipelines.pipeline import Pipeline
from pipelines.query import OnBatch, QueryRun
from pipelines.sources.source import as_progress
from state_backends import driver_status
from state_backends.driver_status import DesiredState
from state_backends.errors import FencedError, PipelineHeldError
from state_backends.ledger import Batch

# Between two looks at the query and the orders, and so the delay of the dashboard's lag; also how fast a stop is taken.
WATCH_SECONDS = 0.5
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
MAX_FAILURES = 8  # in a row, without a batch committed between: about three minutes of trying

logger = logging.getLogger(__name__)

# Another driver holds the pipeline, or people have paused it: the roster is not this one's to fill.
NOT_OURS = PipelineHeldError | FencedError | PipelinePausedError


@dataclass(frozen=True)
class RunOptions:
    """checkpoint: Spark's folder for this pipeline. once: run through the input there is, then end.
    rebind: accept another checkpoint than the states were fed from. max_failures: how many in a row, without a batch
    committed between, end the driver; with `once` it is the first. Raises PipelineError for fewer than one."""

    checkpoint: Path
    once: bool = False
    rebind: bool = False
    max_failures: int = MAX_FAILURES

    def __post_init__(self) -> None:
        if self.max_failures < 1:
            raise PipelineError(f"max_failures must be 1 or more, got {self.max_failures!r}")


class Driver:
    """Drives one pipeline until it is stopped, has finished, or has failed.

    spark: a session. dsn: the database, for this process and the executors. on_batch: told each batch when it is
    committed. stopping: set by whoever wants an end; `stop` sets it. tenure: how the pipeline is held.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        dsn: str,
        options: RunOptions,
        on_batch: OnBatch | None = None,
        stopping: threading.Event | None = None,
        tenure: type[DriverSession] = DriverSession,
    ) -> None:
        self.pipeline = pipeline
        self._tenure = tenure
        self._spark = spark
        self._dsn = dsn
        self._options = options
        self._on_batch = on_batch or (lambda batch: None)
        self._stopping = stopping or threading.Event()
        self._failures = 0
        self._reason = ""  # of the last failure, until a batch is committed

    def stop(self) -> None:
        """Ask for an end after the batch at hand. Safe to call from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Run until stopped, or through the input with `once`.

        Raises PipelinePausedError where `once` meets a paused pipeline; any other TidemarkError, or what Spark or the
        database raised, when the pipeline has failed for good.
        """
        check(self.pipeline, self._spark)
        while not self._stopping.is_set():
            with ExitStack() as held:
                tenure = None
                try:
                    tenure = held.enter_context(self._tenure(self.pipeline, self._dsn))
                    return self._serve(tenure)
                except Exception as error:
                    # Here, where the pipeline is held still: a driver that is about to try again is not lost.
                    self._pause_or_give_up(error, tenure)
        self._try_report("stopped")

    def _serve(self, tenure: DriverSession) -> None:
        # A reprocess may have been cut short between its swap and the move of its checkpoint.
        promote(self._options.checkpoint, tenure.ledger.checkpoint_id())
        ended = False
        while not ended and not self._stopping.is_set():
            self._sit_out_pause(tenure)
            ended = self._stopping.is_set() or self._run_query(tenure)
        self._report(tenure, "stopped" if self._stopping.is_set() else "finished")

    def _sit_out_pause(self, tenure: DriverSession) -> None:
        while (orders := tenure.orders()).paused and not self._stopping.is_set():
            if self._options.once:
                self._report(tenure, "stopped")
                raise PipelinePausedError(_paused(self.pipeline.name, orders))
            self._report(tenure, "paused")
            self._stopping.wait(WATCH_SECONDS)

    def _run_query(self, tenure: DriverSession) -> bool:
        """Run the query until it must end. Returns True where it came to its own end."""
        query = QueryRun(
            self._spark,
            tenure,
            self._options.checkpoint,
            self._committed,
            once=self._options.once,
            rebind=self._options.rebind,
        )
        try:
            query.start()
            self._report(tenure, "running")
            while not query.await_end(WATCH_SECONDS):
                self._report(tenure, "running")
                tenure.record(query.progress.take())
                if tenure.orders().paused or self._stopping.is_set():
                    query.end(WATCH_SECONDS)
            query.raise_failure()
            return not query.was_ended
        finally:
            query.end()
            with suppress(psycopg.Error):
                tenure.record(query.progress.take())

    def _committed(self, batch: Batch) -> None:
        self._failures, self._reason = 0, ""
        self._on_batch(batch)

    def _pause_or_give_up(self, error: Exception, tenure: DriverSession | None) -> None:
        if isinstance(error, NOT_OURS):
            raise error
        if self._stopping.is_set() and isinstance(error, Py4JNetworkError):
            return  # whoever ends this process has ended Spark's, too; nothing is lost
        self._failures += 1
        self._reason = failure_reason(error)
        # Without its Java process no Spark session can run another query.
        retryable = is_retryable(error) and not isinstance(error, Py4JNetworkError)
        if not retryable or self._failures >= self._options.max_failures or self._options.once:
            self._try_report("failed", self._reason)
            logger.error("pipeline %s failed for good: %s", self.pipeline.name, self._reason, extra=self._told())
            raise error
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (self._failures - 1), LONGEST_PAUSE_SECONDS)
        logger.warning(
            "pipeline %s tries again in %g s: %s", self.pipeline.name, pause, self._reason, extra=self._told()
        )
        self._await_next_try(pause, tenure)

    def _await_next_try(self, seconds: float, tenure: DriverSession | None) -> None:
        next_try_at = datetime.now(UTC) + timedelta(seconds=seconds)
        deadline = time.monotonic() + seconds
        self._try_report("restarting", self._reason, next_try_at=next_try_at)
        while (left := deadline - time.monotonic()) > 0 and not self._stopping.wait(min(left, WATCH_SECONDS)):
            if tenure is not None:
                with suppress(psycopg.Error):
                    tenure.report("restarting", self._reason, **self._tries(next_try_at=next_try_at))

    def _report(self, tenure: DriverSession, status: str) -> None:
        progress = as_progress(self.pipeline.source.pending(self._options.checkpoint))
        # A try that is under way is no success yet: what the last one failed of stays in sight.
        reason = self._reason if status == "running" else ""
        tenure.report(status, reason, progress, **self._tries())

    def _try_report(self, status: str, message: str = "", **tries: Any) -> None:
        try:
            name = self._tenure.ledger_name(self.pipeline)
            with connect(self._dsn, name) as conn:
                driver_status.report(conn, name, status, message, **self._tries(**tries))
        except psycopg.Error:
            return  # the database is what failed; the next start says so

    def _told(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline.name, **self._tries()}

    def _tries(self, **tries: Any) -> dict[str, Any]:
        return {"failures": self._failures, "max_failures": self._options.max_failures, **tries}


def _paused(pipeline: str, orders: DesiredState) -> str:
    return (
        f"pipeline {pipeline!r} is paused (by {orders.by}, since {orders.since:%Y-%m-%d %H:%M:%S %Z}), so it was not "
        f"run through; resume it first: manage.py pipelines resume {pipeline}"
    )

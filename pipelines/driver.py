"""The driver: the life of a pipeline's query, from taking the pipeline over to a clean stop.

A failed query is started again with a growing pause; what cannot get better by trying again ends at once. A stop is
taken at the end of a batch.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psycopg
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pipelines.check import check
from pipelines.errors import PipelineError
from pipelines.runner import BatchRunner
from pipelines.sources.source import as_progress
from pipelines.steps import connect
from pipelines.stream import Pipeline
from state_backends.catalog import Catalog
from state_backends.errors import FencedError, PipelineHeldError, TidemarkError
from state_backends.journal import roster
from state_backends.journal.ledger import Batch, BatchLedger
from state_backends.synchronizer.errors import SynchronizerError
from state_backends.synchronizer.membership import Membership

# Between two looks at the query, and so the delay of the dashboard's lag; also how fast a stop is taken.
WATCH_SECONDS = 0.5
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
PATIENCE_MS = 3_000  # with the session of a driver that was killed a moment ago
MAX_FAILURES = 8  # in a row, without a batch committed between: about three minutes of trying

OnBatch = Callable[[Batch], object]


@dataclass(frozen=True)
class RunOptions:
    """checkpoint: Spark's folder for this pipeline. once: run through the input there is, then end.
    rebind: accept another checkpoint than the states were fed from."""

    checkpoint: Path
    once: bool = False
    rebind: bool = False


class Driver:
    """Drives one pipeline until it is stopped, has finished, or has failed.

    spark: a session. dsn: the database, for this process and the executors.
    """

    def __init__(
        self, pipeline: Pipeline, spark: SparkSession, dsn: str, options: RunOptions, on_batch: OnBatch | None = None
    ) -> None:
        self.pipeline = pipeline
        self._spark = spark
        self._dsn = dsn
        self._options = options
        self._on_batch = on_batch or (lambda batch: None)
        self._stopping = threading.Event()
        self._failures = 0

    def stop(self) -> None:
        """Ask for an end after the batch at hand. Safe to call from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Run until stopped, or through the input with `once`.

        Raises TidemarkError, or what Spark or the database raised, when the pipeline has failed for good.
        """
        check(self.pipeline, self._spark)
        while not self._stopping.is_set():
            try:
                with Tenure(self.pipeline, self._dsn) as tenure:
                    self._serve(tenure)
                return
            except Exception as error:
                self._pause_or_give_up(error)
        self._try_report("stopped", "")

    def _serve(self, tenure: "Tenure") -> None:
        query = _Query(self._spark, tenure, self._options, self._committed)
        try:
            query.start()
            tenure.report("running")
            while not query.await_end(WATCH_SECONDS):
                tenure.report("running", progress=as_progress(self.pipeline.source.pending(self._options.checkpoint)))
                if self._stopping.is_set():
                    query.stop()
            query.raise_failure()
        finally:
            query.stop()
        progress = as_progress(self.pipeline.source.pending(self._options.checkpoint))
        tenure.report("stopped" if self._stopping.is_set() else "finished", progress=progress)

    def _committed(self, batch: Batch) -> None:
        self._failures = 0
        self._on_batch(batch)

    def _pause_or_give_up(self, error: Exception) -> None:
        self._failures += 1
        reason = failure_reason(error)
        if isinstance(error, PipelineHeldError | FencedError):
            raise error  # the roster is the other driver's now
        if not _may_pass(error) or self._failures >= MAX_FAILURES or self._options.once:
            self._try_report("failed", reason)
            raise error
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (self._failures - 1), LONGEST_PAUSE_SECONDS)
        self._try_report("restarting", f"in {pause:.0f} s, after failure {self._failures}: {reason}")
        self._stopping.wait(pause)

    def _try_report(self, status: str, message: str) -> None:
        try:
            with connect(self._dsn, self.pipeline.name) as conn:
                roster.report(conn, self.pipeline.name, status, message)
        except psycopg.Error:
            return  # the database is what failed; the next start says so


class Tenure:
    """The time in which this process holds a pipeline: its lock, its fence, its states registered, its membership.

    A context manager. Raises PipelineHeldError while another driver lives, SpecMismatchError where the states differ.
    """

    def __init__(self, pipeline: Pipeline, dsn: str) -> None:
        self.pipeline = pipeline
        self.dsn = dsn
        self._membership: Membership | None = None

    def __enter__(self) -> "Tenure":
        name = self.pipeline.name
        self.conn = connect(self.dsn, name)
        try:
            # The ledger's connection belongs to the thread that runs the batches.
            self._reports = connect(self.dsn, f"{name} reports")
            catalog = Catalog(self.conn)
            catalog.install()
            catalog.register_pipeline(name, spout=self.pipeline.source.spout, description=self.pipeline.description)
            self.ledger = BatchLedger(self.conn, name)
            self.ledger.acquire(patience_ms=PATIENCE_MS)
            catalog.register_states(name, self.pipeline.specs, self.pipeline.guarantees, self._report_copied)
            self._join()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.conn.close()
        if self._membership is not None:
            # Where the database is what failed, the silence says the same.
            with suppress(SynchronizerError, psycopg.Error):
                self._membership.leave()
        if hasattr(self, "_reports"):
            self._reports.close()

    def report(self, status: str, message: str = "", progress: dict[str, object] | None = None) -> None:
        roster.report(self._reports, self.pipeline.name, status, message, progress)
        # For people to look at: whatever is wrong with the members' log, the pipeline goes on.
        if self._membership is not None:
            with suppress(SynchronizerError):
                self._membership.heartbeat()

    def _report_copied(self, state: str, rows: int) -> None:
        self.report("starting", f"migrating state {state!r}: {rows} rows copied")

    def _join(self) -> None:
        with suppress(SynchronizerError):
            membership = Membership(self._reports, "driver", self.pipeline.name)
            membership.join()
            self._membership = membership


class _Query:
    """Spark's streaming query over a batch runner, stopped between batches only."""

    def __init__(self, spark: SparkSession, tenure: Tenure, options: RunOptions, on_batch: OnBatch) -> None:
        self._runner = BatchRunner(tenure.pipeline, tenure.ledger, tenure.conn, tenure.dsn, options.checkpoint)
        self._spark = spark
        self._tenure = tenure
        self._options = options
        self._on_batch = on_batch
        self._query: StreamingQuery | None = None
        self._bound = threading.Event()
        self._in_batch = threading.Lock()
        self._failure: Exception | None = None
        self._stopped = False

    def start(self) -> None:
        source = self._tenure.pipeline.source
        writer = (
            source.load(self._spark)
            .writeStream.queryName(f"{self._tenure.pipeline.name}-{time.time_ns()}")
            .option("checkpointLocation", str(self._options.checkpoint))
            .foreachBatch(self._run_batch)
        )
        self._query = (writer.trigger(availableNow=True) if self._options.once else writer).start()
        # Spark's thread is under way already; its first batch waits for this.
        self._bind(self._query.id)

    def await_end(self, seconds: float) -> bool:
        assert self._query is not None
        try:
            return bool(self._query.awaitTermination(seconds))  # type: ignore[arg-type]
        except PySparkException as error:
            if not self._stopped:
                self._failure = self._failure or error
            return True

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        if self._query is None:
            return
        self._bound.set()
        with self._in_batch:
            self._stopped = True
            self._query.stop()

    def _bind(self, checkpoint_id: str) -> None:
        try:
            self._tenure.ledger.bind(checkpoint_id, rebind=self._options.rebind)
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._bound.set()

    def _run_batch(self, frame: DataFrame, batch_id: int) -> None:
        self._bound.wait()
        # Held by stop() alone: batches come one after the other.
        if self._failure is not None or not self._in_batch.acquire(blocking=False):
            raise PipelineError(f"pipeline {self._tenure.pipeline.name!r}: stopping, so batch {batch_id} must wait")
        try:
            batch = self._runner.run(frame, batch_id)
            if batch is not None:
                self._on_batch(batch)
        except Exception as error:
            # Spark wraps what happens here into a text; the driver wants to know what it was.
            self._failure = error
            raise
        finally:
            self._in_batch.release()


def failure_reason(error: Exception) -> str:
    """Return the line of an error that a person wants to read first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("state_backends.", "pipelines.", "psycopg."))]
    return (telling[-1] if telling else lines[0] if lines else type(error).__name__)[:500]


def _may_pass(error: Exception) -> bool:
    """Tell whether trying again can help: not where a declaration or the input is wrong, nor where Spark is gone."""
    return not isinstance(error, TidemarkError | Py4JNetworkError)

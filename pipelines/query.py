"""What Spark measured of each batch, kept until somebody writes it down.

Spark shows a query's latest progress and forgets older ones. So it is looked at before each batch and twice a second:
none is missed, however fast they come. An idle query's progress belongs to no batch and is left out.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from pipelines.batch import BatchRunner
from pipelines.driver_session import DriverSession
from pipelines.errors import PipelineError
from state_backends.ledger import Batch

# Spark's names for the parts of a trigger, in milliseconds.
DURATIONS = (
    "triggerExecution",
    "latestOffset",
    "getBatch",
    "queryPlanning",
    "walCommit",
    "addBatch",
    "commitOffsets",
    "commitBatch",
)


class ProgressLog:
    """The measured batches of one streaming query. One thread runs batches, another may take what has come in."""

    def __init__(self) -> None:
        self._awaited: dict[int, Batch] = {}
        self._measured: deque[tuple[Batch, dict[str, Any]]] = deque()

    def expect(self, batch_id: int, batch: Batch) -> None:
        """Say that Spark's batch `batch_id` was applied as `batch`; its progress is yet to come."""
        self._awaited[batch_id] = batch

    def look(self, query: StreamingQuery) -> bool:
        """Take in what the query shows. Returns True where nothing more is awaited."""
        if self._awaited:
            last = query.lastProgress
            # Anything else is either older, so that ours is yet to come, or idle, and ours is a few before it.
            shown = [last] if last is not None and last.batchId in self._awaited else query.recentProgress
            for progress in shown:
                batch = self._awaited.pop(progress.batchId, None) if _has_run(progress) else None
                if batch is not None:
                    self._measured.append((batch, metrics(progress)))
        return not self._awaited

    def take(self) -> Iterator[tuple[Batch, dict[str, Any]]]:
        """Hand over what was measured and not taken yet."""
        while self._measured:
            yield self._measured.popleft()


def metrics(progress: StreamingQueryProgress) -> dict[str, Any]:
    """Return what is kept of a progress: durations of a trigger's parts in ms, rows, rates per second."""
    rates = {
        "input_rows_per_second": progress.inputRowsPerSecond,
        "processed_rows_per_second": progress.processedRowsPerSecond,
    }
    return {
        "duration_ms": {part: progress.durationMs[part] for part in DURATIONS if part in progress.durationMs},
        "input_rows": progress.numInputRows,
        # The first batch has no rate: nothing came before it.
        **{name: rate for name, rate in rates.items() if rate is not None and math.isfinite(rate)},
    }


def _has_run(progress: StreamingQueryProgress) -> bool:
    return "addBatch" in progress.durationMs


# One run of a pipeline's streaming query: bound to its checkpoint, fed batch by batch, ended between two of them.


OnBatch = Callable[[Batch], object]

# For Spark to note in its checkpoint that a batch is done, which takes milliseconds; one that it has not noted comes
# again at the next start, and is then counted anew unless its source is transactional.
NOTE_SECONDS = 5.0
LOOK_SECONDS = 0.02


class QueryRun:
    """Spark's streaming query over a batch runner.

    once: run through the input there is, then end. rebind: accept another checkpoint than the states were fed from.
    on_batch: told each batch when it is committed, in Spark's thread.
    """

    def __init__(
        self,
        spark: SparkSession,
        tenure: DriverSession,
        checkpoint: Path,
        on_batch: OnBatch,
        *,
        once: bool,
        rebind: bool,
    ) -> None:
        self.progress = ProgressLog()
        self._runner = BatchRunner(
            tenure.pipeline, tenure.ledger, tenure.conn, tenure.dsn, checkpoint, shadow=tenure.shadow
        )
        self._spark = spark
        self._tenure = tenure
        self._checkpoint = checkpoint
        self._on_batch = on_batch
        self._once = once
        self._rebind = rebind
        self._query: StreamingQuery | None = None
        self._bound = threading.Event()
        self._in_batch = threading.Lock()
        self._failure: Exception | None = None
        self._ending = False

    @property
    def was_ended(self) -> bool:
        """True where it was told to end, False where it came to its own end."""
        return self._ending

    def start(self) -> None:
        source = self._tenure.pipeline.source
        writer = (
            source.load(self._spark)
            .writeStream.queryName(f"{self._tenure.pipeline.name}-{time.time_ns()}")
            .option("checkpointLocation", str(self._checkpoint))
            .foreachBatch(self._run_batch)
        )
        self._query = (writer.trigger(availableNow=True) if self._once else writer).start()
        # Spark's thread is under way already; its first batch waits for this.
        self._bind(self._query.id)

    def await_end(self, seconds: float) -> bool:
        """Wait so long for the query's end, and take in what it measured. Returns True once it has ended."""
        assert self._query is not None
        try:
            ended = bool(self._query.awaitTermination(seconds))  # type: ignore[arg-type]
        except PySparkException as error:
            if not self._ending:
                self._failure = self._failure or error
            return True
        self.progress.look(self._query)
        return ended

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def end(self, seconds: float = -1) -> None:
        """Let no batch begin any more, and stop the query if the one at hand ends within so many seconds (-1: any)."""
        self._ending = True
        self._bound.set()
        if self._query is not None and self._in_batch.acquire(timeout=seconds):
            try:
                self._await_note(self._query)
                self._query.stop()
            finally:
                self._in_batch.release()

    def _await_note(self, query: StreamingQuery) -> None:
        deadline = time.monotonic() + NOTE_SECONDS
        while not self.progress.look(query) and query.isActive and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)

    def _bind(self, checkpoint_id: str) -> None:
        try:
            self._tenure.ledger.bind(checkpoint_id, rebind=self._rebind)
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._bound.set()

    def _run_batch(self, frame: DataFrame, batch_id: int) -> None:
        self._bound.wait()
        # Held by end() alone: batches come one after the other.
        if self._failure is not None or self._ending or not self._in_batch.acquire(blocking=False):
            raise PipelineError(f"pipeline {self._tenure.pipeline.name!r}: stopping, so batch {batch_id} must wait")
        try:
            self._apply(frame, batch_id)
        except Exception as error:
            # Spark wraps what happens here into a text; the driver wants to know what it was.
            self._failure = error
            raise
        finally:
            self._in_batch.release()

    def _apply(self, frame: DataFrame, batch_id: int) -> None:
        assert self._query is not None
        # Before this batch's figures take the place of the last one's.
        self.progress.look(self._query)
        batch = self._runner.run(frame, batch_id)
        if batch is not None:
            self.progress.expect(batch_id, batch)
            self._on_batch(batch)

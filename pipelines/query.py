"""One run of a pipeline's streaming query: bound to its checkpoint, fed batch by batch, ended between two of them."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pipelines.errors import PipelineError
from pipelines.progress import ProgressLog
from pipelines.runner import BatchRunner
from pipelines.tenure import Tenure
from state_backends.journal.ledger import Batch

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
        self, spark: SparkSession, tenure: Tenure, checkpoint: Path, on_batch: OnBatch, *, once: bool, rebind: bool
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

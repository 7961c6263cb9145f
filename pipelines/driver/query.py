"""QueryRun: one run of a pipeline's streaming query.

It is bound to its checkpoint, processes batch by batch, and ends between two batches.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tidegauge.pipelines.batch.runner import BatchRunner
from tidegauge.pipelines.checkpoint.disk import set_aside_torn, set_aside_unplanned
from tidegauge.pipelines.checkpoint.files import CheckpointPath, StorePath, as_location
from tidegauge.pipelines.checkpoint.folder import batch_offsets, fit_ticks, last_committed
from tidegauge.pipelines.driver.progress import ProgressLog
from tidegauge.pipelines.driver.session import DriverSession
from tidegauge.pipelines.errors import InputLostError, PipelineError
from tidegauge.pipelines.sources.source import ListedSource, Source
from tidegauge.pipelines.spark.conf import keep_limits_to_the_end, manage_files_of_stores
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.ledger.source_input import Identity

OnBatch = Callable[[Batch], object]

# Spark notes in its checkpoint that a batch is done, which takes milliseconds. A batch without that note is replayed at
# the next start, and then applied again unless its source is transactional.
COMMIT_LOG_SECONDS = 5.0
POLL_SECONDS = 0.02


class StoppingError(PipelineError):
    """Spark began a batch while the query is being stopped: it is read at the next start."""


def _is_failure(record: logging.LogRecord) -> bool:
    if record.exc_info and isinstance(record.exc_info[1], StoppingError):
        return False
    # As text, where it comes from Java.
    return StoppingError.__name__ not in (getattr(record, "exception", None) or "")


# py4j and Spark log whatever foreachBatch raises, with its traceback; a stop is no failure.
for _name in ("py4j.clientserver", "spark.MicroBatchExecution"):
    logging.getLogger(_name).addFilter(_is_failure)


class QueryRun:
    """Spark's streaming query over a batch runner.

    trigger: as Spark's `trigger` takes it; empty: batch after batch. rebind: accept a checkpoint other than the one
    that fed the states. on_batch: called with each batch after its commit, in Spark's thread. waiting: sources that no
    new batch reads.
    """

    def __init__(
        self,
        spark: SparkSession,
        session: DriverSession,
        checkpoint: CheckpointPath,
        on_batch: OnBatch,
        *,
        trigger: Mapping[str, Any],
        rebind: bool,
        waiting: Collection[Source] = (),
    ) -> None:
        self.progress = ProgressLog()
        self._runner = BatchRunner(
            session.pipeline, session.ledger, session.conn, session.dsn, checkpoint, shadow=session.shadow
        )
        self._spark = spark
        self._session = session
        self._checkpoint = checkpoint
        self._on_batch = on_batch
        self._trigger = trigger
        self._waiting = waiting
        self._rebind = rebind
        self._query: StreamingQuery | None = None
        self._bound = threading.Event()
        self._in_batch = threading.Lock()
        self._failure: Exception | None = None
        self._ending = False

    @property
    def was_ended(self) -> bool:
        """True if `end` was called, False if the query ended by itself."""
        return self._ending

    def start(self) -> None:
        source = self._session.pipeline.source
        frame = source.load(self._spark, self._waiting)
        identities = source.identities()
        if not self._rebind:
            # Because Spark would only find wrong offsets in a source that was replaced, and advise to ignore them.
            self._session.ledger.check_sources(identities)
        set_aside_torn(self._checkpoint)
        if self._waiting:
            places = enumerate(self._session.pipeline.sources)
            listed = [place for place, each in places if each in self._waiting and isinstance(each, ListedSource)]
            set_aside_unplanned(self._checkpoint, listed)
            keep_limits_to_the_end(self._spark)
        if isinstance(self._checkpoint, StorePath):
            manage_files_of_stores(self._spark)
        has_ticks = self._session.pipeline.ticks is not None
        fit_ticks(self._checkpoint, len(self._session.pipeline.sources) - has_ticks, ticks=has_ticks)
        if has_ticks:
            self._runner.look_ahead(self._session.committed_batch())
            self.ask_if_idle()
        writer = (
            frame.writeStream.queryName(f"{self._session.pipeline.name}-{time.time_ns()}")
            .option("checkpointLocation", as_location(self._checkpoint))
            .foreachBatch(self._run_batch)
        )
        self._query = (writer.trigger(**self._trigger) if self._trigger else writer).start()
        # Only now, because a new query has no id before. Spark's thread already runs; its first batch waits for this.
        self._bind(self._query.id, identities)

    def await_end(self, seconds: float) -> bool:
        """Wait at most `seconds` for the query's end, and collect its progress. Returns True once it has ended."""
        assert self._query is not None
        try:
            ended = bool(self._query.awaitTermination(seconds))  # type: ignore[arg-type]
        except PySparkException as error:
            if not self._ending:
                self._failure = self._failure or error
            return True
        self.progress.collect(self._query)
        return ended

    def ask_if_idle(self) -> None:
        """Request a batch without input if a timer is due and no batch runs."""
        if self._session.pipeline.ticks is not None and not self._in_batch.locked():
            self._runner.idle.ask(self._session.clock())

    def raise_failure(self) -> None:
        """Raise what failed in a batch or in Spark, if anything did."""
        if self._failure is not None:
            raise self._input_lost() or self._failure

    def _input_lost(self) -> InputLostError | None:
        """Return an error that names the lost input, if a source reports it; Spark's own error would name a setting."""
        done = last_committed(self._checkpoint)
        if isinstance(self._failure, TidegaugeError) or self._session.shadow or done is None:
            return None
        offsets, name = batch_offsets(self._checkpoint, done), self._session.pipeline.name
        with suppress(Exception):  # a source that does not answer explains nothing
            for _, lost in self._session.pipeline.source.check_from(offsets, lambda _: (), lambda: self._spark):
                if lost is not None and lost.gaps:
                    return InputLostError(
                        f"pipeline {name!r}: {lost}; run `tidegauge pipelines skip-lost {name}` to go on without them "
                        f"and record the gap, or `tidegauge run {name} --reprocess --accept-shorter` to "
                        "count what is left from its start",
                        lost.gaps,
                        lost.left,
                    )
        return None

    def end(self, seconds: float = -1) -> None:
        """Start no further batch, and stop the query if the current batch ends within `seconds` (-1: no limit)."""
        self._ending = True
        # A first batch that waits for the binding must end too.
        self._bound.set()
        if self._query is not None and self._in_batch.acquire(timeout=seconds):
            try:
                self._await_commit_log(self._query)
                self._query.stop()
            finally:
                self._in_batch.release()

    def close(self) -> None:
        """End the query, and drop the reference to it.

        Spark's side of the callback refers to this object. If this object still referred to the query, neither side's
        garbage collector could free them: 2 MB of the driver's memory per query that was ever run.
        """
        self.end()
        self._query = None

    def _await_commit_log(self, query: StreamingQuery) -> None:
        # Progress shows that the note is written, because Spark reports a batch's progress only after that.
        deadline = time.monotonic() + COMMIT_LOG_SECONDS
        while not self.progress.collect(query) and query.isActive and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _bind(self, checkpoint_id: str, identities: Sequence[Identity]) -> None:
        try:
            self._session.ledger.bind(checkpoint_id, sources=identities, rebind=self._rebind)
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._bound.set()

    def _run_batch(self, frame: DataFrame, batch_id: int) -> None:
        self._bound.wait()
        # Not waited for: only end() can hold the lock here, because Spark runs one batch after the other.
        if self._failure is not None or self._ending or not self._in_batch.acquire(blocking=False):
            raise StoppingError(f"pipeline {self._session.pipeline.name!r}: stopping, so batch {batch_id} must wait")
        try:
            self._apply(frame, batch_id)
        except Exception as error:
            # Kept, because Spark turns an exception of this function into text and the driver needs the exception.
            self._failure = error
            raise
        finally:
            self._in_batch.release()

    def _apply(self, frame: DataFrame, batch_id: int) -> None:
        assert self._query is not None
        # Now, because this batch's progress will replace that of the last one.
        self.progress.collect(self._query)
        batch = self._runner.run(frame, batch_id)
        if batch is not None:
            self.progress.expect(batch_id, batch, self._runner.newest_event)
            self._on_batch(batch)

"""Application sink: feeds a pipeline from a Spark application of the user's own, as a function for foreachBatch.

The pipeline is acquired with the first batch of a query and released when the query ends. A batch runs the same code
as in our own driver (batch/runner.py). It is planned in a session of its own, so that the application's settings stay
as they are and do not change the result.
"""

import atexit
import logging
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import psycopg
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame

from tidegauge.pipelines.batch.runner import BatchRunner
from tidegauge.pipelines.checkpoint.folder import last_batch, note_batch
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.check import check
from tidegauge.pipelines.driver.progress import ProgressLog
from tidegauge.pipelines.driver.running_query import NO_CONNECT, RunningQuery, active, batch_session
from tidegauge.pipelines.driver.session import DriverSession
from tidegauge.pipelines.errors import PipelineError, failure_reason
from tidegauge.pipelines.sources.pending import as_progress
from tidegauge.pipelines.sources.source import GivenSource
from tidegauge.pipelines.spark.conf import BATCH_SETTINGS
from tidegauge.pipelines.spark.java_classes import keep_classes
from tidegauge.pipelines.spark.session import in_session, is_local, ship
from tidegauge.state_backends.errors import CheckpointMismatchError, FencedError, TidegaugeError
from tidegauge.state_backends.ledger.batch_time import BatchClock, max_skew
from tidegauge.state_backends.spec.state_spec import StateSpec

# As in our driver: the time between two reports, and how fast a pause or the query's end is noticed.
WATCH_SECONDS = 0.5

_shipped: set[str] = set()  # the Spark applications whose executors have our package

logger = logging.getLogger(__name__)


def sink(
    pipeline: Pipeline | str,
    states: Sequence[StateSpec] = (),
    dsn: str | None = None,
    *,
    rebind: str | None = None,
    accept_gap: bool = False,
) -> "ApplicationSink":
    """Return a function for `foreachBatch` that counts each batch of a streaming query exactly once.

    pipeline: one whose streams begin with Stream.given; or a name, with the states to feed: each is grouped by its key
    columns, which the DataFrame must have. dsn: the database, default `DATABASE_URL`.
    rebind: the id of one other checkpoint from which the states may be fed, if its query continues exactly where they
    stopped. accept_gap: feed a state or measure again although batches were committed without it.
    The function raises what a driver raises, which Spark shows in its StreamingQueryException. Call it exactly
    once per batch: unite several DataFrames of a batch, and give `frame.limit(0)` if a batch has nothing to count.
    Raises PipelineError if the pipeline has other sources, if there is no database, and for states with a Pipeline.
    """
    if isinstance(pipeline, str):
        rows = Stream.given()
        feeds = [rows.group_by(*spec.key).persistent_aggregate(spec) for spec in states]
        pipeline = Pipeline(pipeline, feeds)
    elif states:
        raise PipelineError(f"pipeline {pipeline.name!r}: declares its states itself; leave out the list of states")
    if len(pipeline.sources) > 1 or not isinstance(pipeline.sources[0], GivenSource):
        found = ", ".join(map(str, pipeline.sources))
        raise PipelineError(
            f"pipeline {pipeline.name!r}: reads {found}, but a sink gets the rows of one DataFrame; begin all of its "
            "streams with the same Stream.given(), or run it with `tidegauge run`"
        )
    dsn = dsn or os.environ.get("DATABASE_URL")
    if not dsn:
        raise PipelineError(
            f"pipeline {pipeline.name!r}: no database; pass dsn or set DATABASE_URL (`tidegauge.ensure_servers()` "
            "starts one of its own)"
        )
    return ApplicationSink(pipeline, dsn, rebind, accept_gap)


class ApplicationSink:
    """The function that `sink` returns. It serves one query at a time, which may be stopped and started again."""

    def __init__(self, pipeline: Pipeline, dsn: str, rebind: str | None, accept_gap: bool) -> None:
        self.pipeline = pipeline
        self.dsn = dsn
        self.rebind = rebind
        self.accept_gap = accept_gap
        self.clock = BatchClock(max_skew())
        self._in_batch = threading.Lock()
        self._run: ApplicationRun | None = None
        atexit.register(self._exit)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        query = RunningQuery.of(frame)
        # Locked, because a batch of a run that was stopped may still be running here.
        with self._in_batch:
            run = self._run_of(query, frame)
            try:
                run.apply(frame, batch_id)
            except Exception as error:
                run.failure = error
                raise

    def __reduce__(self) -> NoReturn:
        raise PipelineError(f"pipeline {self.pipeline.name!r}: {NO_CONNECT}")

    def end(self, run: "ApplicationRun") -> None:
        """Release the pipeline once a query has ended, unless another one has begun since."""
        with self._in_batch:
            if self._run is run:
                self._release()

    def _run_of(self, query: RunningQuery, frame: DataFrame) -> "ApplicationRun":
        run = self._run
        if run is not None and run.query.query_id != query.query_id and run.query.is_active:
            raise PipelineError(
                f"pipeline {self.pipeline.name!r}: query {query.query_id!r} calls the sink of query "
                f"{run.query.query_id!r} (checkpoint {str(run.query.checkpoint)!r}), which is running; a pipeline has "
                "one query: give this one a sink of its own, with another pipeline name and other states, or unite "
                "the two DataFrames"
            )
        if run is not None and (run.query.run_id != query.run_id or not run.holds_pipeline()):
            self._release()
        if self._run is None:
            newest = run.newest if run is not None and run.query.run_id == query.run_id else None
            self._run = ApplicationRun(self, query, frame, newest)
        return self._run

    def _release(self) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.close()

    def _exit(self) -> None:
        # A running batch is not waited for, because the next start reverts it.
        if self._in_batch.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._in_batch.release()


class ApplicationRun:
    """One run of the application's query: holds the pipeline, runs its batches, reports twice a second.

    failure: the error of the last batch, or that another driver has taken over. newest: the last batch of this run of
    the query; None before the first.
    """

    def __init__(self, sink: ApplicationSink, query: RunningQuery, frame: DataFrame, newest: int | None) -> None:
        self.query = query
        self.newest = newest
        self.failure: Exception | None = None
        self._sink = sink
        self._ended = threading.Event()
        self._progress = ProgressLog()
        self._spark = batch_session(frame, BATCH_SETTINGS)
        with active(self._spark):
            self._check(frame)
        last = last_batch(query.checkpoint, sink.pipeline.name)
        self._session = DriverSession(sink.pipeline, sink.dsn, sink.clock, sink.accept_gap, last)
        self._session.__enter__()
        try:
            self._bind()
            self._runner = BatchRunner(
                sink.pipeline, self._session.ledger, self._session.conn, sink.dsn, query.checkpoint
            )
            self._session.report("running")
        except BaseException as error:
            self._report_end("failed", failure_reason(error) if isinstance(error, Exception) else "")
            self._session.__exit__(None, None, None)
            raise
        threading.Thread(target=self._watch, name=f"tidegauge {sink.pipeline.name}", daemon=True).start()

    def holds_pipeline(self) -> bool:
        """Return whether the lock is still held, because the database ends a session that it has lost touch with.

        Raises FencedError once another driver has taken over.
        """
        try:
            self._session.desired_state()
        except psycopg.Error as error:
            logger.warning("pipeline %s: %s; acquiring it again", self._sink.pipeline.name, failure_reason(error))
            return False
        return True

    def apply(self, frame: DataFrame, batch_id: int) -> None:
        """Apply one micro-batch and commit it; wait before it while the pipeline is paused.

        Raises PipelineError if the application called the sink twice with a batch, or left a batch out.
        """
        self._check_turn(batch_id)
        self._wait_while_paused(batch_id)
        # Now, because this batch's progress will replace that of the last one.
        self._progress.collect(self.query.streaming)
        with active(self._spark):
            batch = self._runner.run(in_session(frame, self._spark), batch_id)
        self.newest = batch_id
        if batch is not None:
            self._progress.expect(batch_id, batch, self._runner.newest_event)
            note_batch(self.query.checkpoint, batch)

    def close(self) -> None:
        """Release the pipeline and say how the query ended."""
        self._ended.set()
        reason = failure_reason(self.failure) if self.failure else self.query.failure()
        done = "finished" if self.query.ends_with_input else "stopped"
        self._report_end("failed" if reason else done, reason)
        self._session.__exit__(None, None, None)

    def _check_turn(self, batch_id: int) -> None:
        """Raise PipelineError unless batches come one after the other and once each, as Spark gives them to a run."""
        if self.newest is None or batch_id == self.newest + 1:
            return
        name = self._sink.pipeline.name
        if batch_id == self.newest:
            raise PipelineError(
                f"pipeline {name!r}: the sink was called twice with batch {batch_id}, and the second call would "
                "replace the first, as a replayed batch does; unite the DataFrames "
                "(`a.unionByName(b, allowMissingColumns=True)`) and call the sink once, or give each DataFrame a sink "
                "of its own, with another pipeline name"
            )
        raise PipelineError(
            f"pipeline {name!r}: the sink was called with batch {batch_id} after batch {self.newest}, so those between "
            f"them are not counted; call it with every batch, with `frame.limit(0)` if there is nothing to count; "
            f"first run `tidegauge pipelines restore-checkpoint {name}`, which takes the checkpoint back to batch "
            f"{self.newest}, so that what followed is read again"
        )

    def _check(self, frame: DataFrame) -> None:
        name, mode = self._sink.pipeline.name, self.query.output_mode
        if mode.casefold() == "complete":
            raise PipelineError(
                f"pipeline {name!r}: output mode {mode!r} repeats every row of the result in each batch, so "
                'each would be counted again; use outputMode("append"), and let the states aggregate'
            )
        [source] = self._sink.pipeline.sources
        assert isinstance(source, GivenSource)
        keep_classes(self._spark.sparkContext._jvm)
        check(self._sink.pipeline, self._spark, source.parse_given(frame).rows.schema)
        context = self._spark.sparkContext
        if not is_local(str(context.master)):
            _ship_once(context)

    def _bind(self) -> None:
        ledger, query = self._session.ledger, self.query
        try:
            ledger.bind(query.query_id, rebind=self._sink.rebind == query.query_id)
        except CheckpointMismatchError as error:
            name = self._sink.pipeline.name
            raise CheckpointMismatchError(
                f"{str(error).partition('; ')[0]}; start the query with the folder of checkpoint "
                f"{ledger.checkpoint_id()!r} in place of {str(query.checkpoint)!r}, or rebuild that with `tidegauge "
                f"pipelines restore-checkpoint {name} --checkpoint FOLDER`, or pass rebind={query.query_id!r} to the "
                "sink if the source continues exactly where they stopped, or give pipeline and states other names to "
                "count from the input's start"
            ) from None

    def _wait_while_paused(self, batch_id: int) -> None:
        while self._session.desired_state().paused:
            self._session.report("paused")
            if self._ended.wait(WATCH_SECONDS) or not self.query.is_active:
                name = self._sink.pipeline.name
                raise PipelineError(f"pipeline {name!r}: stopped while paused, so batch {batch_id} must wait")

    def _watch(self) -> None:
        while not self._ended.wait(WATCH_SECONDS):
            if not self.query.is_active:
                self._sink.end(self)
                return
            self._follow()

    def _follow(self) -> None:
        try:
            self._session.record(self._progress.take())
            if not self._session.desired_state().paused:
                self._session.report("running", progress=as_progress(self._progress.pending))
        except FencedError as error:
            self.failure = error  # the next batch raises it
        except (psycopg.Error, TidegaugeError):
            return  # the next batch finds out whether the pipeline is still held

    def _report_end(self, status: str, reason: str) -> None:
        if isinstance(self.failure, FencedError):
            return  # the status is another driver's
        # Errors are ignored, because the next start reports if Spark or the database does not answer now.
        with suppress(psycopg.Error, TidegaugeError, Py4JError, OSError):
            self._progress.collect(self.query.streaming)
            self._session.record(self._progress.take())
            self._session.report(status, reason)


def _ship_once(context: SparkContext) -> None:
    if context.applicationId not in _shipped:
        ship(context)
        _shipped.add(str(context.applicationId))

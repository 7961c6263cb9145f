"""RunningQuery: the streaming query of an application that a batch belongs to, as Spark knows it.

foreachBatch gets only rows and a number. Spark keeps the id of their query as a local property of the thread, and the
query itself, which knows its checkpoint, in a table of active queries that all sessions share, in Spark 3.5 and later.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tidegauge.pipelines.checkpoint.files import CheckpointPath, checkpoint_folder
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.spark.java_classes import java_class

QUERY_ID = "sql.streaming.queryId"

# Spark's triggers that end with the input.
BOUNDED = ("AvailableNow", "OneTime")


@dataclass(frozen=True)
class RunningQuery:
    """A run of a streaming query.

    query_id: Spark's id of its checkpoint. run_id: the id of this run. ends_with_input: whether its trigger is bounded.
    """

    query_id: str
    run_id: str
    checkpoint: CheckpointPath
    ends_with_input: bool
    execution: Any  # Spark's StreamExecution, which has what a StreamingQuery shows

    @classmethod
    def of(cls, frame: DataFrame) -> "RunningQuery":
        """Return the query that calls foreachBatch with this DataFrame, in the thread of the call.

        Raises PipelineError if there is none, and in Spark Connect.
        """
        if not hasattr(frame, "_jdf"):
            raise PipelineError(NO_CONNECT)
        session = frame.sparkSession
        query_id = session.sparkContext.getLocalProperty(QUERY_ID)
        execution = None if query_id is None else _active_queries(session).get(_uuid(session, query_id))
        if query_id is None or execution is None:
            raise PipelineError(
                "a sink was called outside of a streaming query, so its rows belong to no batch that could be "
                "replayed; give it to foreachBatch of a writeStream"
            )
        checkpoint = checkpoint_folder(execution.resolvedCheckpointRoot())
        ends_with_input = str(execution.trigger().toString()).startswith(BOUNDED)
        return cls(query_id, execution.runId().toString(), checkpoint, ends_with_input, execution)

    @property
    def is_active(self) -> bool:
        try:
            return bool(self.execution.isActive())
        except (Py4JError, OSError):  # Spark has been stopped
            return False

    @property
    def streaming(self) -> StreamingQuery:
        """The query with its progress, as Python shows it."""
        return StreamingQuery(self.execution)

    @property
    def output_mode(self) -> str:
        return str(self.execution.outputMode().toString())

    def failure(self) -> str:
        """Return why the query failed; empty if it did not."""
        try:
            error = self.execution.exception()
            return str(error.get().message()) if error.isDefined() else ""
        except (Py4JError, OSError):
            return ""


NO_CONNECT = (
    "tidegauge.sink needs a Spark session in the application's own process: Spark Connect sends the function of "
    "foreachBatch to another process, where no batch could be reverted or fenced; run the application with "
    "spark-submit or a local session, or write its pipeline with Stream.read and run it with `tidegauge run`"
)


def batch_session(frame: DataFrame, settings: Mapping[str, str]) -> SparkSession:
    """Return a copy of a frame's session, with its tables, functions and settings, overridden by these settings."""
    session = SparkSession(frame.sparkSession.sparkContext, frame.sparkSession._jsparkSession.cloneSession())
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Make a session the active one of this thread, because Spark reads types and SQL texts by its settings."""
    assert session._jvm is not None
    sessions = SparkSession._get_j_spark_session_class(session._jvm)
    java, python = sessions.getActiveSession(), SparkSession._activeSession
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        SparkSession._activeSession = python
        if java.isDefined():
            sessions.setActiveSession(java.get())
        else:
            sessions.clearActiveSession()


def _active_queries(session: SparkSession) -> Any:
    # Not `session.streams`, because the session is a copy that the query made, and those are the queries it started.
    return session._jsparkSession.sharedState().activeStreamingQueries()


def _uuid(session: SparkSession, text: str) -> Any:
    return java_class(session.sparkContext._jvm, "java.util.UUID").fromString(text)

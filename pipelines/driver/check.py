"""Check a pipeline before it starts: every column it names exists, and every key has the state's type."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegauge.pipelines.batch.sink import emitted_columns
from tidegauge.pipelines.batch.sink_plan import rows_for
from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.frames import Frames
from tidegauge.pipelines.declare.keys import check_keys
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.rule_rows import check_steps, source_of
from tidegauge.pipelines.declare.stream import FedState, PersistentAggregate, Stream
from tidegauge.pipelines.errors import PipelineError, SparkVersionError
from tidegauge.pipelines.sources.source import DiscoveredSource, GivenSource, Source
from tidegauge.pipelines.spark.session import struct_type
from tidegauge.pipelines.spark.versions import lacks_function
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.protocols import BACKENDS


def check(pipeline: Pipeline, spark: SparkSession, given: StructType | None = None) -> None:
    """Analyse every step on no rows. Raises PipelineError naming the state and what does not fit.

    given: the columns of the rows that an application gives, if one does.
    """
    _refuse_connect(pipeline, spark)
    for spec in pipeline.specs:
        BACKENDS[spec.backend].check()
    own = frozenset(spec.name for spec in pipeline.specs)
    context = BatchContext(Batch(pipeline.name, 0, 0, 0, datetime.now(UTC)), "", own)
    columns = {source: given or _columns(source, spark) for source in pipeline.sources}
    frames = Frames(pipeline, context, {source: spark.createDataFrame([], columns[source]) for source in columns})
    for fed in pipeline.ordered:
        with _naming(f"pipeline {pipeline.name!r}, state {fed.name!r}"):
            _check_fed(fed, frames, context)
        frames.add(fed, spark.createDataFrame([], struct_type(emitted_columns(fed))))
    for stream in pipeline.watermarked:
        _check_watermark(pipeline, frames, stream)
    for stream in pipeline.rules:
        with _naming(f"pipeline {pipeline.name!r}, {stream.rule}"):
            check_steps(pipeline.name, stream, frames, frames.of(source_of(stream)))


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Raise what Spark finds wrong as PipelineError that says where it was declared."""
    try:
        yield
    except (AnalysisException, IllegalArgumentException, ParseException) as error:
        message = f"{where}: {str(error).strip().partition(chr(10))[0]}"
        if lacks_function(error):
            raise SparkVersionError(f"{message}; docs/spark-versions.md lists what later versions have") from error
        raise PipelineError(message) from error


def _columns(source: Source, spark: SparkSession) -> StructType:
    if isinstance(source, GivenSource):
        source.refuse()
    return source.schema_in(spark) if isinstance(source, DiscoveredSource) else source.schema


def _refuse_connect(pipeline: Pipeline, spark: SparkSession) -> None:
    if not hasattr(spark, "_jsparkSession"):
        raise PipelineError(
            f"pipeline {pipeline.name!r}: its Spark session is a client of Spark Connect, but a driver has to plan, "
            "revert and fence batches in the process of Spark itself; run it with a session of its own (`tidegauge "
            "run`, start_session, or spark-submit), for which SPARK_MASTER names the cluster"
        )


def _check_fed(fed: FedState, frames: Frames, context: BatchContext) -> None:
    events = frames.of(fed.stream)
    rows_for(fed, events, context).schema  # noqa: B018  asking for the schema makes Spark analyse it
    if fed.spec is not None:
        keys = fed.keys if isinstance(fed, PersistentAggregate) else {name: quoted(name) for name in fed.spec.key}
        check_keys(keys, events, fed.spec)


def _check_watermark(pipeline: Pipeline, frames: Frames, stream: Stream) -> None:
    assert stream.watermark is not None
    column, delay = stream.watermark.column, stream.watermark.delay
    events = frames.of(stream)
    found = dict(events.dtypes).get(column)
    if found != "timestamp":
        raise PipelineError(
            f"pipeline {pipeline.name!r}: watermark on {column!r}, which is {found or 'absent'}; it needs a timestamp"
        )
    try:
        events.select(F.expr(f"{quoted(column)} - interval '{delay}'")).schema  # noqa: B018
    except (AnalysisException, ParseException) as error:
        raise PipelineError(
            f"pipeline {pipeline.name!r}: watermark delay {delay!r} is not an interval, such as `1 hour`"
        ) from error

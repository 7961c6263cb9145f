"""Check a pipeline before it starts: every column it names exists, and every key has the state's type."""

from datetime import UTC, datetime

from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.batch_input import Frames
from pipelines.context import BatchContext
from pipelines.errors import PipelineError
from pipelines.pipeline import Pipeline
from pipelines.sink import emitted_columns
from pipelines.sink_plan import rows_for
from pipelines.spark import struct_type
from pipelines.state_query import check_keys
from pipelines.stream import FedState, PersistentAggregate, Stream
from state_backends.aggregators.column import quoted
from state_backends.batch import Batch
from state_backends.protocols import BACKENDS


def check(pipeline: Pipeline, spark: SparkSession) -> None:
    """Analyse every step on no rows. Raises PipelineError naming the state and what does not fit."""
    for spec in pipeline.specs:
        BACKENDS[spec.backend].check()
    own = frozenset(spec.name for spec in pipeline.specs)
    context = BatchContext(Batch(pipeline.name, 0, 0, 0, datetime.now(UTC)), "", own)
    frames = Frames(pipeline, context, {each: spark.createDataFrame([], each.schema) for each in pipeline.sources})
    for fed in pipeline.ordered:
        try:
            _check_fed(fed, frames, context)
        except (AnalysisException, IllegalArgumentException, ParseException) as error:
            message = str(error).strip().partition("\n")[0]
            raise PipelineError(f"pipeline {pipeline.name!r}, state {fed.name!r}: {message}") from error
        frames.add(fed, spark.createDataFrame([], struct_type(emitted_columns(fed))))
    for stream in pipeline.watermarked:
        _check_watermark(pipeline, frames, stream)


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
            f"pipeline {pipeline.name!r}: watermark delay {delay!r} is no interval, as `1 hour`"
        ) from error

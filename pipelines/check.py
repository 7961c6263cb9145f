"""Check a pipeline before it starts: every column it names exists, and every key has the state's type."""

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.errors import PipelineError
from pipelines.steps import SPARK_TYPES, partial_aggregates, run_steps
from pipelines.stream import Pipeline
from state_backends.spec import StateSpec

# Spark widens these without loss.
WIDENS = {("int", "bigint"), ("smallint", "int"), ("smallint", "bigint"), ("float", "double"), ("int", "double")}


def check(pipeline: Pipeline, spark: SparkSession) -> None:
    """Analyse every aggregate on no rows. Raises PipelineError naming the state and what does not fit."""
    nothing = spark.createDataFrame([], pipeline.source.schema)
    for aggregate in pipeline.aggregates:
        name = aggregate.spec.name
        try:
            events = run_steps(nothing, aggregate.stream.steps)
            partial_aggregates(events, aggregate).schema  # noqa: B018  asking for the schema makes Spark analyse it
            _check_keys(aggregate.keys, events, aggregate.spec)
        except (AnalysisException, ParseException) as error:
            message = str(error).strip().partition("\n")[0]
            raise PipelineError(f"pipeline {pipeline.name!r}, state {name!r}: {message}") from error


def _check_keys(keys: dict[str, str], events: DataFrame, spec: StateSpec) -> None:
    for name, kind in spec.key.items():
        wanted = SPARK_TYPES.get(kind, kind)
        found = events.select(F.expr(keys[name]).alias(name)).schema[name].dataType.simpleString()
        if found != wanted and (found, wanted) not in WIDENS:
            raise PipelineError(
                f"state {spec.name!r}: key {name!r} is {found} in the stream and {kind} in the state; "
                f"cast it in each(), or declare the key so"
            )

"""Whether the columns of a stream fit the key columns of a state."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import PipelineError
from pipelines.spark_types import spark_type
from state_backends.spec import StateSpec

# Spark widens these without loss.
WIDENS = {("int", "bigint"), ("smallint", "int"), ("smallint", "bigint"), ("float", "double"), ("int", "double")}


def check_keys(keys: Mapping[str, str], events: DataFrame, spec: StateSpec) -> None:
    """Raise PipelineError naming the first key column whose expression has another type than the state declares.

    keys: key column to Spark SQL expression over the stream.
    """
    for name, kind in spec.key.items():
        wanted = spark_type(kind)
        found = events.select(F.expr(keys[name]).alias(name)).schema[name].dataType.simpleString()
        if found != wanted and (found, wanted) not in WIDENS:
            raise PipelineError(
                f"state {spec.name!r}: key {name!r} is {found} in the stream and {kind} in the state; "
                f"cast it in each(), or declare the key so"
            )

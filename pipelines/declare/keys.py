"""Keys in Spark: brings each key into one canonical form, before rows are grouped, sorted or sent to tasks by key.

Spark compares what a column holds, but a store compares what the type means: two spellings of a uuid are one key. If
they were two groups, two tasks would write one row, and each would take the other's for that of an earlier attempt.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.spark.session import spark_type
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.spec.state_spec import StateSpec

# Spark widens these without loss.
WIDENS = {("int", "bigint"), ("smallint", "int"), ("smallint", "bigint"), ("float", "double"), ("int", "double")}

# Key type to the canonical form of a value; the other types have one form for each value.
CANONICAL = {
    "uuid": "lower({0})",
    # Because there are two zeros and many NaNs, and a store takes them for one zero and one NaN.
    "double precision": "CASE WHEN isnan({0}) THEN double('NaN') ELSE {0} + 0D END",
}


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
                f"cast it in each(), or declare the key with that type"
            )


def canonical_key(spec: StateSpec, keys: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return key column to the Spark SQL of its value, typed as the state's and in canonical form.

    keys: key column to Spark SQL expression; None: the columns of that name.
    """
    typed = {
        name: f"CAST({quoted(name) if keys is None else keys[name]} AS {spark_type(kind)})"
        for name, kind in spec.key.items()
    }
    return {name: CANONICAL.get(spec.key[name], "{0}").format(text) for name, text in typed.items()}


def key_columns(spec: StateSpec, keys: Mapping[str, str] | None = None) -> list[str]:
    """Return the canonical key as columns of a query, each named after its key column."""
    return [f"{text} AS {quoted(name)}" for name, text in canonical_key(spec, keys).items()]

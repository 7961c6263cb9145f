"""Partial aggregates as Spark makes them of a batch."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from tidegauge.state_backends.protocols import Aggregator


def partial(
    spark: SparkSession, aggregator: Aggregator, events: Sequence[tuple[Any, ...]], schema: str
) -> dict[str, Any]:
    """Return suffix to value, as the merge gets them: through Arrow. events: tuples of the columns of `schema`."""
    rows = spark.createDataFrame(events, schema).coalesce(1)
    expressions = [f"{expression} AS `_{suffix}`" for suffix, expression in aggregator.partial().items()]
    [row] = rows.selectExpr(*expressions).toArrow().to_pylist()
    return {suffix: row[f"_{suffix}"] for suffix in aggregator.partial()}

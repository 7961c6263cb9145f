"""Closed windows: what each window held when it closed, once per window, as a stream that can feed further states.

A batch closes a window if its watermark passes the window's end plus the allowed lateness. That watermark and the one
before are in the ledger, and tell which windows a batch closes. Nothing else is stored, because no later event enters a
closed window and a retry finds the same windows. Their rows are read after the batch has written them.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.stream import PersistentAggregate
from tidegauge.pipelines.spark.session import arrow_schema, spark_type, struct_type
from tidegauge.state_backends.spec.state_spec import StateSpec


def closed_windows(spark: SparkSession, fed: PersistentAggregate, context: BatchContext) -> DataFrame:
    """Return the rows of the windows that the batch closes. One task reads them, so that they are sorted by start."""
    assert fed.closing is not None
    spec, column, columns = fed.spec, fed.closing.column, closed_columns(fed.spec)
    start, stop = fed.closing.open_from(context.late_before), fed.closing.open_from(context.watermark)
    if stop is None or start == stop:
        return spark.createDataFrame([], struct_type(columns))
    schema = arrow_schema(columns)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            with connect(context.dsn, f"{context.batch.pipeline} {spec.name} windows") as conn:
                yield from context.session(conn, spec).values_between(column, start, stop, schema)

    return spark.range(0, 1, 1, 1).mapInArrow(read, struct_type(columns))


def closed_columns(spec: StateSpec) -> dict[str, str]:
    """Return the columns of closed windows, name to Spark type."""
    key = {name: spark_type(kind) for name, kind in spec.key.items()}
    return key | {name: spark_type(measure.result_type) for name, measure in spec.measures.items()}

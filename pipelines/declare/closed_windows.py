"""Closed windows: what windows held as they closed, each once, as a stream that feeds further states.

A window is closed by the batch whose watermark passes its end and the allowed lateness. Both that watermark and the one
before are in the ledger, so which windows a batch closes is a question of two times, and nothing is stored for it: no
later event is folded into them, and a retry finds the same ones. Their rows are read once the batch has written them.
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
    """Return the rows of the windows that the batch closes, in order of their start; one task reads them."""
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

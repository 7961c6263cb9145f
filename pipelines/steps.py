"""What a batch feeds to a state, as a DataFrame: the partial aggregates of groups, or the tuples for an updater."""

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.connection import connect
from pipelines.context import BatchContext
from pipelines.errors import PipelineError
from pipelines.homes import home
from pipelines.spark_types import arrow_schema, spark_type
from pipelines.stream import FedState, PartitionPersist, PersistentAggregate
from pipelines.tasks import MergeTask, StoreTask, Task, UpdateTask
from state_backends.aggregators.column import quoted
from state_backends.spec import StateSpec, stored_column

# Keys whose timers go off in one batch: they pass through the driver's memory.
MAX_WOKEN = 100_000
WOKEN = "woken"


def rows_for(fed: FedState, events: DataFrame, context: BatchContext) -> DataFrame:
    """Return what the tasks of a state are given."""
    if isinstance(fed, PersistentAggregate):
        return partial_aggregates(events, fed)
    return tuples_by_key(events, fed, context) if fed.spec else events


def task_for(fed: FedState, context: BatchContext, *, emits: bool) -> Task:
    """Return what those tasks do. emits: whether somebody goes on from the new values."""
    if isinstance(fed, PersistentAggregate):
        return MergeTask(fed.spec, context, arrow_schema(emitted_columns(fed)) if emits else None)
    schema = arrow_schema(fed.emits)
    if isinstance(fed.state, StateSpec):
        return UpdateTask(fed.state, fed.updater, context, schema)
    return StoreTask(fed.state, fed.updater, context, schema, fed.name)


def emitted_columns(fed: FedState) -> dict[str, str]:
    """Return the columns of a state's new values, name to Spark type."""
    if isinstance(fed, PartitionPersist):
        return fed.emits
    spec = fed.spec
    measures = {name: spark_type(aggregator.result_type) for name, aggregator in spec.measures.items()}
    before = {f"prev_{name}": kind for name, kind in measures.items()} if spec.kind == "opaque" else {}
    return {name: spark_type(kind) for name, kind in spec.key.items()} | measures | before


def partial_aggregates(events: DataFrame, aggregate: PersistentAggregate) -> DataFrame:
    """Return one row per key: key columns and partial aggregates, named and typed as the state's columns.

    In key order within each partition, where tasks lock rows before they fold.
    """
    spec = aggregate.spec
    keys = [F.expr(aggregate.keys[name]).alias(name) for name in spec.key]
    partials = [
        F.expr(expression).alias(stored_column(measure, suffix))
        for measure, aggregator in spec.measures.items()
        for suffix, expression in aggregator.partial().items()
    ]
    grouped = events.groupBy(*keys).agg(*partials).select(*_typed_key(spec), *spec.partial_columns)
    return grouped if spec.folds_in_sql or not spec.key else grouped.sortWithinPartitions(*spec.key)


def tuples_by_key(events: DataFrame, fed: PartitionPersist, context: BatchContext) -> DataFrame:
    """Return the tuples with the key typed as the state's, those of a key together and in the order asked for.

    Raises PipelineError for a key column or an order that the stream lacks.
    """
    spec = fed.spec
    assert spec is not None
    known = [*events.columns, *([WOKEN] if fed.due is not None else [])]
    for name in (*spec.key, *fed.order_by):
        if name not in known:
            raise PipelineError(f"state {spec.name!r}: the stream has no column {name!r}; there are {', '.join(known)}")
    rest = [quoted(name) for name in events.columns if name not in spec.key]
    tuples = events.select(*_typed_key(spec), *rest)
    if fed.due is not None:
        tuples = _with_woken(tuples, spec, fed.due, context)
    keyed = tuples.repartition(*spec.key) if spec.key else tuples.coalesce(1)
    return keyed.sortWithinPartitions(*spec.key, *fed.order_by) if spec.key or fed.order_by else keyed


def _typed_key(spec: StateSpec) -> list[Any]:
    return [F.col(name).cast(spark_type(kind)).alias(name) for name, kind in spec.key.items()]


def _with_woken(tuples: DataFrame, spec: StateSpec, due: str, context: BatchContext) -> DataFrame:
    tuples = tuples.withColumn(WOKEN, F.lit(False))
    if context.watermark is None:
        return tuples
    keys = _due_keys(spec, due, context)
    if not keys:
        return tuples
    schema = arrow_schema({name: spark_type(kind) for name, kind in spec.key.items()} | {WOKEN: "boolean"})
    arrays = [pa.array(part, field.type) for part, field in zip(zip(*keys, strict=True), schema, strict=True)]
    woken = tuples.sparkSession.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))
    return tuples.unionByName(woken, allowMissingColumns=True)


def _due_keys(spec: StateSpec, due: str, context: BatchContext) -> list[tuple[Any, ...]]:
    """Return the keys whose time has come. No task has written yet, so the rows that stand there are committed."""
    assert context.watermark is not None
    with connect(context.dsn, f"{context.batch.pipeline} {spec.name} timers") as conn:
        keys = home(context, conn, spec).due_keys(due, context.watermark, MAX_WOKEN)
        return [(*map(_plain, key), True) for key in keys]


def _plain(part: Any) -> Any:
    return str(part) if type(part).__name__ == "UUID" else part

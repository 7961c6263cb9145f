"""Sink: feeds the states of a batch, those of one level in one Spark job.

The plan says what a state is fed: the partial aggregates of groups, or the tuples for an updater. A small batch mostly
waits for Spark to plan and to schedule, so one job feeds all states: each row travels as a struct in the column of its
state.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipelines.connections import connect
from pipelines.context import BatchContext
from pipelines.errors import PipelineError
from pipelines.misfits import MISFITS, misfit
from pipelines.spark import arrow_schema, as_arrow, spark_type, struct_type
from pipelines.stream import FedState, PartitionPersist, PersistentAggregate
from pipelines.tasks import Done, MergeTask, StoreTask, Task, UpdateTask
from state_backends.aggregators.column import quoted
from state_backends.spec import StateSpec, stored_column

# Keys whose timers fire in one batch, at most: they pass through the driver's memory.
MAX_WOKEN = 100_000
WOKEN = "woken"

FIGURES = {"fed": "int", "keys": "bigint", "invalid": "bigint", "misfits": "bigint"}


@dataclass(frozen=True)
class Written:
    """What the tasks of one state wrote: keys, groups that became dead letters, tasks, keys of the largest task.

    misfits: events that the state could not take, for the driver to write as dead letters.
    """

    keys: int = 0
    invalid: int = 0
    tasks: int = 0
    largest: int = 0
    misfits: int = 0

    def __add__(self, other: "Written") -> "Written":
        return Written(
            self.keys + other.keys,
            self.invalid + other.invalid,
            self.tasks + other.tasks,
            max(self.largest, other.largest),
            self.misfits + other.misfits,
        )


@dataclass(frozen=True)
class SinkInput:
    """One state's part in a job: its rows, its task, and the columns of its new values if a stream reads them."""

    rows: DataFrame
    task: Task
    emits: dict[str, str]


class SinkJob:
    """The job over several states, and its results. Raises on use what the tasks raised, wrapped by Spark."""

    def __init__(self, inputs: Sequence[SinkInput]) -> None:
        self._inputs = inputs
        rows = _in_one_frame([each.rows for each in inputs])
        emits = [each.emits for each in inputs]
        self._results = rows.mapInArrow(run_partition([each.task for each in inputs], emits), _results(emits))
        self._keeps = any(emits)
        if self._keeps:
            # The tasks must not run again for each state that reads the new values.
            self._results.persist()

    def written(self) -> list[Written]:
        """Run the job; return what was written of each state."""
        results = self._results.where("fed is not null").select(*FIGURES) if self._keeps else self._results
        rows = results.collect()
        figures = [Written()] * len(self._inputs)
        for row in rows:
            figures[row.fed] += Written(row.keys, row.invalid, 1, row.keys, row.misfits)
        return figures

    def new_values(self, place: int) -> DataFrame:
        """Return what the state at `place` emitted."""
        return self._results.where(f"e{place} is not null").select(f"e{place}.*")

    def forget(self) -> None:
        if self._keeps:
            self._results.unpersist()


def run_partition(
    tasks: Sequence[Task], emits: Sequence[dict[str, str]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that an executor runs over the Arrow batches of one partition."""
    schema = as_arrow(_results(emits))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (batch for batch in batches if batch.num_rows)
        pieces = ((0, batch) for batch in filled) if len(tasks) == 1 else chain.from_iterable(map(_by_state, filled))
        for fed, rows in groupby(pieces, key=itemgetter(0)):
            yield from _as_results(tasks[fed].run(batch for _, batch in rows), fed, schema)

    return run


def _by_state(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split a batch by state: Spark puts small states into one partition, one after the other."""
    for fed in batch["fed"].unique().to_pylist():
        rows = batch.filter(pc.equal(batch["fed"], fed))
        yield fed, pa.RecordBatch.from_struct_array(rows[f"f{fed}"])


def _in_one_frame(states: Sequence[DataFrame]) -> DataFrame:
    # One state needs no struct, which takes a tenth of the time of a large batch.
    if len(states) == 1:
        return states[0]
    wrapped = (
        rows.select(F.lit(place).alias("fed"), F.struct("*").alias(f"f{place}")) for place, rows in enumerate(states)
    )
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), wrapped)


def _results(emits: Sequence[dict[str, str]]) -> StructType:
    schema = struct_type(FIGURES)
    for place, columns in enumerate(emits):
        if columns:
            schema = schema.add(f"e{place}", struct_type(columns))
    return schema


def _as_results(done: Done, fed: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    figures = {"fed": fed, "keys": done.keys, "invalid": done.invalid, "misfits": done.misfits}
    yield _result({name: pa.array([figure]) for name, figure in figures.items()}, schema)
    if f"e{fed}" in schema.names:
        for values in done.emitted:
            yield _result({f"e{fed}": values.to_struct_array()}, schema)


def _result(columns: dict[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    rows = len(next(iter(columns.values())))
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_for(fed: FedState, events: DataFrame, context: BatchContext) -> DataFrame:
    """Return what the tasks of a state are given."""
    if isinstance(fed, PersistentAggregate):
        return partial_aggregates(events, fed)
    return tuples_by_key(events, fed, context) if fed.spec else events


def task_for(fed: FedState, context: BatchContext, *, emits: bool) -> Task:
    """Return what those tasks do. emits: whether a stream reads the new values."""
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
    is_misfit = misfit(aggregate, events)
    if is_misfit is None:
        grouped = events.groupBy(*keys).agg(*partials).select(*_typed_key(spec), *spec.partial_columns)
    else:
        # Misfits form groups of their own, of which only their number counts.
        apart = events.groupBy(*keys, is_misfit.alias(MISFITS)).agg(*partials, F.count(F.lit(1)).alias("_count"))
        count = F.when(F.col(MISFITS), F.col("_count")).alias(MISFITS)
        grouped = apart.select(*_typed_key(spec), *spec.partial_columns, count)
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
    """Return the keys whose timers fire. No task has written yet, so the rows that stand there are committed."""
    assert context.watermark is not None
    with connect(context.dsn, f"{context.batch.pipeline} {spec.name} timers") as conn:
        keys = context.session(conn, spec).due_keys(due, context.watermark, MAX_WOKEN)
        return [(*map(_plain, key), True) for key in keys]


def _plain(part: Any) -> Any:
    return str(part) if type(part).__name__ == "UUID" else part

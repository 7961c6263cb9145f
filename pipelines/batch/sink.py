"""Sink: feeds the states of a batch, those of one level in one Spark job.

One job feeds all of them, because a small batch mostly waits for Spark to plan and to schedule jobs. Each row travels
as a struct in the column of its state (see sink_plan.py).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from tidegauge.pipelines.batch.tasks import Done, MergeTask, StoreTask, Task, UpdateTask, written
from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.stream import FedState, PartitionPersist, PersistentAggregate
from tidegauge.pipelines.spark.observed import JobMetrics
from tidegauge.pipelines.spark.session import arrow_schema, as_arrow, in_session, spark_type, struct_type
from tidegauge.pipelines.spark.worker_memory import keep_imports
from tidegauge.state_backends.spec.state_spec import StateSpec

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


class SinkJob:
    """The job that feeds several states, and its results. Reading them raises the tasks' errors, wrapped by Spark.

    rows: the tasks' input. tasks: one per state. emits: the columns of each state's new values, if a stream reads them.
    keep: caches a frame until the batch has ended (see Frames).
    """

    def __init__(
        self,
        rows: DataFrame,
        tasks: Sequence[Task],
        emits: Sequence[dict[str, str]],
        keep: Callable[[DataFrame], DataFrame],
    ) -> None:
        self._states = len(tasks)
        self._computed = self._results = rows.mapInArrow(run_partition(tasks, emits), _results(emits))
        self._emits = any(emits)
        if self._emits:
            # Cached, so that the tasks do not run again for each state that reads the new values, nor for its dead
            # letters. Read as the rows of a new frame, because in a query over the new values of two states, Spark may
            # not recognize one of them as the cached rows.
            kept = keep(self._results)
            self._computed = kept.select("*")
            self._results = in_session(self._computed, kept.sparkSession)

    def written(self) -> list[Written]:
        """Run the job; return what was written of each state."""
        results = self._results.where("fed is not null").select(*FIGURES) if self._emits else self._results
        rows = results.collect()
        figures = [Written()] * self._states
        for row in rows:
            figures[row.fed] += Written(row.keys, row.invalid, 1, row.keys, row.misfits)
        return figures

    def metrics(self) -> JobMetrics:
        """Return what the job has observed, once it has run."""
        return JobMetrics(self._computed)

    def new_values(self, place: int) -> DataFrame:
        """Return what the state at `place` emitted."""
        return self._results.where(f"e{place} is not null").select(f"e{place}.*")


def run_partition(
    tasks: Sequence[Task], emits: Sequence[dict[str, str]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that an executor runs over the Arrow batches of one partition."""
    schema = as_arrow(_results(emits))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_imports()
        filled = (batch for batch in batches if batch.num_rows)
        pieces = ((0, batch) for batch in filled) if len(tasks) == 1 else chain.from_iterable(map(_by_state, filled))
        for fed, done in written(tasks, pieces):
            yield from _as_results(done, fed, schema)

    return run


def _by_state(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split a batch by state: Spark puts small states into one partition, one after the other."""
    for fed in batch["fed"].unique().to_pylist():
        rows = batch.filter(pc.equal(batch["fed"], fed))
        yield fed, pa.RecordBatch.from_struct_array(rows[f"f{fed}"])


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


def task_for(fed: FedState, context: BatchContext, *, emits: bool) -> Task:
    """Return the task that writes a state. emits: whether a stream reads the new values."""
    if isinstance(fed, PersistentAggregate):
        emitted = arrow_schema(emitted_columns(fed)) if emits else None
        return MergeTask(fed.spec, context, emitted, fed.stream.retracts)
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

"""Feed the states of a batch, those side by side in one Spark job.

A small batch is mostly waiting for Spark to plan and to schedule, so one job for all states is worth a wrapping: where
there are several, each row travels as a struct in the column of its state.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipelines.spark_types import as_arrow, struct_type
from pipelines.tasks import Done, Task

FIGURES = {"fed": "int", "keys": "bigint", "refused": "bigint"}


@dataclass(frozen=True)
class Written:
    """What the tasks of one state wrote: keys, groups put aside as dead letters, and how the keys were spread."""

    keys: int = 0
    refused: int = 0
    tasks: int = 0
    largest: int = 0

    def __add__(self, other: "Written") -> "Written":
        return Written(
            self.keys + other.keys,
            self.refused + other.refused,
            self.tasks + other.tasks,
            max(self.largest, other.largest),
        )


@dataclass(frozen=True)
class Feeding:
    """One state's part in a job: its rows, its task, and the columns of its new values if somebody wants them."""

    rows: DataFrame
    task: Task
    emits: dict[str, str]


class FedStates:
    """The job over several states, and what came of it. Raises on use what the tasks raised, wrapped by Spark."""

    def __init__(self, feedings: Sequence[Feeding]) -> None:
        self._feedings = feedings
        together = _together([feeding.rows for feeding in feedings])
        emits = [feeding.emits for feeding in feedings]
        self._results = together.mapInArrow(
            run_partition([feeding.task for feeding in feedings], emits), _results(emits)
        )
        self._keeps = any(emits)
        if self._keeps:
            # The tasks must not run again for each state that goes on from the new values.
            self._results.persist()

    def written(self) -> list[Written]:
        """Run the job; return what was written of each state."""
        results = self._results.where("fed is not null").select(*FIGURES) if self._keeps else self._results
        rows = results.collect()
        figures = [Written()] * len(self._feedings)
        for row in rows:
            figures[row.fed] += Written(row.keys, row.refused, 1, row.keys)
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
    """Take a batch apart. Spark puts small states into one partition, one behind the other."""
    for fed in batch["fed"].unique().to_pylist():
        rows = batch.filter(pc.equal(batch["fed"], fed))
        yield fed, pa.RecordBatch.from_struct_array(rows[f"f{fed}"])


def _together(states: Sequence[DataFrame]) -> DataFrame:
    # One state needs no wrapping, which is a tenth of the time of a large batch.
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
    yield _result({"fed": pa.array([fed]), "keys": pa.array([done.keys]), "refused": pa.array([done.refused])}, schema)
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

"""Feed the states of a batch, those side by side in one Spark job.

A small batch is mostly waiting for Spark to plan and to schedule, so one job for all states is worth a wrapping: where
there are several, each row travels as a struct in the column of its state, and each partition is of one state.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain

import pyarrow as pa
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
    """Return the function that an executor runs over the Arrow batches of one partition, all of one state."""
    schema = as_arrow(_results(emits))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        rows: Iterator[pa.RecordBatch] = chain([first], filled)
        fed = 0
        if len(tasks) > 1:
            fed = first["fed"][0].as_py()
            rows = (pa.RecordBatch.from_struct_array(batch[f"f{fed}"]) for batch in rows)
        yield from _as_results(tasks[fed].run(rows), fed, schema)

    return run


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

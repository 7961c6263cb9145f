"""Runs Python on the tuples of a frame: reads some columns of each tuple, and adds columns with what the code emits.

Arrow batches are converted to Python tuples and back. The columns that are not read never become Python values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from tidegauge.pipelines.declare.functions import Values
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.spark.session import arrow_schema, struct_type

# Returns the emitted tuples of each input. Opened once per task, on its executor.
Emit = Callable[[Sequence[Values]], Iterable[Iterable[Values]]]
OpenEmit = Callable[[], AbstractContextManager[Emit]]


def with_emitted(events: DataFrame, on: Sequence[str], open_emit: OpenEmit, columns: Mapping[str, str]) -> DataFrame:
    """Return one row per emitted tuple: the columns of the input it came from, and `columns` added or replaced.

    on: the columns whose values are an input. columns: name to Spark type, in the order emitted.
    Raises PipelineError for a column in `on` that is missing, and on executors for a tuple that does not fit `columns`.
    """
    for name in on:
        if name not in events.columns:
            raise PipelineError(f"the stream has no column {name!r}; there are {', '.join(events.columns)}")
    kept = [name for name in events.columns if name not in columns]
    schema = StructType([events.schema[name] for name in kept] + list(struct_type(columns)))
    emitted = arrow_schema(columns)

    def emit_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return  # an empty partition opens no store
        with open_emit() as emit:
            for batch in chain([first], filled):
                yield _with_columns(batch, kept, emit(as_tuples(batch, on)), emitted)

    return events.mapInArrow(emit_all, schema)


def as_tuples(batch: pa.RecordBatch, on: Sequence[str]) -> list[Values]:
    """Return the values of some columns, one tuple per row."""
    if not on:
        return [()] * batch.num_rows
    return list(zip(*(batch[name].to_pylist() for name in on), strict=True))


def as_columns(tuples: Sequence[Values], schema: pa.Schema) -> list[pa.Array]:
    """Turn emitted tuples into one array per column. Raises PipelineError naming the column that does not fit."""
    for values in tuples:
        if not isinstance(values, tuple) or len(values) != len(schema):
            raise PipelineError(
                f"emitted {values!r}, but a tuple of {len(schema)} was declared: {', '.join(schema.names)}"
            )
    columns = zip(*tuples, strict=True) if tuples else [()] * len(schema)
    return [_as_array(column, field) for column, field in zip(columns, schema, strict=True)]


def _as_array(column: Sequence[Any], field: pa.Field) -> pa.Array:
    try:
        return pa.array(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise PipelineError(f"emitted column {field.name!r}: not {field.type}: {error}") from error


def _with_columns(
    batch: pa.RecordBatch, kept: Sequence[str], emitted: Iterable[Iterable[Values]], schema: pa.Schema
) -> pa.RecordBatch:
    rows: list[int] = []  # for each emitted tuple, the row of its input
    tuples: list[Values] = []
    for row, of_row in enumerate(emitted):
        before = len(tuples)
        tuples += of_row
        rows += [row] * (len(tuples) - before)
    rest = [batch[name].take(pa.array(rows, pa.int64())) for name in kept]
    return pa.RecordBatch.from_arrays([*rest, *as_columns(tuples, schema)], names=[*kept, *schema.names])

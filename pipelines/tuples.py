"""Tuples in and out of Python: a step that reads some columns of each tuple and emits new ones beside the rest."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pipelines.errors import PipelineError
from pipelines.functions import Values
from pipelines.spark import arrow_schema, struct_type

# Gives for each input the tuples that it becomes; opened once per task, on its executor.
Emit = Callable[[Sequence[Values]], Iterable[Iterable[Values]]]
OpenEmit = Callable[[], AbstractContextManager[Emit]]


def with_emitted(events: DataFrame, on: Sequence[str], opened: OpenEmit, columns: Mapping[str, str]) -> DataFrame:
    """Return the tuples times what each emits, `columns` (name to Spark type) added or replaced.

    Raises PipelineError for a column in `on` that the stream lacks; on executors for a tuple of the wrong shape.
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
            return
        with opened() as emit:
            for batch in chain([first], filled):
                yield _beside(batch, kept, emit(as_tuples(batch, on)), emitted)

    return events.mapInArrow(emit_all, schema)


def as_tuples(batch: pa.RecordBatch, on: Sequence[str]) -> list[Values]:
    if not on:
        return [()] * batch.num_rows
    return list(zip(*(batch[name].to_pylist() for name in on), strict=True))


def as_columns(tuples: Sequence[Values], schema: pa.Schema) -> list[pa.Array]:
    """Turn emitted tuples into one array per column. Raises PipelineError saying which column does not fit."""
    for values in tuples:
        if not isinstance(values, tuple) or len(values) != len(schema):
            raise PipelineError(
                f"emitted {values!r}, where a tuple of {len(schema)} was declared: {', '.join(schema.names)}"
            )
    columns = zip(*tuples, strict=True) if tuples else [()] * len(schema)
    return [_as_array(column, field) for column, field in zip(columns, schema, strict=True)]


def _as_array(column: Sequence[Any], field: pa.Field) -> pa.Array:
    try:
        return pa.array(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise PipelineError(f"emitted column {field.name!r}: not {field.type}: {error}") from error


def _beside(
    batch: pa.RecordBatch, kept: Sequence[str], emitted: Iterable[Iterable[Values]], schema: pa.Schema
) -> pa.RecordBatch:
    places: list[int] = []
    tuples: list[Values] = []
    for place, made in enumerate(emitted):
        before = len(tuples)
        tuples += made
        places += [place] * (len(tuples) - before)
    rest = [batch[name].take(pa.array(places, pa.int64())) for name in kept]
    return pa.RecordBatch.from_arrays([*rest, *as_columns(tuples, schema)], names=[*kept, *schema.names])

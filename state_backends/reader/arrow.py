"""Rows of an export as Arrow batches: from PostgreSQL's CSV, without a Python object per value, or from Python rows.

The caller gives the schema, because one SQL type has several equivalents: a `numeric` is a decimal for Spark, and text
in a file for other programs.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg import sql

from tidegauge.state_backends.errors import ValueShapeError
from tidegauge.state_backends.extras import OptionalModule
from tidegauge.state_backends.spec.types import SqlType, type_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv as pa_csv
else:
    pa, pa_csv = OptionalModule("pyarrow"), OptionalModule("pyarrow.csv")

# Rows per batch: a few megabytes.
BATCH_ROWS = 20_000

# How columns are written for `from_csv` if Arrow cannot read PostgreSQL's own text.
WRITTEN: Mapping[str, sql.SQL] = {
    "timestamptz": sql.SQL("{} AT TIME ZONE 'UTC'"),
    "bytea": sql.SQL("encode({}, 'hex')"),
}


def csv_sql(rows: sql.Composable, columns: Mapping[str, str]) -> sql.Composed:
    """Return the statement that writes rows for `from_csv`. columns: name to SQL type, of the statement `rows`."""
    written = [WRITTEN.get(kind, sql.SQL("{}")).format(sql.Identifier("r", name)) for name, kind in columns.items()]
    return sql.SQL("COPY (SELECT {} FROM ({}) r) TO STDOUT (FORMAT csv)").format(sql.SQL(", ").join(written), rows)


def from_csv(lines: Iterable[Any], schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """Yield Arrow batches from a COPY of `csv_sql`. lines: bytes, a whole row each. Raises ValueShapeError."""
    parse = pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    convert = pa_csv.ConvertOptions(
        column_types={field.name: _read_type(field.type) for field in schema},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=["t"],
        false_values=["f"],
    )
    rows = iter(lines)
    while text := b"".join(islice(rows, BATCH_ROWS)):
        read = pa_csv.ReadOptions(column_names=schema.names, use_threads=False, block_size=len(text) + 1)
        with _naming_the_value():
            table = pa_csv.read_csv(pa.py_buffer(text), read, parse, convert)
            arrays = [_cast(table[field.name].combine_chunks(), field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def from_rows(
    rows: Iterable[tuple[Any, ...]], columns: Mapping[str, str], schema: "pa.Schema"
) -> Iterator["pa.RecordBatch"]:
    """Yield Arrow batches from the rows of Python values of an export. columns: name to SQL type.

    Raises ValueShapeError.
    """
    left, kinds = iter(rows), [type_of(kind) for kind in columns.values()]
    while some := list(islice(left, BATCH_ROWS)):
        with _naming_the_value():
            parts = zip(zip(*some, strict=True), kinds, schema.types, strict=True)
            arrays = [_array(column, kind, to) for column, kind, to in parts]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _read_type(kind: "pa.DataType") -> "pa.DataType":
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    return pa.string() if pa.types.is_binary(kind) else kind


def _cast(column: "pa.Array", kind: "pa.DataType") -> "pa.Array":
    if pa.types.is_binary(kind):
        return pa.array([None if text is None else bytes.fromhex(text) for text in column.to_pylist()], kind)
    return column.cast(kind)


def _array(column: Sequence[Any], kind: SqlType, to: "pa.DataType") -> "pa.Array":
    if kind.python is not str and pa.types.is_string(to):
        column = [None if value is None else _as_text(value) for value in column]
    return pa.array(column, to)


def _as_text(value: Any) -> str:
    return str(value) if isinstance(value, UUID) else json.dumps(value, ensure_ascii=False, default=str)


@contextmanager
def _naming_the_value() -> Iterator[None]:
    try:
        yield
    except pa.ArrowException as error:
        raise ValueShapeError(f"a stored value does not fit its type in Arrow: {error}") from error

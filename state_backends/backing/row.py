"""A row of a state table as Versioned, and back: which columns it has, read from a cursor, written as Arrow columns."""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC
from typing import Any

import pyarrow as pa
from psycopg import sql

from state_backends.row import Key, Versioned, json_text
from state_backends.table import StateTable, commas

# How a column of each SQL type travels through Arrow's CSV writer; a type that is not listed travels as text.
ARROW_TYPES: dict[str, pa.DataType] = {
    "bigint": pa.int64(),
    "integer": pa.int32(),
    "boolean": pa.bool_(),
    "double precision": pa.float64(),
    "timestamptz": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}
AS_TEXT: dict[str, Callable[[Any], str]] = {"bytea": lambda value: f"\\x{value.hex()}", "numeric": str, "uuid": str}


class RowCodec:
    """Turns rows of one state table into Versioned and back. columns: what is read and written beside the key."""

    def __init__(self, table: StateTable) -> None:
        self._table = table
        self._values = list(table.values)
        self._json = [name for name, sql_type in table.values.items() if sql_type == "jsonb"]
        self.columns = list(table.row)
        self._types: dict[str, str] = table.key | table.row

    def selected(self) -> sql.Composed:
        """Return the columns of row `t` to select, in the order that `decode` reads them."""
        # JSON travels as text: connections differ in how they load jsonb (Django's leaves it as text).
        return commas(
            sql.SQL("{}::text" if self._types[name] == "jsonb" else "{}").format(sql.Identifier("t", name))
            for name in self.columns
        )

    def decode(self, row: Sequence[Any]) -> Versioned:
        width = len(self._values)
        removed, at = row[width], row[width + 1]
        value = None if removed else self.value(row[:width])
        if not self._table.keeps_txid:
            return Versioned(value, None, at=_utc(at))
        txid = row[width + 2]
        if not self._table.keeps_previous or row[-1] is None:
            return Versioned(value, txid, at=_utc(at))
        prev_removed, prev_at, prev_txid = row[-3:]
        prev = None if prev_removed else self.value(row[width + 3 : -3])
        return Versioned(value, txid, prev, prev_txid, _utc(at), _utc(prev_at))

    def encode(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> pa.RecordBatch:
        """Return keys and rows as one batch, columns in the order of the key and `columns`."""
        parts = zip(*map(self._parts, keys, rows), strict=True)
        arrays = [self.array(name, keys, list(column)) for name, column in zip(self._types, parts, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._types))

    def value(self, stored: Sequence[Any]) -> Any:
        """Return the value of its stored columns as they were selected."""
        if not self._table.spec.measures:
            return json.loads(stored[0])
        value = dict(zip(self._values, stored, strict=True))
        for name in self._json:
            if value[name] is not None:
                value[name] = json.loads(value[name])
        return value

    def array(self, name: str, keys: Sequence[Key], column: list[Any]) -> pa.Array:
        """Return a column of the rows under `keys` as an array that Arrow's CSV writer writes as COPY reads it."""
        sql_type = self._types[name]
        if sql_type == "jsonb":
            spec = self._table.spec
            column = [
                None if value is None else json_text(spec, key, value) for key, value in zip(keys, column, strict=True)
            ]
        elif sql_type in AS_TEXT:
            as_text = AS_TEXT[sql_type]
            column = [None if value is None else as_text(value) for value in column]
        return pa.array(column, ARROW_TYPES.get(sql_type, pa.string()))

    def _parts(self, key: Key, row: Versioned) -> list[Any]:
        parts = [*self._table.key_values(key), *self._stored(row.value), row.value is None, row.at]
        if self._table.keeps_txid:
            parts.append(row.txid)
        if self._table.keeps_previous:
            removed = None if row.prev_txid is None else row.prev is None
            parts += [*self._stored(row.prev), removed, row.prev_at, row.prev_txid]
        return parts

    def _stored(self, value: Any) -> Iterable[Any]:
        if value is None:
            return [None] * len(self._values)
        return [value[name] for name in self._values] if self._table.spec.measures else [value]


def _utc(at: Any) -> Any:
    return at if at is None or at.tzinfo is UTC else at.astimezone(UTC)

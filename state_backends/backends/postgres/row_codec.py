"""A row of a state table as Versioned, and back: which columns it has, read from a cursor, written as Arrow columns."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import Any

import pyarrow as pa
from psycopg import sql

from state_backends.row import Key, Versioned, json_text
from state_backends.table import StateTable, commas
from state_backends.types import SqlType, type_of


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
            return pa.array(column, pa.string())
        return _copied(column, type_of(sql_type))

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


def _copied(column: list[Any], sql_type: SqlType) -> pa.Array:
    """Return values as an array that Arrow's CSV writer writes as COPY reads it."""
    if sql_type.python is bytes:
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column], pa.string())
    if sql_type.is_text_in_arrow:
        return pa.array([None if value is None else str(value) for value in column], pa.string())
    return pa.array(column, sql_type.arrow)


def _utc(at: Any) -> Any:
    return at if at is None or at.tzinfo is UTC else at.astimezone(UTC)

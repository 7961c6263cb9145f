"""A row of a state table as Versioned, and back: its columns, as they are read from a cursor and written by COPY."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from psycopg import sql

from tidegauge.state_backends.spec.row import Key, Versioned, json_text
from tidegauge.state_backends.spec.table import StateTable, commas


class RowCodec:
    """Turns rows of one state table into Versioned and back. columns: what is read and written beside the key."""

    def __init__(self, table: StateTable) -> None:
        self._table = table
        self._values = list(table.values)
        self._json = [name for name, sql_type in table.values.items() if sql_type == "jsonb"]
        self._times = [name for name, sql_type in table.values.items() if sql_type == "timestamptz"]
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

    def encode(self, key: Key, row: Versioned) -> list[Any]:
        """Return what COPY takes of a row: the columns of the key and `columns`."""
        parts = [*self._table.key_values(key), *self.written(key, row.value), row.value is None, row.at]
        if self._table.keeps_txid:
            parts.append(row.txid)
        if self._table.keeps_previous:
            removed = None if row.prev_txid is None else row.prev is None
            parts += [*self.written(key, row.prev), removed, row.prev_at, row.prev_txid]
        return parts

    def written(self, key: Key, value: Any) -> list[Any]:
        """Return what COPY takes of the value of a row, one part per column, nulls for None."""
        if value is None:
            return [None] * len(self._values)
        spec = self._table.spec
        if not spec.measures:
            return [json_text(spec, key, value)]
        columns = {name: value[name] for name in self._values}
        for name in self._json:
            if columns[name] is not None:
                columns[name] = json_text(spec, key, columns[name])
        for name in self._times:
            columns[name] = _aware(columns[name])
        return list(columns.values())

    def value(self, stored: Sequence[Any]) -> Any:
        """Return the value of its stored columns as they were selected."""
        if not self._table.spec.measures:
            return json.loads(stored[0])
        value = dict(zip(self._values, stored, strict=True))
        for name in self._json:
            if value[name] is not None:
                value[name] = json.loads(value[name])
        return value


def _utc(at: Any) -> Any:
    return at if at is None or at.tzinfo is UTC else at.astimezone(UTC)


def _aware(at: Any) -> Any:
    # PostgreSQL would read a time without a zone in the session's.
    return at.replace(tzinfo=UTC) if isinstance(at, datetime) and at.tzinfo is None else at

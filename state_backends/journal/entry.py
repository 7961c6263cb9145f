"""An entry of a changelog as Change, and from Versioned: which columns it has, how they are read and written."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from state_backends.row import Key, Versioned
from state_backends.table import StateTable, commas


@dataclass(frozen=True)
class Change:
    """One version of one key. value: stored columns, or None where the batch removed the key."""

    txid: int
    batch_time: datetime
    value: dict[str, Any] | None


class EntryCodec:
    """Turns entries of one changelog into Change, and rows into entries. columns: what is written, the key first."""

    def __init__(self, table: StateTable) -> None:
        self.columns = [*table.key, *table.version, "txid"]
        self._table = table
        self._values = list(table.values)
        self._json = [name for name, sql_type in table.values.items() if sql_type == "jsonb"]

    def selected(self) -> sql.Composed:
        """Return the columns of entry `c` to select, in the order that `decode` reads them."""
        # JSON travels as text: connections differ in how they load jsonb (Django's leaves it as text).
        values = [
            sql.SQL("{}::text" if name in self._json else "{}").format(sql.Identifier("c", name))
            for name in self._values
        ]
        return commas([sql.SQL("c.txid, c.updated_at, c.removed"), *values])

    def decode(self, entry: Sequence[Any]) -> Change:
        txid, at, removed, *stored = entry
        if removed:
            return Change(txid, at, None)
        value = dict(zip(self._values, stored, strict=True))
        for name in self._json:
            if value[name] is not None:
                value[name] = json.loads(value[name])
        return Change(txid, at, value)

    def encode(self, key: Key, row: Versioned, now: datetime) -> list[Any]:
        """Return the entry for the row's current version; a row without a time gets `now`."""
        values = self._stored(row.value)
        return [*self._table.key_values(key), *values, row.value is None, row.at or now, row.txid]

    def _stored(self, value: Any) -> Iterator[Any]:
        for name in self._values:
            part = value[name] if value is not None and self._table.spec.measures else value
            yield Jsonb(part) if name in self._json and part is not None else part

"""A row as Redis holds it: the fields of a hash, each a text in the form of its SQL type; a null is no field."""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from state_backends.backing.key_bytes import MICROSECOND, from_microseconds, microseconds
from state_backends.backing.redis_scripts import fields
from state_backends.row import Key, Versioned, json_text
from state_backends.spec import StateSpec
from state_backends.table import StateTable

TRUE, FALSE = b"true", b"false"


def _text(value: Any) -> bytes:
    return str(value).encode()


def text_of(argument: int | datetime | timedelta | None) -> bytes:
    """Return a number or a time as scripts take it, times in microseconds; None is empty."""
    if isinstance(argument, datetime):
        argument = microseconds(argument)
    elif isinstance(argument, timedelta):
        argument //= MICROSECOND
    return b"" if argument is None else _text(argument)


# SQL type to bytes and back; a double is written so that it comes back to the last bit.
FORMS: dict[str, tuple[Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "bigint": (_text, int),
    "integer": (_text, int),
    "double precision": (lambda value: _text(float(value)), float),
    "numeric": (_text, lambda text: Decimal(text.decode())),
    "text": (str.encode, bytes.decode),
    "boolean": (lambda value: TRUE if value else FALSE, lambda text: text == TRUE),
    "timestamptz": (lambda value: _text(microseconds(value)), lambda text: from_microseconds(int(text))),
    "date": (_text, lambda text: date.fromisoformat(text.decode())),
    "uuid": (_text, lambda text: uuid.UUID(text.decode())),
    "bytea": (bytes, bytes),
    "jsonb": (bytes, json.loads),
}


class RowFields:
    """Turns rows of one state into the values of their fields, in the order of `fields(spec)`, and back.

    Times are microseconds since 1970. A row that is absent comes back as nulls only.
    """

    def __init__(self, spec: StateSpec) -> None:
        table = StateTable(spec)
        self._spec = spec
        self._keeps_txid, self._keeps_previous = table.keeps_txid, table.keeps_previous
        self._names = list(table.values)
        self._types = list(table.values.values())
        self.width = len(fields(spec))

    def encode(self, key: Key, row: Versioned) -> list[bytes | None]:
        values = self._version(key, row.value, row.at)
        if self._keeps_txid:
            values.append(None if row.txid is None else _text(row.txid))
        if not self._keeps_previous:
            return values
        if row.prev_txid is None:
            return [*values, *[None] * (self.width - len(values))]
        return [*values, *self._version(key, row.prev, row.prev_at), _text(row.prev_txid)]

    def decode(self, values: Sequence[bytes | None]) -> Versioned | None:
        at_place = len(self._names) + 1
        if values[at_place] is None:
            return None
        value, at = self._value(values[: at_place + 1])
        txid = self._number(values[at_place + 1]) if self._keeps_txid else None
        if not self._keeps_previous or values[-1] is None:
            return Versioned(value, txid, at=at)
        prev, prev_at = self._value(values[at_place + 2 : -1])
        return Versioned(value, txid, prev, int(values[-1]), at, prev_at)

    def value(self, stored: Sequence[bytes | None]) -> Any:
        """Return the value of its columns."""
        columns = [
            None if text is None else FORMS[sql_type][1](text)
            for sql_type, text in zip(self._types, stored, strict=True)
        ]
        return dict(zip(self._names, columns, strict=True)) if self._spec.measures else columns[0]

    def _version(self, key: Key, value: Any, at: Any) -> list[bytes | None]:
        time = None if at is None else FORMS["timestamptz"][0](at)
        return [*self._columns(key, value), TRUE if value is None else FALSE, time]

    def _columns(self, key: Key, value: Any) -> Iterator[bytes | None]:
        for name, sql_type in zip(self._names, self._types, strict=True):
            column = value[name] if self._spec.measures and value is not None else value
            if column is None:
                yield None
            elif sql_type == "jsonb":
                yield json_text(self._spec, key, column).encode()
            else:
                yield FORMS[sql_type][0](column)

    def _value(self, version: Sequence[bytes | None]) -> tuple[Any, Any]:
        *columns, removed, at = version
        time = None if at is None else from_microseconds(int(at))
        return None if removed == TRUE else self.value(columns), time

    @staticmethod
    def _number(text: bytes | None) -> int | None:
        return None if text is None else int(text)

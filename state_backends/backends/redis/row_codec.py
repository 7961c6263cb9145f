"""A row as Redis holds it: the fields of a hash, each as text in the form of its SQL type. A null has no field."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidegauge.state_backends.backends.redis.scripts import fields, pack_array
from tidegauge.state_backends.errors import DuplicateKeyError, KeyShapeError, ValueShapeError
from tidegauge.state_backends.extras import OptionalModule
from tidegauge.state_backends.spec.key_bytes import MICROSECOND, KeyBytes, from_microseconds, microseconds
from tidegauge.state_backends.spec.row import Key, Versioned, json_text
from tidegauge.state_backends.spec.state_spec import MAX_KEY_BYTES, StateSpec
from tidegauge.state_backends.spec.table import StateTable
from tidegauge.state_backends.spec.types import KEY_TYPES, TYPES, SqlType, type_of

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = OptionalModule("pyarrow")

TRUE, FALSE = b"true", b"false"

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]


def _text(value: Any) -> bytes:
    return str(value).encode()


def text_of(argument: int | datetime | timedelta | None) -> bytes:
    """Return a number or a time as scripts take it, times in microseconds; None is empty."""
    if isinstance(argument, datetime):
        argument = microseconds(argument)
    elif isinstance(argument, timedelta):
        argument //= MICROSECOND
    return b"" if argument is None else _text(argument)


# Python type to bytes and back, if `str` and `from_text` are wrong for it or slower. A double is written so that it is
# read back exactly.
FORMS: dict[type, tuple[Encode, Decode]] = {
    str: (str.encode, bytes.decode),
    int: (_text, int),
    float: (lambda value: _text(float(value)), float),
    bool: (lambda value: TRUE if value else FALSE, lambda text: text == TRUE),
    datetime: (lambda value: _text(microseconds(value)), lambda text: from_microseconds(int(text))),
    bytes: (bytes, bytes),
    object: (str.encode, json.loads),
}


def form(sql_type: SqlType) -> tuple[Encode, Decode]:
    """Return the functions that turn a value of that type into bytes and back."""
    return FORMS.get(sql_type.python) or (_text, lambda text: sql_type.from_text(text.decode()))


class RowFields:
    """Turns rows of one state into the values of their fields, in the order of `fields(spec)`, and back.

    Times are microseconds since 1970. A row that is absent comes back as nulls only.
    """

    def __init__(self, spec: StateSpec) -> None:
        table = StateTable(spec)
        self._spec = spec
        self._keeps_txid, self._keeps_previous = table.keeps_txid, table.keeps_previous
        self._names = list(table.values)
        self._types = [TYPES[sql_type] for sql_type in table.values.values()]
        self._forms = [form(sql_type) for sql_type in self._types]
        self._decodes = [decode for _, decode in self._forms]
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
        value = {
            name: None if text is None else decode(text)
            for name, decode, text in zip(self._names, self._decodes, stored, strict=True)
        }
        return value if self._spec.measures else value[self._names[0]]

    def _version(self, key: Key, value: Any, at: Any) -> list[bytes | None]:
        time = None if at is None else text_of(at)
        return [*self._columns(key, value), TRUE if value is None else FALSE, time]

    def _columns(self, key: Key, value: Any) -> Iterator[bytes | None]:
        for name, sql_type, (encode, _) in zip(self._names, self._types, self._forms, strict=True):
            column = value[name] if self._spec.measures and value is not None else value
            if column is None:
                yield None
            elif sql_type.python is object:
                yield encode(json_text(self._spec, key, column))
            else:
                yield encode(column)

    def _value(self, version: Sequence[bytes | None]) -> tuple[Any, Any]:
        *columns, removed, at = version
        time = None if at is None else from_microseconds(int(at))
        return None if removed == TRUE else self.value(columns), time

    @staticmethod
    def _number(text: bytes | None) -> int | None:
        return None if text is None else int(text)


# A batch's partial aggregates as a merge sends them: keys as bytes, columns as packed text, straight from Arrow.


class Partials:
    """The rows of one merge: `keys` as bytes, and the columns of the value, to be packed as they are sent.

    Raises KeyShapeError for a null or a part that a key cannot hold, DuplicateKeyError, KeyError for a missing column.
    """

    def __init__(self, spec: StateSpec, batches: Iterable["pa.RecordBatch"], txid: int) -> None:
        self._spec, self._txid = spec, txid
        names = [*spec.key, *spec.value_columns]
        kept = [batch.select(names) for batch in batches]
        table = pa.Table.from_batches(kept).combine_chunks() if kept else None
        self._table = table
        self.keys = self._keys(table) if table else []
        self._columns = [self._text(table[name], name, of) for name, of in spec.value_columns.items()] if table else []

    def packed(self, positions: Sequence[int]) -> list[bytes]:
        """Return two strings per column with the values at these positions."""
        if isinstance(positions, range):  # because a slice copies nothing
            chosen = [column.slice(positions.start, len(positions)) for column in self._columns]
        else:
            chosen = [column.take(pa.array(positions)) for column in self._columns]
        return [part for column in chosen for part in pack_array(column)]

    def key(self, position: int) -> tuple[Any, ...]:
        return KeyBytes(self._spec).decode(self.keys[position])

    def partial(self, position: int) -> dict[str, Any]:
        """Return the stored columns of one row: name to the batch's value."""
        assert self._table is not None
        [row] = self._table.slice(position, 1).select(list(self._spec.value_columns)).to_pylist()
        return dict(row)

    def _keys(self, table: "pa.Table") -> list[bytes]:
        columns = [self._key_column(table[name], name, sql_type) for name, sql_type in self._spec.key.items()]
        keys = self._encoded(columns) if columns else [b""] * table.num_rows
        if len(set(keys)) < len(keys):
            raise DuplicateKeyError(
                f"state {self._spec.name!r}: batch {self._txid} carries a key twice; "
                f"combine its rows by {', '.join(self._spec.key) or 'nothing'} first"
            )
        return keys

    def _encoded(self, columns: list[list[Any]]) -> list[bytes]:
        if not self._fits(columns):
            for index, key in enumerate(zip(*columns, strict=True)):
                self._spec.check_key(key, index)
        return KeyBytes(self._spec).encode_columns(columns)

    def _fits(self, columns: list[list[Any]]) -> bool:
        """Return whether all texts are surely short and free of NULs, the only faults that a typed part can have."""
        texts = [column for column, of in zip(columns, self._spec.key.values(), strict=True) if of == "text"]
        # A quarter of the limit, because a character takes up to four bytes.
        limit = MAX_KEY_BYTES // 4 // (len(texts) or 1)
        return all(len(text) <= limit and "\0" not in text for column in texts for text in column)

    def _key_column(self, column: "pa.ChunkedArray", name: str, sql_type: str) -> list[Any]:
        if column.null_count:
            raise KeyShapeError(
                f"state {self._spec.name!r}: batch {self._txid} carries a key whose {name} is null; "
                "leave such rows out first"
            )
        try:
            kind = KEY_TYPES[sql_type]
            parts: list[Any] = column.cast(kind.arrow).to_pylist()
            return list(map(kind.from_text, parts)) if kind.is_text_in_arrow else parts
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise KeyShapeError(f"state {self._spec.name!r}: {name} must be {sql_type}: {error}") from error

    def _text(self, column: "pa.ChunkedArray", name: str, sql_type: str) -> "pa.Array":
        """Return a column in the form that a row's field has, as binary."""
        try:
            kind = type_of(sql_type)
            typed = column.cast(kind.arrow)
            if kind.python is datetime:
                typed = typed.cast(pa.int64())
            text = typed if kind.python is bytes else typed.cast(pa.string())
            return _whole(text.cast(pa.binary()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueShapeError(f"state {self._spec.name!r}: {name} must be {sql_type}: {error}") from error


def _whole(column: "pa.ChunkedArray") -> "pa.Array":
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)

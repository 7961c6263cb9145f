"""Answers from scanned rows: JSON as PostgreSQL writes it, and pages of a scan in key order, as a query gives them."""

import heapq
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any, Literal, NamedTuple
from uuid import UUID

from tidegauge.state_backends.reader.bounds import Place
from tidegauge.state_backends.reader.filters import rank
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec

_encoded = json.JSONEncoder().encode


def json_form(value: Any) -> str:
    """Return JSON text: times with their offset, whole numbers without a fraction, a NaN as text, bytes in hex."""
    form = _FORMS.get(type(value))
    return _of_other_type(value) if form is None else form(value)


def _object(value: dict[str, Any]) -> str:
    return f"{{{', '.join([f'{_encoded(name)}: {json_form(part)}' for name, part in value.items()])}}}"


def _array(value: list[Any] | tuple[Any, ...]) -> str:
    return f"[{', '.join(map(json_form, value))}]"


def _number(value: float | Decimal) -> str:
    if not math.isfinite(value):
        return _encoded("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    return format(value, "f") if isinstance(value, Decimal) else repr(value).removesuffix(".0")


def _timestamp(value: datetime) -> str:
    offset = value.isoformat()[-len("+00:00") :]
    whole, _, fraction = value.replace(tzinfo=None).isoformat(timespec="microseconds").partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}{offset}" if fraction else f"{whole}{offset}"


# By type, because a lookup on the event loop writes some thousand values, and a chain of `isinstance` takes long.
_FORMS: dict[type, Callable[[Any], str]] = {
    dict: _object,
    list: _array,
    tuple: _array,
    str: _encoded,
    int: repr,
    bool: _encoded,
    type(None): _encoded,
    float: _number,
    Decimal: _number,
    datetime: lambda value: _encoded(_timestamp(value)),
    date: lambda value: _encoded(str(value)),
    UUID: lambda value: _encoded(str(value)),
    bytes: lambda value: _encoded(f"\\x{value.hex()}"),
}


def _of_other_type(value: Any) -> str:
    """Return the form of a subclass of one of these types. Raises TypeError for a type that JSON does not have."""
    form = next((form for kind, form in _FORMS.items() if isinstance(value, kind) and kind is not int), _encoded)
    return form(value)


class Published(NamedTuple):
    """The batch that a store has published. by: the name of the published attempt at it, "" if unknown."""

    txid: int
    by: str = ""


@dataclass(slots=True)  # not frozen, because making one would take three times as long, and reads make thousands
class CommittedRow:
    """What a reader of one batch sees of one key.

    value: as in Versioned; None unless found. txid: the batch that wrote this version; None if there is no version, or
    if the kind keeps no txid. at: when it was written.
    """

    status: Literal["found", "missing", "expired"]
    value: Any
    txid: int | None
    at: datetime | None = field(default=None, compare=False)


class ResultForm:
    """Writes results of lookups as `json_form` does, in less time, because it makes no objects for them.

    measures: the ones to answer, in this order.
    """

    def __init__(self, spec: StateSpec, measures: Iterable[str]) -> None:
        finishes = {measure: (finish, columns) for measure, finish, columns in spec.finishes}
        names = dict.fromkeys(measures) if finishes else ()
        self._measures = [(f"{_encoded(name)}: ", *finishes[name]) for name in names]
        self._form = self._value if finishes else json_form

    def text(self, keys: Iterable[Key], rows: Iterable[CommittedRow]) -> str:
        """Return `[{"key": [..], "status": .., "value": ..}, ..]`."""
        return f"[{', '.join([self._result(key, row) for key, row in zip(keys, rows, strict=True)])}]"

    def _result(self, key: Key, row: CommittedRow) -> str:
        value = self._form(row.value) if row.status == "found" else "null"
        return f'{{"key": {_array(key)}, "status": "{row.status}", "value": {value}}}'

    def _value(self, stored: Any) -> str:
        get = stored.get
        parts = [
            name + json_form(finish({suffix: get(column) for suffix, column in columns}))
            for name, finish, columns in self._measures
        ]
        return f"{{{', '.join(parts)}}}"


Row = tuple[Key, CommittedRow]


class Bounded:
    """The first rows of a scan. Afterwards it has whether there were more, and the last key that it read."""

    def __init__(self, rows: Iterator[Row], most: int) -> None:
        self._rows, self._most = rows, most
        self.was_cut_short = False
        self.last: Key | None = None

    def __iter__(self) -> Iterator[Row]:
        for row in islice(self._rows, self._most):
            self.last = row[0]
            yield row
        self.was_cut_short = next(self._rows, None) is not None


class Order(NamedTuple):
    """How entries are sorted: by a key column or a measure, nulls last and equal values in key order."""

    column: str
    descending: bool

    def value(self, spec: StateSpec, row: Row) -> Any:
        key, version = row
        if self.column in spec.key:
            return key[list(spec.key).index(self.column)]
        return spec.finish(version.value)[self.column]

    def first(self, spec: StateSpec, rows: Iterable[Row], after: Place | None, count: int) -> list[Row]:
        """Return the first rows after a place. `rows` must be in key order."""
        ranked = ((self.value(spec, row), row) for row in rows)
        if after is not None:
            ranked = (pair for pair in ranked if self._is_behind(pair[0], pair[1][0], after))
        pairs = list(ranked)
        pick = heapq.nlargest if self.descending else heapq.nsmallest
        some = pick(count, (pair for pair in pairs if pair[0] is not None), key=lambda pair: rank(pair[0]))
        return [row for _, row in [*some, *(pair for pair in pairs if pair[0] is None)][:count]]

    def _is_behind(self, value: Any, key: Key, after: Place) -> bool:
        if value is None or after.value is None:
            return value is None and (after.value is not None or _ranks(key) > _ranks(after.key))
        one, other = rank(value), rank(after.value)
        if one == other:
            return _ranks(key) > _ranks(after.key)
        return (one < other) is self.descending


def matches(key: Key, search: str) -> bool:
    return not search or any(_searched(part).lower().startswith(search.lower()) for part in key)


def _searched(part: Any) -> str:
    # As PostgreSQL's cast to text writes it, because a search must find the same keys in every store. Python's str does
    # so for other types: both put a blank between date and time.
    return json_form(part).strip('"') if isinstance(part, float) else str(part)


def place_of(spec: StateSpec, row: Row, order: Order | None) -> list[Any]:
    """Return the argument `after` of `page` that continues after a row."""
    key = shown_key(row[0])
    return key if order is None else [_text(order.value(spec, row)), key]


def shown_key(key: Key) -> list[Any]:
    """Return a key with its parts as in JSON."""
    shown: list[Any] = json.loads(json_form(key))
    return shown


def _ranks(key: Key) -> list[Any]:
    return [rank(part) for part in key]


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json_form(value).strip('"')

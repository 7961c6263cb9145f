"""Answers from scanned rows: JSON as PostgreSQL writes it, and pages of a scan in key order, as a query gives them."""

import heapq
import json
import math
from collections.abc import Iterable, Iterator
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


def json_form(value: Any) -> str:
    """Return JSON text: times with their offset, whole numbers without a fraction, a NaN as text, bytes in hex."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(name)}: {json_form(part)}' for name, part in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(json_form, value))}]"
    if isinstance(value, float | Decimal):
        return _number(value)
    if isinstance(value, datetime):
        return json.dumps(_timestamp(value))
    if isinstance(value, date | UUID):
        return json.dumps(str(value))
    return json.dumps(f"\\x{value.hex()}" if isinstance(value, bytes) else value)


def _number(value: float | Decimal) -> str:
    if not math.isfinite(value):
        return json.dumps("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    return format(value, "f") if isinstance(value, Decimal) else repr(value).removesuffix(".0")


def _timestamp(value: datetime) -> str:
    offset = value.isoformat()[-len("+00:00") :]
    whole, _, fraction = value.replace(tzinfo=None).isoformat(timespec="microseconds").partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}{offset}" if fraction else f"{whole}{offset}"


class Published(NamedTuple):
    """The batch that a store has published. by: the name of the published attempt at it, "" if unknown."""

    txid: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class CommittedRow:
    """What a reader of one batch sees of one key.

    value: as in Versioned; None unless found. txid: the batch that wrote this version; None if there is no version, or
    if the kind keeps no txid. at: when it was written.
    """

    status: Literal["found", "missing", "expired"]
    value: Any
    txid: int | None
    at: datetime | None = field(default=None, compare=False)


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
    """How entries are sorted: by a measure, nulls last and equal values in key order."""

    measure: str
    descending: bool

    def first(self, spec: StateSpec, rows: Iterable[Row], after: Place | None, count: int) -> list[Row]:
        """Return the first rows after a place. `rows` must be in key order."""
        ranked = ((spec.finish(row[1].value)[self.measure], row) for row in rows)
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
    key, version = row
    if order is None:
        return shown_key(key)
    return [_text(spec.finish(version.value)[order.measure]), shown_key(key)]


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

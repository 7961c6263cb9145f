"""What a query string says, read with good will: what makes no sense in it counts as not asked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import isfinite
from shlex import quote
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest

from state_backends import Snapshot, StateSpec
from state_backends.errors import KeyShapeError, NotCommittedError, OutOfReachError, SpecError
from state_backends.reader.reader import Reader
from state_backends.row import Key
from state_backends.types import type_of
from webapp.dashboard.pasted import pasted_prefix

# The largest number that PostgreSQL's bigint holds.
LARGEST = 2**63 - 1


def whole_number(text: str) -> int | None:
    """Return a number from 0 on, None for anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        return None
    number = int(text)
    return number if number <= LARGEST else None


# The same question to the API, as a line for a terminal.


def curl(request: HttpRequest, name: str, key: Sequence[Any]) -> str:
    """key: as JSON has it."""
    return (
        f"curl -s {request.build_absolute_uri(f'/api/v1/states/{name}/query')} \\\n"
        '  -H "Authorization: Bearer $TIDEMARK_API_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d {quote(json.dumps({'keys': [key]}))}"
    )


# The entries of one state as its page shows them: filtered, sorted, in pages, and the leading keys as bars.
#
# A page begins behind the last entry of the one before, so the thousandth costs what the first one does, and one
# leads on but not back; the way back is the browser's, or the first page.


PAGE_ENTRIES = 25
LEADING_KEYS = 10
FORMATS = {"csv": "CSV", "ndjson": "NDJSON", "arrow": "Arrow"}

# What a reader may have asked for and cannot have; the page says why.
REFUSED = (KeyShapeError, OutOfReachError, NotCommittedError, SpecError)


@dataclass(frozen=True)
class EntriesQuery:
    """What the reader asked for.

    q: beginning of a key part. prefix: leading key parts, as they were typed. order: a measure, `-` for descending,
    empty for key order. by: the measure of the leading keys, empty for the first one. as_of: a batch, None for now.
    after: where the page before ended, as JSON, empty for the first page. n: how many entries are on earlier pages.
    """

    q: str = ""
    prefix: str = ""
    order: str = ""
    by: str = ""
    as_of: int | None = None
    after: str = ""
    n: int = 0

    @classmethod
    def parse(cls, asked: Mapping[str, str], spec: StateSpec) -> "EntriesQuery":
        """Read a query string; what makes no sense in it is left out."""
        numbers = number_measures(spec)
        order, by = asked.get("order", ""), asked.get("by", "")
        after = asked.get("after", "") if isinstance(_json(asked.get("after", "")), list) else ""
        return cls(
            q=_text(asked, "q"),
            prefix=_text(asked, "prefix"),
            order=order if order.removeprefix("-") in numbers else "",
            by=by if by in numbers else "",
            as_of=whole_number(asked.get("as_of", "")),
            after=after,
            n=whole_number(asked.get("n", "")) or 0 if after else 0,
        )

    @property
    def order_by(self) -> str | None:
        return self.order.removeprefix("-") or None

    @property
    def descending(self) -> bool:
        return self.order.startswith("-")

    @property
    def is_filtered(self) -> bool:
        return bool(self.q or self.prefix)

    @property
    def place(self) -> list[Any] | None:
        """Where the page before ended, as the reader takes it."""
        return _json(self.after) if self.after else None

    def address(self, **changes: Any) -> str:
        """Return the query string of this query with some parts changed."""
        parts = {name: part for name, part in asdict(replace(self, **changes)).items() if part not in ("", None, 0)}
        if self.as_of == 0 and "as_of" not in changes:
            parts["as_of"] = 0
        return f"?{urlencode(parts)}"

    @property
    def first_page(self) -> str:
        return self.address(after="", n=0)

    @property
    def in_key_order(self) -> str:
        return self.address(order="", after="", n=0)

    @property
    def without_filter(self) -> str:
        return self.address(q="", prefix="", after="", n=0)

    @property
    def now(self) -> str:
        return self.address(as_of=None, after="", n=0)

    def sorted_by(self, measure: str) -> str:
        """Return the address that sorts by a measure: the largest first, then the smallest."""
        return self.address(order=measure if self.order == f"-{measure}" else f"-{measure}", after="", n=0)

    def export(self, prefix: Key) -> list[tuple[str, str]]:
        """Return name and query string, for the API's entries, of each format that they come in.

        prefix: the typed one. A stream is a range of keys in their order, so a search does not narrow it.
        """
        parts = {"prefix": json.dumps(list(prefix), default=str)} if prefix else {}
        parts |= {"as_of": str(self.as_of)} if self.as_of is not None else {}
        return [(label, f"?{urlencode({'format': name, **parts})}") for name, label in FORMATS.items()]


@dataclass(frozen=True)
class Column:
    """A measure as a column.

    direction: ascending, descending or none. address: where a click on its name leads; empty where it cannot sort.
    """

    name: str
    direction: str
    address: str


@dataclass(frozen=True)
class Bar:
    """A leading key. share: of the longest bar, in percent."""

    key: list[Any]
    number: float | None
    share: float


@dataclass(frozen=True)
class EntriesPage:
    """first, last: from 1. following: where the next page is; empty on the last one.

    complete: False where only the first keys of the state were looked at. txid: the batch it shows.
    """

    query: EntriesQuery
    columns: list[Column]
    entries: list[dict[str, Any]]
    following: str
    complete: bool
    txid: int

    @cached_property
    def first(self) -> int:
        return self.query.n + 1

    @cached_property
    def last(self) -> int:
        return self.query.n + len(self.entries)


def number_measures(spec: StateSpec) -> list[str]:
    return [name for name, aggregator in spec.measures.items() if type_of(aggregator.result_type).is_number]


def entries_page(reader: Reader, query: EntriesQuery, prefix: Key) -> EntriesPage:
    """Raises KeyShapeError for a place that is none, OutOfReachError, NotCommittedError."""
    snapshot = reader.page(
        prefix=prefix,
        search=query.q,
        order_by=query.order_by,
        descending=query.descending,
        after=query.place,
        # One more than is shown tells whether there is a next page.
        limit=PAGE_ENTRIES + 1,
        as_of=query.as_of,
    )
    found = snapshot.parsed()
    shown = [_with_cells(reader.spec, entry) for entry in found[:PAGE_ENTRIES]]
    following = _behind(query, snapshot) if len(found) > PAGE_ENTRIES else ""
    return EntriesPage(query, _columns(reader.spec, query), shown, following, snapshot.complete, snapshot.txid)


def leading_keys(reader: Reader, query: EntriesQuery, prefix: Key, measure: str) -> list[Bar]:
    """Return the keys with the largest numbers; they follow the prefix and the batch asked for, not the search."""
    snapshot = reader.page(
        prefix=prefix, order_by=measure, descending=True, limit=LEADING_KEYS, measures=[measure], as_of=query.as_of
    )
    numbers = [(entry["key"], entry["value"][measure]) for entry in snapshot.parsed()]
    longest = max((abs(number) for _, number in numbers if is_number(number)), default=0) or 1
    return [
        Bar(key, number, round(100 * abs(number) / longest, 2) if is_number(number) else 0.0) for key, number in numbers
    ]


def is_number(value: Any) -> bool:
    """Tell numbers from what JSON has no number for: NaN, infinities, nothing."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def global_value(reader: Reader, as_of: int | None) -> dict[str, Any] | None:
    """Return the value of a global aggregate, measure by measure; None before its first batch."""
    value = reader.multi_get([()], as_of=as_of).parsed()[0]["value"]
    return value if value is None or reader.spec.measures else {"value": value}


def asked_prefix(query: EntriesQuery, spec: StateSpec) -> Key:
    """Raises KeyShapeError."""
    return pasted_prefix(query.prefix, spec)


def cells(spec: StateSpec, value: Any) -> list[tuple[str, Any]]:
    """Return names and values to show: the measures, or a JSON value as one; none where there is no value."""
    if value is None:
        return []
    return list(value.items()) if spec.measures else [("value", value)]


def _behind(query: EntriesQuery, page: Snapshot) -> str:
    # Fractions as text, since a float has not all digits of a numeric.
    last = json.loads(page.results, parse_float=str)[PAGE_ENTRIES - 1]
    place = [last["value"][query.order_by], last["key"]] if query.order_by else last["key"]
    return query.address(after=json.dumps(place), n=query.n + PAGE_ENTRIES)


def _text(asked: Mapping[str, str], name: str) -> str:
    return asked.get(name, "").replace("\0", "").strip()[:400]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _columns(spec: StateSpec, query: EntriesQuery) -> list[Column]:
    sortable = number_measures(spec)
    return [
        Column(name, _direction(name, query), query.sorted_by(name) if name in sortable else "")
        for name in (spec.measures or ["value"])
    ]


def _direction(measure: str, query: EntriesQuery) -> str:
    if query.order_by != measure:
        return "none"
    return "descending" if query.descending else "ascending"


def _with_cells(spec: StateSpec, entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "id": json.dumps(entry["key"]), "cells": cells(spec, entry["value"])}

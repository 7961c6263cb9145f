"""The entries of one state as its page shows them: searched, sorted, in pages, and the leading keys as bars."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import urlencode

from state_backends import StateSpec
from state_backends.factory import Reader

PAGE_ENTRIES = 25
LEADING_KEYS = 10

# A page further on than this is nobody's reading, and the database would count its way there.
LAST_PAGE = 4_000

NUMBERS = {"bigint", "integer", "double precision", "numeric"}


@dataclass(frozen=True)
class EntriesQuery:
    """What the reader asked for. q: beginning of a key part. order: a measure, `-` for descending, empty for key order.

    by: the measure of the leading keys, empty for the first one. page: from 1.
    """

    q: str = ""
    order: str = ""
    by: str = ""
    page: int = 1

    @classmethod
    def parse(cls, asked: Mapping[str, str], spec: StateSpec) -> "EntriesQuery":
        """Read a query string; what makes no sense in it is left out."""
        numbers = number_measures(spec)
        order, by, page = asked.get("order", ""), asked.get("by", ""), asked.get("page", "")
        return cls(
            q=asked.get("q", "").replace("\0", "").strip()[:200],
            order=order if order.removeprefix("-") in numbers else "",
            by=by if by in numbers else "",
            page=min(max(int(page), 1), LAST_PAGE) if page.isdecimal() and len(page) < 9 else 1,
        )

    @property
    def order_by(self) -> str | None:
        return self.order.removeprefix("-") or None

    @property
    def descending(self) -> bool:
        return self.order.startswith("-")

    def address(self, **changes: Any) -> str:
        """Return the query string of this query with some parts changed."""
        parts = {name: part for name, part in asdict(replace(self, **changes)).items() if part and part != 1}
        return f"?{urlencode(parts)}"

    @property
    def in_key_order(self) -> str:
        return self.address(order="", page=1)

    @property
    def without_search(self) -> str:
        return self.address(q="", page=1)

    @property
    def first_page(self) -> str:
        return self.address(page=1)

    def sorted_by(self, measure: str) -> str:
        """Return the address that sorts by a measure: the largest first, then the smallest."""
        return self.address(order=measure if self.order == f"-{measure}" else f"-{measure}", page=1)


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
    """complete: False where only the first keys of the state were looked at."""

    query: EntriesQuery
    columns: list[Column]
    entries: list[dict[str, Any]]
    first: int
    last: int
    previous: str
    following: str
    complete: bool


def number_measures(spec: StateSpec) -> list[str]:
    return [name for name, aggregator in spec.measures.items() if aggregator.result_type in NUMBERS]


def entries_page(reader: Reader, query: EntriesQuery) -> EntriesPage:
    offset = (query.page - 1) * PAGE_ENTRIES
    snapshot = reader.entries(
        search=query.q,
        order_by=query.order_by,
        descending=query.descending,
        # One more than is shown tells whether there is a next page.
        limit=PAGE_ENTRIES + 1,
        offset=offset,
    )
    found = snapshot.parsed()
    shown = [_with_cells(entry) for entry in found[:PAGE_ENTRIES]]
    return EntriesPage(
        query=query,
        columns=_columns(reader.spec, query),
        entries=shown,
        first=offset + 1,
        last=offset + len(shown),
        previous=query.address(page=query.page - 1) if query.page > 1 else "",
        following=query.address(page=query.page + 1) if len(found) > PAGE_ENTRIES else "",
        complete=snapshot.complete,
    )


def leading_keys(reader: Reader, measure: str) -> list[Bar]:
    snapshot = reader.entries(order_by=measure, descending=True, limit=LEADING_KEYS)
    numbers = [(entry["key"], entry["value"][measure]) for entry in snapshot.parsed()]
    longest = max((abs(number) for _, number in numbers if number is not None), default=0) or 1
    return [Bar(key, number, round(100 * abs(number or 0) / longest, 2)) for key, number in numbers]


def global_value(reader: Reader) -> dict[str, Any] | None:
    """Return the value of a global aggregate, measure by measure; None before its first batch."""
    value = reader.multi_get([()]).parsed()[0]["value"]
    return value if value is None or reader.spec.measures else {"value": value}


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


def _with_cells(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "id": json.dumps(entry["key"]), "cells": list(entry["value"].items())}

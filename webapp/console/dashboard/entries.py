"""The entries of a state as its page shows them: filtered, sorted and in pages, with the top keys as bars.

A page starts after the last entry of the page before, so every page costs the same, and the only ways back are the
browser's Back button and the first page. Invalid parts of a query string are ignored.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import QueryDict

from tidegauge.state_backends import Snapshot, StateSpec
from tidegauge.state_backends.errors import (
    BackendUnavailable,
    FilterError,
    FindingError,
    KeyShapeError,
    MovedOnError,
    NotCommittedError,
    OutOfReachError,
    RangeTooLargeError,
    SpecError,
    TilesGoneError,
)
from tidegauge.state_backends.reader.filters import Filter
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.types import type_of
from tidegauge.webapp.console.dashboard.ordered_query import OrderedQuery, as_list, clean, named
from tidegauge.webapp.console.dashboard.pasted import whole_number

PAGE_ENTRIES = 25
# Measures that a table of entries shows if none are chosen: more are not seen without scrolling.
MOST_COLUMNS = 7
TIMES = ("timestamptz", "date")
TOP_KEYS = 10
FORMATS = {"csv": "CSV", "ndjson": "NDJSON", "arrow": "Arrow"}

# Errors of requests that cannot be answered; the page shows the reason.
REFUSED = (
    KeyShapeError,
    FilterError,
    OutOfReachError,
    NotCommittedError,
    RangeTooLargeError,
    SpecError,
    TilesGoneError,
)
# The values may be unavailable while the catalog is available, or change faster than a long read can follow.
UNAVAILABLE = (BackendUnavailable, FindingError, MovedOnError)


@dataclass(frozen=True)
class EntriesQuery(OrderedQuery):
    """The query string of the page.

    q: start of a key part. prefix: leading key parts, as typed. where: a condition, as typed. order: a measure or key
    column, with `-` for descending; empty for the newest first, or in key order if `newest` is empty. by: the measure
    of the top keys; empty for the first one. measures: those shown; empty for the first ones. as_of: a batch, None for
    the latest. after: last entry of the page before, as JSON; empty for the first page. n: number of entries on earlier
    pages.
    """

    q: str = ""
    prefix: str = ""
    where: str = ""
    order: str = ""
    by: str = ""
    measures: tuple[str, ...] = ()
    as_of: int | None = None
    after: str = ""
    n: int = 0
    newest: str = ""

    @classmethod
    def parse(cls, asked: QueryDict, spec: StateSpec) -> "EntriesQuery":
        """Read a query string; invalid parts are left out."""
        numbers, times = number_measures(spec), time_columns(spec)
        order, by = asked.get("order", ""), asked.get("by", "")
        chosen = named(list(spec.measures), asked.getlist("measures"))
        after = asked.get("after", "") if as_list(asked.get("after", "")) is not None else ""
        return cls(
            q=clean(asked.get("q", "")),
            prefix=clean(asked.get("prefix", "")),
            where=clean(asked.get("where", "")),
            order=order if order.removeprefix("-") in [*numbers, *times] else "",
            by=by if by in numbers else "",
            measures=() if chosen == tuple(spec.measures)[:MOST_COLUMNS] else chosen,
            as_of=whole_number(asked.get("as_of", "")),
            after=after,
            n=whole_number(asked.get("n", "")) or 0 if after else 0,
            newest=next(iter(times), ""),
        )

    def shown_measures(self, spec: StateSpec) -> list[str]:
        """Return the measures of the table's columns; the one that it is sorted by is always included."""
        chosen = list(self.measures or list(spec.measures)[:MOST_COLUMNS]) or ["value"]
        is_included = self.order_by is None or self.order_by in chosen or self.order_by in spec.key
        return chosen if is_included else [*chosen, self.order_by or ""]

    @property
    def is_search(self) -> bool:
        """Whether more is read than is shown, so that the limit of concurrent searches applies, as in the API."""
        return bool(self.q or self.where or self.order)

    @property
    def is_filtered(self) -> bool:
        return bool(self.q or self.prefix or self.where)

    @property
    def conditions(self) -> list[Filter]:
        """Raises FilterError for an invalid condition."""
        return [Filter.parse(self.where)] if self.where else []

    def address(self, **changes: Any) -> str:
        """Return the query string of this query with some parts changed."""
        changed = replace(self, **changes)
        every = asdict(changed) | {"newest": "", "measures": ",".join(changed.measures)}
        parts = {name: part for name, part in every.items() if part not in ("", None, 0)}
        # Added again, because a 0 is left out above for `n`, but batch 0 is not the latest batch.
        if self.as_of == 0 and "as_of" not in changes:
            parts["as_of"] = 0
        return f"?{urlencode(parts)}"

    @property
    def without_filter(self) -> str:
        return self.address(q="", prefix="", where="", after="", n=0)

    @property
    def now(self) -> str:
        return self.address(as_of=None, after="", n=0)

    def export(self, prefix: Key) -> list[tuple[str, str]]:
        """Return the label and address of a download from the API for each format, relative to the state's address.

        prefix: as typed values. The search does not apply, because a download is a range of keys in key order.
        """
        parts = {"prefix": json.dumps(list(prefix), default=str)} if prefix else {}
        parts |= {"where": self.where} if self.where else {}
        parts |= {"at_txid": str(self.as_of)} if self.as_of is not None else {}
        return [(label, f"export?{urlencode({'format': name} | parts)}") for name, label in FORMATS.items()]


@dataclass(frozen=True)
class Column:
    """direction: ascending, descending or none. address: of the page sorted by it; empty if it cannot be."""

    name: str
    direction: str
    address: str


@dataclass(frozen=True)
class Bar:
    """One of the top keys. share: its length in percent of the longest bar. then: where it ended before, if known."""

    key: list[Any]
    number: float | None
    share: float
    then: float | None = None


@dataclass(frozen=True)
class EntriesPage:
    """first, last: from 1. following: query string of the next page; empty on the last one.

    complete: False if only the first keys of the state were read. txid: the batch shown.
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


def time_columns(spec: StateSpec) -> list[str]:
    """Return the key columns that are times."""
    return [name for name, sql_type in spec.key.items() if sql_type in TIMES]


def number_measures(spec: StateSpec) -> list[str]:
    return [name for name, aggregator in spec.measures.items() if type_of(aggregator.result_type).is_number]


def entries_page(reader: Reader, query: EntriesQuery, prefix: Key) -> EntriesPage:
    """Raises KeyShapeError for an invalid `after`, and the others of REFUSED."""
    snapshot = reader.page(
        prefix=prefix,
        where=query.conditions,
        search=query.q,
        order_by=query.order_by,
        descending=query.descending,
        after=query.position,
        # One more than is shown, to know whether there is a next page.
        limit=PAGE_ENTRIES + 1,
        most_sorted=settings.TIDEGAUGE_SORT_MAX_KEYS,
        measures=query.shown_measures(reader.spec),
        at_txid=query.as_of,
    )
    found = snapshot.parsed()
    shown = [_with_cells(reader.spec, entry) for entry in found[:PAGE_ENTRIES]]
    following = _following(reader.spec, query, snapshot, len(found))
    return EntriesPage(query, _columns(reader.spec, query), shown, following, snapshot.complete, snapshot.txid)


def top_keys(reader: Reader, query: EntriesQuery, prefix: Key, measure: str) -> list[Bar]:
    """Return the keys with the largest numbers. The query's prefix, condition and batch apply, its search does not."""
    snapshot = reader.page(
        prefix=prefix,
        where=query.conditions,
        order_by=measure,
        descending=True,
        limit=TOP_KEYS,
        most_sorted=settings.TIDEGAUGE_SORT_MAX_KEYS,
        measures=[measure],
        at_txid=query.as_of,
    )
    return bars([(entry["key"], entry["value"][measure], None) for entry in snapshot.parsed()])


def bars(numbers: Sequence[tuple[list[Any], Any, Any]]) -> list[Bar]:
    """numbers: a key, its number, and its number before, or None."""
    longest = max((abs(number) for _, *both in numbers for number in both if is_number(number)), default=0) or 1

    def share(number: Any) -> float:
        return round(100 * abs(number) / longest, 2) if is_number(number) else 0.0

    return [Bar(key, now, share(now), share(then) if is_number(then) else None) for key, now, then in numbers]


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number. NaN and infinities are texts in JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def global_value(reader: Reader, at_txid: int | None) -> dict[str, Any] | None:
    """Return the values of a global aggregate by measure; None before its first batch."""
    value = reader.multi_get([()], at_txid=at_txid).parsed()[0]["value"]
    return value if value is None or reader.spec.measures else {"value": value}


def cells(spec: StateSpec, value: Any) -> list[tuple[str, Any]]:
    """Return the names and values to show: all measures, or the one JSON value; empty if there is no value."""
    if value is None:
        return []
    return list(value.items()) if spec.measures else [("value", value)]


def _following(spec: StateSpec, query: EntriesQuery, page: Snapshot, found: int) -> str:
    after = end_of_page(spec, page, PAGE_ENTRIES, query.order_by)
    return query.address(after=after, n=query.n + min(found, PAGE_ENTRIES)) if after else ""


def end_of_page(spec: StateSpec, page: Snapshot, shown: int, order_by: str | None) -> str:
    """Return the position after the entries shown, as JSON for `Reader.page`; empty if there are no more entries.

    page: read with a limit of one more entry than is shown.
    """
    # Fractions as text, because a float would lose digits of a numeric.
    found = json.loads(page.results, parse_float=str)
    if len(found) <= shown:
        # There may still be more, because the reader looks at a limited number of rows for a page.
        return "" if page.after is None else json.dumps(page.after)
    last = found[shown - 1]
    if order_by is None:
        return json.dumps(last["key"])
    named = dict(zip(spec.key, last["key"], strict=True)) if order_by in spec.key else last["value"]
    return json.dumps([named[order_by], last["key"]])


def _columns(spec: StateSpec, query: EntriesQuery) -> list[Column]:
    sortable = number_measures(spec)
    return [
        Column(name, _direction(name, query), query.sorted_by(name) if name in sortable else "")
        for name in query.shown_measures(spec)
    ]


def _direction(measure: str, query: EntriesQuery) -> str:
    if query.order_by != measure:
        return "none"
    return "descending" if query.descending else "ascending"


def _with_cells(spec: StateSpec, entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "id": json.dumps(entry["key"]), "cells": cells(spec, entry["value"])}

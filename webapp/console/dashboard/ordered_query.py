"""What the query strings of a state's pages have in common: an order, pages, and text fields."""

import json
from collections.abc import Sequence
from typing import Any

from tidegauge.webapp.api.rendering import parse_json


class OrderedQuery:
    """A query whose answer is ordered and comes in pages.

    order: a measure or key column, with `-` for descending; empty for the newest first, or in key order if `newest` is
    empty. after: where the page before ended, as JSON. newest: the key column with a time; empty if there is none. It
    is not part of the query string.
    """

    order: str
    after: str
    newest: str

    def address(self, **changes: Any) -> str:
        """Return the query string of this query with some parts changed."""
        raise NotImplementedError

    @property
    def sorted(self) -> str:
        """The order that the answer is read in; empty for key order."""
        return self.order or (f"-{self.newest}" if self.newest else "")

    @property
    def order_by(self) -> str | None:
        return self.sorted.removeprefix("-") or None

    @property
    def descending(self) -> bool:
        return self.sorted.startswith("-")

    @property
    def key_direction(self) -> str:
        """The direction of the heading of the key; empty if a measure orders the answer."""
        if self.order_by not in (None, self.newest):
            return ""
        return "descending" if self.descending else "ascending"

    @property
    def position(self) -> list[Any] | None:
        """Where the page before ended, as `Reader.page` takes it."""
        return as_list(self.after)

    @property
    def first_page(self) -> str:
        return self.address(after="", n=0)

    @property
    def in_key_order(self) -> str:
        """The address that sorts by key: by its time if it has one, the newest first, or the oldest if they are."""
        return self.address(order="" if self.order else self.newest, after="", n=0)

    def sorted_by(self, measure: str) -> str:
        """Return the address that sorts by a measure: descending first, ascending if it is descending already."""
        return self.address(order=measure if self.order == f"-{measure}" else f"-{measure}", after="", n=0)


def some_of(names: Sequence[str], asked: Sequence[str]) -> tuple[str, ...]:
    """Return the names that are asked for, as `named`; empty if all of them are."""
    chosen = named(names, asked)
    return () if len(chosen) == len(names) else chosen


def named(names: Sequence[str], asked: Sequence[str]) -> tuple[str, ...]:
    """Return the names that are asked for, in one value or several, separated by commas."""
    wanted = {name for text in asked for name in text.split(",")}
    return tuple(name for name in names if name in wanted)


def clean(text: str) -> str:
    """Return the text of a field, cut to 400 characters, and without NUL, which PostgreSQL does not store in texts."""
    return text.replace("\0", "").strip()[:400]


def as_list(text: str) -> list[Any] | None:
    """Return a list written as JSON; None for any other text."""
    try:
        parse_json(text)
        # Parsed again by json, because orjson turns whole numbers of more than 64 bits into floats.
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, list) else None

"""What the query strings of a state's pages have in common: an order, pages, and text fields."""

import json
from typing import Any

from tidegauge.webapp.api.rendering import parse_json


class OrderedQuery:
    """A query whose answer is ordered and comes in pages.

    order: a measure, with `-` for descending; empty for key order. after: where the page before ended, as JSON.
    """

    order: str
    after: str

    def address(self, **changes: Any) -> str:
        """Return the query string of this query with some parts changed."""
        raise NotImplementedError

    @property
    def order_by(self) -> str | None:
        return self.order.removeprefix("-") or None

    @property
    def descending(self) -> bool:
        return self.order.startswith("-")

    @property
    def position(self) -> list[Any] | None:
        """Where the page before ended, as `Reader.page` takes it."""
        return as_list(self.after)

    @property
    def first_page(self) -> str:
        return self.address(after="", n=0)

    @property
    def in_key_order(self) -> str:
        return self.address(order="", after="", n=0)

    def sorted_by(self, measure: str) -> str:
        """Return the address that sorts by a measure: descending first, ascending if it is descending already."""
        return self.address(order=measure if self.order == f"-{measure}" else f"-{measure}", after="", n=0)


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

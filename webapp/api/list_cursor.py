"""Cursors of lists that are newest first: alerts, batches, runs, usage, the versions of a key.

A cursor is where a page ended and what the list was narrowed to, signed, so that a client can send it alone and cannot
change it. Cursors of entries have more to keep, see entries.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.core import signing

from tidegauge.webapp.api.entries import MALFORMED, InvalidCursorError, check_same_request

SIGNER = signing.Signer(salt="tidegauge.webapp.api.list_cursor", sep=".")

Item = TypeVar("Item")


@dataclass(frozen=True)
class ListQuery:
    """A page of a list. of: what is listed. narrowed: the parameters that narrow it. before: where the last page ended;
    None: the first page."""

    of: str
    narrowed: Mapping[str, Any]
    before: int | None = None

    @classmethod
    def read(cls, of: str, asked: Mapping[str, Any], narrowing: Sequence[str] = ()) -> "ListQuery":
        """asked: parameters, of which `narrowing` narrow the list. Raises InvalidCursorError."""
        given = {name: asked[name] for name in narrowing if name in asked}
        if "cursor" not in asked:
            return cls(of, given)
        try:
            kept = SIGNER.unsign_object(asked["cursor"])
        except signing.BadSignature:
            raise InvalidCursorError(MALFORMED) from None
        if kept["of"] != of:
            raise InvalidCursorError(f"cursor belongs to {kept['of']}, not to {of}; start again without a cursor")
        check_same_request(kept["narrowed"], given)
        return cls(**kept)

    def page(
        self, found: Sequence[Item], limit: int, place: Callable[[Item], int]
    ) -> tuple[Sequence[Item], str | None]:
        """Return the items of the page, and the cursor of the next one, None on the last page.

        found: the items, and one more if there is a next page. place: returns what `before` is for the page after it.
        """
        if len(found) <= limit:
            return found, None
        shown = found[:limit]
        return shown, self.after(place(shown[-1]))

    def after(self, place: int) -> str:
        """Return the cursor of the page that begins after a place."""
        return SIGNER.sign_object({"of": self.of, "narrowed": dict(self.narrowed), "before": place})

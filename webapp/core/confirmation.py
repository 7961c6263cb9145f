"""Confirmation pages: shown before an action runs, with its impact in numbers.

The dashboard and the admin show the same page. Its form posts to the same address, with `confirmed` and the signed
values that the page was drawn from. If one of them has changed since, the action is refused with the name of that
value, and the page is drawn again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.core import signing
from django.http import HttpRequest

CONFIRMED, SEEN = "confirmed", "seen"
VALID = timedelta(hours=1)

# Names of values that a page was drawn from. A pipeline keeps running meanwhile, so its txid may grow, and the rows to
# be removed may grow a little.
TXID, REMOVED = "committed batch", "rows to be removed"
GROWTH, FEW_ROWS = 1.1, 100

# The values of a page, by subject: `{"state 'views'": {"committed batch": 12, "retention": "unlimited"}}`.
Seen = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Confirmation:
    """A page that is shown before an action runs.

    button: its label, empty if there is nothing to confirm. cancel_url: where Cancel leads. notes: what applies to all
    rows. headers, rows: a table of what happens to each. danger: the action cannot be undone. hidden: names and values
    that the form submits again. seen: values that it was drawn from; the action is refused if one has changed.
    """

    title: str
    button: str
    cancel_url: str
    notes: Sequence[str] = ()
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    danger: bool = False
    hidden: Sequence[tuple[str, str]] = field(default_factory=list)
    seen: Seen = field(default_factory=dict)

    @property
    def posted(self) -> list[tuple[str, str]]:
        """Everything that its form submits."""
        seen = [(SEEN, signing.dumps(self.seen, salt=SEEN))] if self.seen else []
        return [*self.hidden, *seen, (CONFIRMED, "yes")]

    @property
    def labelled_rows(self) -> list[list[tuple[str, Any]]]:
        return [list(zip(self.headers, row, strict=True)) for row in self.rows]

    def refusal(self, request: HttpRequest) -> str:
        """Return why the confirmation of this page no longer holds, such as a changed value; empty if it does."""
        try:
            seen = signing.loads(request.POST.get(SEEN, ""), salt=SEEN, max_age=VALID)
        except signing.BadSignature:
            return "this page is older than an hour; look at it again, then confirm"
        for subject, now in self.seen.items():
            if moved := "; ".join(_moved(seen.get(subject, {}), now)):
                return f"{subject} has changed since this page was drawn: {moved}; look at it again"
        return ""


def is_confirmed(request: HttpRequest) -> bool:
    return CONFIRMED in request.POST


def _moved(seen: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, value in now.items():
        before: Any = seen.get(name)
        may_grow = name in MAY_GROW and None not in (before, value)
        if not (MAY_GROW[name](before, value) if may_grow else before == value):
            yield f"{name} was {before}, is {value} now"


MAY_GROW: Mapping[str, Callable[[int, int], bool]] = {
    TXID: lambda before, now: now >= before,
    REMOVED: lambda before, now: now <= max(before * GROWTH, before + FEW_ROWS),
}

"""Cursors: where a page ended, and the question it answered, signed so that nobody can ask what was never answered."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Any

import orjson
from django.core import signing
from rest_framework.exceptions import ParseError

SIGNER = signing.Signer(salt="webapp.lookup.cursor", sep=".")
MALFORMED = "cursor is none of ours, or cut short; take `next` as it came, or start anew without one"


@dataclass(frozen=True)
class Cursor:
    """state: its name. made: when it was made, so that one made anew is told apart. question: as the client asked.

    after: where the page ended, as the reader gave it. pinned: the batch and the attempt at it that all pages are of;
    None where each page follows the committed one.
    """

    state: str
    made: str
    question: dict[str, Any]
    after: list[Any]
    pinned: tuple[int, int] | None = None

    def as_text(self) -> str:
        content = orjson.dumps([self.state, self.made, self.question, self.after, self.pinned])
        return SIGNER.sign(urlsafe_b64encode(content).decode().rstrip("="))

    @classmethod
    def from_text(cls, text: str) -> "Cursor":
        """Raises ParseError for what we have not written ourselves."""
        try:
            content = SIGNER.unsign(text)
        except signing.BadSignature:
            raise ParseError(MALFORMED) from None
        state, made, question, after, pinned = orjson.loads(urlsafe_b64decode(content + "=" * (-len(content) % 4)))
        return cls(state, made, question, after, None if pinned is None else (pinned[0], pinned[1]))

    def check(self, state: str, given: dict[str, Any]) -> None:
        """Raises ParseError where the cursor belongs to another state, or to another question than the one given."""
        if self.state != state:
            raise ParseError(f"cursor belongs to state {self.state!r}, not to {state!r}; start anew without one")
        for name, value in given.items():
            if self.question.get(name) != value:
                raise ParseError(
                    f"cursor belongs to another question: {name} was {self.question.get(name)!r}, not {value!r}; give "
                    "the cursor alone, or start anew without one"
                )

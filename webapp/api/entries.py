"""Parameters of query strings, read one by one; a wrong one is named."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson
import psycopg
from django.core import signing
from rest_framework.exceptions import APIException, ParseError

from state_backends import Snapshot, StateSpec
from state_backends.errors import OutOfReachError
from state_backends.reader.reader import Reader
from state_backends.types import KEY_TYPES
from webapp.accounts.permissions import KeyScope
from webapp.api.lookups import read
from webapp.api.question import LARGEST_TXID
from webapp.api.serializers import MAX_ENTRIES
from webapp.states import readers


def text(asked: Mapping[str, str], name: str) -> str:
    found = asked.get(name, "")
    if "\0" in found:
        raise ParseError(f"{name} holds a NUL character")
    return found


def names(asked: Mapping[str, str], name: str) -> list[str] | None:
    """Return names that stand with commas between them; None if absent."""
    found = text(asked, name)
    return found.split(",") if found else None


def whole_number(asked: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """Return a number within bounds; None if absent."""
    found = asked.get(name)
    if found is None:
        return None
    # Python reads more digits than these, and signs, blanks and underscores, too.
    if not (found.isascii() and found.isdecimal() and len(found) < 20 and least <= int(found) <= most):
        raise ParseError(f"{name} must be a number from {least} to {most}, got {found[:40]!r}")
    return int(found)


def key_parts(asked: Mapping[str, str], name: str) -> list[Any] | str:
    """Return leading key parts: a JSON list, or bare text for the first one alone; empty text if absent."""
    found = text(asked, name)
    if not found.startswith("["):
        return found
    try:
        return orjson.loads(found)
    except orjson.JSONDecodeError as error:
        raise ParseError(
            f"{name} starts as a JSON list and is none: {error}; write it so, or as bare text for the first part"
        ) from None


# Cursors: where a page ended, and the question it answered, signed so that nobody can ask what was never answered.


SIGNER = signing.Signer(salt="webapp.api.entries", sep=".")
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


# Entries of one state: which ones a client asks for, and the pages that answer.
#
# In key order each page follows the committed batch: a key is on one page, and what is committed meanwhile is seen as
# one goes on. By a measure that would show a key twice or not at all, as values move; so the pages after the first
# are those of the first one's batch, as they are where `as_of` says so.


COMMITTED = "committed"
DEFAULT_LIMIT = 50
# What a client may give; `limit` may change from page to page.
ASKED = ("prefix", "from", "to", "search", "order_by", "as_of", "measures")


class PagesGoneError(APIException):
    """The batch that pages are pinned to can be told no more: start anew."""

    status_code = 410


@dataclass(frozen=True)
class Question:
    """prefix, start, stop: leading key parts, as JSON has them. order_by: a measure; None means in key order.

    measures: None means all. as_of: a batch, COMMITTED for the one of the first page, None for each page's own.
    """

    prefix: list[Any] | str = ""
    start: list[Any] | str = ""
    stop: list[Any] | str = ""
    search: str = ""
    order_by: str | None = None
    descending: bool = False
    measures: list[str] | None = None
    as_of: int | str | None = None

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> "Question":
        """Raises ParseError naming the parameter that does not fit."""
        order_by = text(asked, "order_by")
        as_of = asked.get("as_of")
        return cls(
            prefix=key_parts(asked, "prefix"),
            start=key_parts(asked, "from"),
            stop=key_parts(asked, "to"),
            search=text(asked, "search"),
            order_by=order_by.removeprefix("-") or None,
            descending=order_by.startswith("-"),
            measures=names(asked, "measures"),
            as_of=COMMITTED if as_of == COMMITTED else whole_number(asked, "as_of", 0, LARGEST_TXID),
        )

    @property
    def batch(self) -> int | None:
        """The batch that is asked for by its number; None stands for the committed one."""
        return self.as_of if isinstance(self.as_of, int) else None

    @property
    def is_pinned(self) -> bool:
        return self.order_by is not None or self.as_of == COMMITTED

    def bounds(self, spec: StateSpec, confined: KeyScope) -> dict[str, Any]:
        """Return the range as a reader takes it. Raises KeyShapeError, OutsideError."""
        prefix = confined.check_prefix(spec, parts_of(self.prefix, spec))
        return {"prefix": prefix, "start": parts_of(self.start, spec), "stop": parts_of(self.stop, spec)}


@dataclass(frozen=True)
class Page:
    state: str
    isolation: str
    snapshot: Snapshot
    next: str | None

    @property
    def document(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "txid": self.snapshot.txid,
            "as_of": self.snapshot.as_of,
            "isolation": self.isolation,
            "complete": self.snapshot.complete,
            "entries": orjson.Fragment(self.snapshot.results),
            "next": self.next,
        }


def page(name: str, asked: Mapping[str, str], confined: KeyScope) -> Page:
    """Return the page that a query string asks for: the first one of a question, or the one that a cursor leads to.

    Raises ParseError, UnknownStateError, KeyShapeError, SpecError for a measure that is none or has no order,
    OutsideError, NotCommittedError, OutOfReachError, PagesGoneError.
    """
    confined.check_state(name)
    limit = whole_number(asked, "limit", 1, MAX_ENTRIES) or DEFAULT_LIMIT
    cursor = Cursor.from_text(asked["cursor"]) if "cursor" in asked else None
    if cursor is None:
        question = Question.of(asked)
    else:
        question = Question(**cursor.question)
        cursor.check(name, _given(asked))
    return read(lambda conn: _page(conn, name, question, cursor, limit, confined))


def _given(asked: Mapping[str, str]) -> dict[str, Any]:
    """Return what a client repeats of its question beside a cursor."""
    whole = asdict(Question.of(asked))
    given = {"prefix": ["prefix"], "from": ["start"], "to": ["stop"], "order_by": ["order_by", "descending"]}
    return {part: whole[part] for name in ASKED if name in asked for part in given.get(name, [name])}


def _page(
    conn: psycopg.Connection, name: str, question: Question, cursor: Cursor | None, limit: int, confined: KeyScope
) -> Page:
    reader, made = readers.marked_reader(conn, name)
    mark = "" if made is None else made[1].isoformat()
    if cursor is not None and cursor.made != mark:
        raise PagesGoneError(f"state {name!r} was made anew since the first page; start anew without a cursor")
    snapshot = _snapshot(reader, question, cursor, limit, confined)
    following = None
    if snapshot.after is not None:
        pinned = (snapshot.txid, snapshot.attempt) if question.is_pinned else None
        following = Cursor(name, mark, asdict(question), snapshot.after, pinned).as_text()
    return Page(name, reader.isolation, snapshot, following)


def _snapshot(reader: Reader, question: Question, cursor: Cursor | None, limit: int, confined: KeyScope) -> Snapshot:
    pinned = None if cursor is None else cursor.pinned
    try:
        snapshot = reader.page(
            **question.bounds(reader.spec, confined),
            search=question.search,
            order_by=question.order_by,
            descending=question.descending,
            after=None if cursor is None else cursor.after,
            limit=limit,
            measures=question.measures,
            as_of=question.batch if pinned is None else pinned[0],
        )
    except OutOfReachError as error:
        raise error if pinned is None else _gone(reader.spec.name, pinned[0]) from error
    if pinned is not None and snapshot.attempt != pinned[1]:
        raise PagesGoneError(
            f"state {reader.spec.name!r}: batch {pinned[0]}, which these pages are of, was replayed; start anew "
            "without a cursor"
        )
    return snapshot


def _gone(state: str, txid: int) -> PagesGoneError:
    return PagesGoneError(
        f"state {state!r}: batch {txid}, which these pages are of, is out of reach by now; start anew without a "
        "cursor, or keep a changelog of the state, with which pages stay within reach"
    )


def parts_of(asked: list[Any] | str, spec: StateSpec) -> list[Any]:
    """Let bare text stand for the first key part, whatever its type."""
    if isinstance(asked, list):
        return asked
    if not asked:
        return []
    first = next(iter(spec.key.values()), "text")
    if KEY_TYPES[first].is_text_in_json:
        return [asked]
    try:
        return [orjson.loads(asked)]
    except orjson.JSONDecodeError:
        return [asked]

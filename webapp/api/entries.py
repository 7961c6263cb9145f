"""Entries of one state in pages.

In key order each page shows the batch that is committed at that time: a key is on one page only, and later pages show
what was committed meanwhile. Sorted by a measure that would repeat or skip keys, because values change; so all pages
show the batch of the first one, as they do where `at_txid` is given.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any

import orjson
import psycopg
from django.conf import settings
from django.core import signing
from rest_framework.exceptions import APIException, ParseError

from tidegauge.state_backends import Snapshot, StateSpec
from tidegauge.state_backends.errors import NotCommittedError, OutOfReachError
from tidegauge.state_backends.reader.filters import Filter
from tidegauge.state_backends.reader.pinned import txid_at
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.types import KEY_TYPES
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.api.fields import COMMITTED
from tidegauge.webapp.api.lookups import batch_document, read
from tidegauge.webapp.api.rendering import parse_json
from tidegauge.webapp.api.requests import check_moment
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.core.pools import SEARCH_CURSOR

DEFAULT_LIMIT = 50
# Parameters that a cursor contains, and the fields of `EntriesQuery` that they set. `limit` may change between pages.
FIELDS_OF = {
    "prefix": ["prefix"],
    "from": ["start"],
    "to": ["stop"],
    "search": ["search"],
    "order_by": ["order_by", "descending"],
    "at_txid": ["at_txid"],
    "at_time": ["at_time"],
    "measures": ["measures"],
    "where": ["where"],
}
PARTS_OF_CURSOR = 6
SIGNER = signing.Signer(salt="tidegauge.webapp.api.entries", sep=".")
EARLIER_VERSION = "cursor is of an earlier version of this server; start again without a cursor"
MALFORMED = "cursor is not one of this server, or is cut short; send `next` unchanged, or start again without a cursor"


class InvalidCursorError(ParseError):
    """A cursor is not one of this server, this state or these parameters: start again without it."""


class PagesGoneError(APIException):
    """The batch of these pages is no longer available, or its number is another batch's by now: start again."""

    status_code = 410


@dataclass(frozen=True)
class EntriesQuery:
    """prefix, start, stop: leading key parts, as JSON has them. order_by: a measure or key column; None: in key order.

    measures: None means all. at_txid: a batch, COMMITTED for the one of the first page, None for each page's own.
    at_time: text; the first page puts the batch of that time into at_txid. where: conditions, as text.
    """

    prefix: list[Any] | str = ""
    start: list[Any] | str = ""
    stop: list[Any] | str = ""
    search: str = ""
    order_by: str | None = None
    descending: bool = False
    measures: list[str] | None = None
    at_txid: int | str | None = None
    at_time: str | None = None
    where: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> "EntriesQuery":
        """asked: what `EntriesParameters` read."""
        order_by, at_time = asked.get("order_by", ""), asked.get("at_time")
        check_moment(asked)
        return cls(
            prefix=asked.get("prefix", ""),
            start=asked.get("from", ""),
            stop=asked.get("to", ""),
            search=asked.get("search", ""),
            order_by=order_by.removeprefix("-") or None,
            descending=order_by.startswith("-"),
            measures=asked.get("measures"),
            at_txid=asked.get("at_txid"),
            at_time=None if at_time is None else at_time.isoformat(),
            where=asked.get("where", []),
        )

    @property
    def batch(self) -> int | None:
        """The number of the batch requested; None stands for the committed one."""
        return self.at_txid if isinstance(self.at_txid, int) else None

    def with_batch(self, conn: psycopg.Connection, state: str) -> "EntriesQuery":
        """Return the query with the batch of `at_time`. Raises OutOfReachError, NotCommittedError on a replica."""
        if self.at_time is None or self.at_txid is not None:
            return self
        return replace(self, at_txid=txid_at(conn, state, datetime.fromisoformat(self.at_time)))

    @property
    def is_search(self) -> bool:
        """Whether more is read than is answered."""
        return bool(self.search or self.order_by or self.where)

    @property
    def is_pinned(self) -> bool:
        return self.order_by is not None or self.at_txid == COMMITTED

    def bounds(self, spec: StateSpec, scope: KeyScope) -> dict[str, Any]:
        """Return range and filters as a reader takes them. Raises KeyShapeError, OutsideError, FilterError."""
        prefix = scope.check_prefix(spec, parts_of(self.prefix, spec))
        start, stop = parts_of(self.start, spec), parts_of(self.stop, spec)
        return {"prefix": prefix, "start": start, "stop": stop, "where": [Filter.parse(text) for text in self.where]}


KEPT = {each.name for each in fields(EntriesQuery)}


@dataclass(frozen=True)
class PageCursor:
    """Where a page ended, and the query that it answered; signed, so that a client cannot change it.

    state: its name. made: when it was created, to detect that it was created again. epoch: the ledger's. after: where
    the page ended, as the reader gave it. pinned: batch and attempt of all pages; None if each page shows the committed
    batch.
    """

    state: str
    made: str
    epoch: str
    query: dict[str, Any]
    after: list[Any]
    pinned: tuple[int, int] | None = None

    def as_text(self) -> str:
        content = orjson.dumps([self.state, self.made, self.epoch, self.query, self.after, self.pinned])
        kind = SEARCH_CURSOR if EntriesQuery(**self.query).is_search else ""
        return SIGNER.sign(kind + urlsafe_b64encode(content).decode().rstrip("="))

    @classmethod
    def from_text(cls, text: str) -> "PageCursor":
        """Raises InvalidCursorError for a cursor that this server did not write."""
        try:
            content = SIGNER.unsign(text)
        except signing.BadSignature:
            raise InvalidCursorError(MALFORMED) from None
        encoded = content.removeprefix(SEARCH_CURSOR)
        parts = orjson.loads(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
        if len(parts) != PARTS_OF_CURSOR:
            raise InvalidCursorError(EARLIER_VERSION)
        state, made, epoch, query, after, pinned = parts
        if query.keys() != KEPT or EntriesQuery(**query).is_search != (encoded != content):
            raise InvalidCursorError(EARLIER_VERSION)
        return cls(state, made, epoch, query, after, None if pinned is None else (pinned[0], pinned[1]))

    def check(self, state: str, asked: Mapping[str, Any]) -> None:
        """Raises InvalidCursorError if the cursor is of another state or of other parameters than those given."""
        if self.state != state:
            raise InvalidCursorError(
                f"cursor belongs to state {self.state!r}, not to {state!r}; start again without a cursor"
            )
        given = asdict(EntriesQuery.of(asked))
        named = (each for parameter, kept in FIELDS_OF.items() if parameter in asked for each in kept)
        check_same_request(self.query, {name: given[name] for name in named})


def check_same_request(kept: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises InvalidCursorError if a parameter that is given beside a cursor is another than the cursor keeps."""
    for name, value in given.items():
        if kept.get(name) != value:
            raise InvalidCursorError(
                f"cursor belongs to another request: {name} was {kept.get(name)!r}, not {value!r}; send the cursor "
                "alone, or start again without one"
            )


@dataclass(frozen=True)
class EntriesPage:
    state: str
    isolation: str
    snapshot: Snapshot
    next: str | None

    @property
    def document(self) -> dict[str, Any]:
        return {
            "state": self.state,
            **batch_document(self.snapshot),
            "isolation": self.isolation,
            "complete": self.snapshot.complete,
            "entries": orjson.Fragment(self.snapshot.results),
            "next": self.next,
        }


def page(name: str, asked: Mapping[str, Any], scope: KeyScope) -> EntriesPage:
    """Return the page that a client asks for: the first one of a query, or the one after a cursor.

    asked: what `EntriesParameters` read. Raises ParseError, UnknownStateError, KeyShapeError, FilterError,
    OutsideError, SpecError for a measure that does not exist or has no order, RangeTooLargeError,
    NotCommittedError, OutOfReachError, PagesGoneError.
    """
    cursor = PageCursor.from_text(asked["cursor"]) if "cursor" in asked else None
    if cursor is None:
        query = EntriesQuery.of(asked)
    else:
        cursor.check(name, asked)
        query = EntriesQuery(**cursor.query)
    return read(lambda conn: read_page(conn, name, query, cursor, asked.get("limit", DEFAULT_LIMIT), scope))


def read_page(
    conn: psycopg.Connection, name: str, query: EntriesQuery, cursor: PageCursor | None, limit: int, scope: KeyScope
) -> EntriesPage:
    """Return the page of a query behind a cursor, or its first one. Raises what `page` does."""
    reader, version = readers.versioned_reader(conn, name)
    made = "" if version is None else version[1].isoformat()
    if cursor is not None and cursor.made != made:
        raise PagesGoneError(f"state {name!r} was created again since the first page; start again without a cursor")
    query = query.with_batch(conn, name)
    snapshot = _snapshot(reader, query, cursor, limit, scope)
    following = None
    if snapshot.after is not None:
        pinned = (snapshot.txid, snapshot.attempt) if query.is_pinned else None
        following = PageCursor(name, made, snapshot.epoch, asdict(query), snapshot.after, pinned).as_text()
    return EntriesPage(name, reader.isolation, snapshot, following)


def _snapshot(reader: Reader, query: EntriesQuery, cursor: PageCursor | None, limit: int, scope: KeyScope) -> Snapshot:
    pinned = None if cursor is None else cursor.pinned
    try:
        snapshot = reader.page(
            **query.bounds(reader.spec, scope),
            search=query.search,
            order_by=query.order_by,
            descending=query.descending,
            after=None if cursor is None else cursor.after,
            limit=limit,
            most_sorted=settings.TIDEGAUGE_SORT_MAX_KEYS,
            measures=query.measures,
            at_txid=query.batch if pinned is None else pinned[0],
        )
    except (OutOfReachError, NotCommittedError) as error:
        raise error if pinned is None else _gone(reader.spec.name, pinned[0]) from error
    if cursor is not None and snapshot.epoch != cursor.epoch:
        raise PagesGoneError(
            f"state {reader.spec.name!r}: these pages are of epoch {cursor.epoch!r} of the ledger, which went back and "
            f"counts its batches again under epoch {snapshot.epoch!r}; start again without a cursor"
        )
    if pinned is not None and snapshot.attempt != pinned[1]:
        raise PagesGoneError(
            f"state {reader.spec.name!r}: batch {pinned[0]}, which these pages show, was replayed; start again without "
            "a cursor"
        )
    return snapshot


def _gone(state: str, txid: int) -> PagesGoneError:
    return PagesGoneError(
        f"state {state!r}: batch {txid}, which these pages show, is no longer available; start again without a cursor, "
        "or keep a changelog of the state, which keeps its batches available"
    )


def checked_key(spec: StateSpec, key: list[Any] | str, scope: KeyScope) -> Key:
    """Return the key of a parameter. Raises ParseError, KeyShapeError, OutsideError."""
    scope.prefix_of(spec)  # first, since the refusal of a key names the key columns
    if key == "" and spec.key:
        raise ParseError(f"key must be given, as a JSON list of {', '.join(spec.key)}")
    typed = spec.check_key(parts_of(key, spec))
    scope.check_keys(spec, [typed])
    return typed


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
        return [parse_json(asked)]
    except orjson.JSONDecodeError:
        return [asked]

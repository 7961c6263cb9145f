"""Entries of a state in pages, and the history of one key."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from tidegauge.client.calls import Call, Request, Steps, in_json, path
from tidegauge.client.lookups import names, types_of
from tidegauge.client.paging import Paging
from tidegauge.client.values import AS_IN_JSON, Key, Time, Types, key_in_json, parsed, timestamp, to_json

PAGE_ENTRIES = 1_000


@dataclass(frozen=True)
class Range:
    """The part of a state's entries to read.

    prefix: the first parts of their keys. start: the first key. stop: the key to end before. For both, the first parts
    of a key are enough. where: filters on values, all of which must hold. at_time: instead of at_txid, the time of it.
    """

    prefix: Any = None
    start: Any = None
    stop: Any = None
    measures: Sequence[str] | None = None
    at_txid: int | Literal["committed"] | None = None
    where: Sequence[str] = ()
    at_time: Time | None = None

    def parameters(self) -> dict[str, str | list[str]]:
        bounds = {"prefix": self.prefix, "from": self.start, "to": self.stop}
        asked: dict[str, str | list[str]] = {
            name: in_json(key_in_json(bound)) for name, bound in bounds.items() if bound is not None
        }
        where = names(self.where)
        asked |= {"where": where} if where else {}
        measures = names(self.measures)
        asked |= {} if measures is None else {"measures": ",".join(measures)}
        asked |= {} if self.at_time is None else {"at_time": to_json(self.at_time)}
        return asked | ({} if self.at_txid is None else {"at_txid": str(self.at_txid)})


@dataclass(frozen=True)
class Entry:
    """A key and its value. txid, updated_at: the batch that wrote it last, and its time; None if they are not kept."""

    key: Key
    value: Any
    txid: int | None
    updated_at: datetime | None


@dataclass(frozen=True)
class Page:
    """Entries, all at batch `txid` of `epoch`. next: the cursor of the next page; None on the last page.

    complete: False if the rows are outside of the database and too many to search or sort all of them.
    """

    entries: Sequence[Entry]
    epoch: str
    txid: int
    batch_time: datetime | None
    isolation: str
    complete: bool
    next: str | None
    types: Types = field(default=AS_IN_JSON, repr=False, compare=False)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def table(self) -> list[dict[str, Any]]:
        """Return a dict by column per entry, for `pandas.DataFrame`, or for `Table.from_pylist` of Arrow."""
        return [self.types.row(entry.key, entry.value) for entry in self.entries]


@dataclass(frozen=True)
class Version:
    """The value of a key after batch `txid`, whose time is `at`. value: None if the key was removed."""

    txid: int | None
    at: datetime | None
    status: Literal["found", "removed"]
    value: Any


@dataclass(frozen=True)
class History:
    """The committed versions of a key, newest first. complete: False if older ones are no longer available.

    next: the cursor of the next page; None on the last page.
    """

    key: Key
    versions: Sequence[Version]
    complete: bool
    epoch: str
    txid: int
    next: str | None

    def __iter__(self) -> Iterator[Version]:
        return iter(self.versions)

    def __len__(self) -> int:
        return len(self.versions)


class Pages:
    """The pages of one request, in order. most: the maximum number of entries; None: all."""

    def __init__(self, state: str, parameters: Mapping[str, str | list[str]], most: int | None, page_size: int) -> None:
        self._state = state
        self._paging = Paging(parameters, most, page_size)

    @property
    def ended(self) -> bool:
        return self._paging.ended

    def next(self, call: Call) -> Steps[Page]:
        """Return the next page. Raises ApiError; GoneError if the batch that the pages show is no longer available."""
        document, types = yield from read_of_state(call, self._state, "entries", self._paging.parameters)
        page = page_of(document, types)
        self._paging.passed(len(page), page.next)
        return page


def pages(
    state: str, wanted: Range, search: str | None, order_by: str | None, most: int | None, page_size: int
) -> Pages:
    more = {name: text for name, text in (("search", search), ("order_by", order_by)) if text is not None}
    return Pages(state, wanted.parameters() | more, most, page_size)


def history(call: Call, state: str, key: Any, limit: int, cursor: str | None) -> Steps[History]:
    asked = {"key": in_json(key_in_json(key)), "limit": str(limit)}
    asked |= {} if cursor is None else {"cursor": cursor}
    document, types = yield from read_of_state(call, state, "history", asked)
    versions = [
        Version(row["txid"], timestamp(row["at"]), row["status"], types.value(row["value"]))
        for row in document["versions"]
    ]
    return History(
        types.key(document["key"]), versions, document["complete"], document["epoch"], document["txid"],
        document["next"],
    )  # fmt: skip


def read_of_state(call: Call, state: str, what: str, asked: Mapping[str, str | list[str]]) -> Steps[tuple[Any, Types]]:
    """Return the answer of `GET /states/{state}/{what}`, and the types of its values."""
    types = yield from types_of(call, state)
    response = yield from call.ask(Request("GET", path("states", state, what), asked))
    document = parsed(response.content, [types])
    # The cached types may be outdated, because the state may have been created again with other measures.
    if not types.knows(document):
        types = yield from types_of(call, state, again=True)
        document = parsed(response.content, [types])
    return document, types


def page_of(document: Mapping[str, Any], types: Types) -> Page:
    entries = [_entry(row, types) for row in document["entries"]]
    return Page(
        entries, document["epoch"], document["txid"], timestamp(document["batch_time"]), document["isolation"],
        document["complete"], document.get("next"), types,
    )  # fmt: skip


def _entry(row: Mapping[str, Any], types: Types) -> Entry:
    return Entry(types.key(row["key"]), types.value(row["value"]), row["txid"], timestamp(row["updated_at"]))

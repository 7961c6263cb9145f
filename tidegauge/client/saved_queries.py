"""Saved queries: reads with typed parameters that the owner of the states has published under a name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, cast

from tidegauge.client.answers import Answer, answer_of
from tidegauge.client.calls import Call, Request, Steps, in_json, path
from tidegauge.client.entries import Page, page_of
from tidegauge.client.errors import InvalidArgumentError
from tidegauge.client.lookups import typed_parts
from tidegauge.client.values import Time, parsed, timestamp, to_json

Parameters = Mapping[str, Any]


class ParameterDocument(TypedDict):
    name: str
    type: str
    required: bool
    many: bool
    description: str


class SavedQueryDocument(TypedDict):
    """A saved query that the API key may run: its newest version, and its parameters."""

    name: str
    version: int
    description: str
    states: list[str]
    parameters: list[ParameterDocument]
    published_at: str
    published_by: str
    url: str
    openapi: str


@dataclass(frozen=True)
class SavedAnswer:
    """The result of a saved query, all at batch `txid` of `epoch`, whose time is `batch_time`.

    answers: one per read of the query, in order: an `Answer` of keys, or a `Page` of entries.
    """

    query: str
    version: int
    epoch: str
    txid: int
    batch_time: datetime | None
    answers: Sequence[Answer | Page]


class SavedPages:
    """The pages of a saved query with one read, in order."""

    def __init__(self, name: str, version: int | None, parameters: Parameters | None, at: Mapping[str, str]) -> None:
        self._name, self._version = name, version
        self._parameters = parameters
        self._more = at
        self.ended = False

    def next(self, call: Call) -> Steps[Answer | Page]:
        found = yield from run(call, self._name, self._version, self._parameters, self._more)
        if len(found.answers) != 1:
            raise InvalidArgumentError(
                f"query {self._name!r} has {len(found.answers)} reads, each with an answer of its own; use run()"
            )
        [answer] = found.answers
        cursor = answer.next if isinstance(answer, Page) else None
        self.ended = cursor is None
        self._more = {"cursor": cursor or ""}
        return answer

    def next_entries(self, call: Call) -> Steps[Page]:
        answer = yield from self.next(call)
        if not isinstance(answer, Page):
            raise InvalidArgumentError(f"query {self._name!r} looks up keys and has no entries; use run()")
        return answer


def saved_queries(call: Call) -> Steps[list[SavedQueryDocument]]:
    return cast(
        "list[SavedQueryDocument]", (yield from call.json(Request("GET", path("saved-queries"))))["saved_queries"]
    )


def openapi(call: Call, name: str, version: int | None) -> Steps[dict[str, Any]]:
    document: dict[str, Any] = yield from call.json(Request("GET", f"{_address(name, version)}/openapi"))
    return document


def run(
    call: Call, name: str, version: int | None, parameters: Parameters | None, more: Mapping[str, str]
) -> Steps[SavedAnswer]:
    """Run a query. more: which batch it is to be answered at, or the cursor of a page."""
    asked = {each: _texts(value) for each, value in (parameters or {}).items() if value is not None}
    if reserved := asked.keys() & {"at_time", "at_txid", "cursor"}:
        raise InvalidArgumentError(
            f"{min(reserved)!r} cannot be a parameter of a saved query; pass at_txid and at_time as separate arguments"
        )
    response = yield from call.ask(Request("GET", _address(name, version), {**asked, **more}))
    document = parsed(response.content)
    parts = yield from typed_parts(call, [each["state"] for each in document["answers"]], response)
    answers = [page_of(part, types) if "entries" in part else answer_of(part, types) for part, types in parts]
    return SavedAnswer(
        document["query"], document["version"], document["epoch"], document["txid"], timestamp(document["batch_time"]),
        answers,
    )  # fmt: skip


def _address(name: str, version: int | None) -> str:
    return path("saved-queries", name) if version is None else path("saved-queries", name, "versions", version)


def batch(at_txid: int | None, at_time: Time | None) -> dict[str, str]:
    """Return the parameters that name a batch."""
    return {
        name: str(to_json(value)) for name, value in (("at_txid", at_txid), ("at_time", at_time)) if value is not None
    }


def _texts(value: Any) -> str | list[str]:
    """Return a value as the text of a parameter; several values as a list, which repeats the parameter."""
    if isinstance(value, list | tuple | set | frozenset):
        return [_text(each) for each in value]
    return _text(value)


def _text(value: Any) -> str:
    plain = to_json(value)
    return plain if isinstance(plain, str) else in_json(plain)

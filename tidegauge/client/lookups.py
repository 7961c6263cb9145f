"""Lookups: any number of keys, all at one batch, and several states at one batch.

A lookup of more keys than the server accepts in one request is sent in chunks. All are answered as of the batch that
was committed when the lookup began, with its time, so that the chunks agree on which keys are expired. The client
compares the ETag of an empty lookup before the first chunk and after the last one, because another attempt may replace
the batch in between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegauge.client.answers import Answer, Combined, Result, answer_of
from tidegauge.client.calls import UNCHANGED, Call, Request, Steps, clock, path
from tidegauge.client.errors import (
    BatchGoneError,
    NotCommittedError,
    NotReachedError,
    OtherEpochError,
    RequestError,
    Response,
    SnapshotLostError,
)
from tidegauge.client.values import AS_IN_JSON, Time, Types, key_in_json, parsed, to_json

# The server limits how long it waits for a batch, so a longer wait takes several requests.
WAIT_SECONDS = 1.0
TYPES_SECONDS = 60.0  # the types of a state are read again after this time, because it may have been created again

OUT_OF_REACH = (BatchGoneError, NotCommittedError, OtherEpochError, SnapshotLostError)


@dataclass(frozen=True)
class When:
    """at_txid: answer with the values after this batch. min_txid: wait for this batch. epoch: the epoch of both.

    at_time: instead of at_txid, the last batch whose time is not after this one. wait: seconds to wait for min_txid;
    None: one request, for as long as the server allows.
    """

    at_txid: int | None = None
    min_txid: int | None = None
    epoch: str | None = None
    wait: float | None = None
    at_time: Time | None = None


@dataclass(frozen=True)
class Lookup:
    """The keys to read of one state. combine: fold the values of all keys into one."""

    state: str
    keys: Sequence[Any]
    measures: Sequence[str] | None = None
    combine: bool = False

    def body(self, keys: Sequence[Any]) -> dict[str, Any]:
        asked = {"keys": keys, "combine": self.combine or None, "measures": names(self.measures)}
        return {name: value for name, value in asked.items() if value is not None}


def get(call: Call, lookup: Lookup, when: When) -> Steps[Any]:
    """Return the value of its only key; None unless found."""
    return (yield from look_up(call, lookup, when)).results[0].value


def combine(call: Call, lookup: Lookup, when: When) -> Steps[Combined]:
    answer = yield from look_up(call, lookup, when)
    assert answer.combined is not None
    return answer.combined


def look_up(call: Call, lookup: Lookup, when: When) -> Steps[Answer]:
    """Return the answer of one state. Raises ApiError, SnapshotLostError."""
    [answer] = yield from look_up_together(call, [lookup], when)
    return answer


def look_up_together(call: Call, lookups: Sequence[Lookup], when: When) -> Steps[list[Answer]]:
    """Return an answer per lookup, all at one batch."""
    keys = [[key_in_json(key) for key in lookup.keys] for lookup in lookups]
    while True:
        limit = call.server.max_keys
        try:
            if sum(map(len, keys)) <= limit or any(lookup.combine for lookup in lookups):
                return (yield from _at_once(call, lookups, keys, when))
            return (yield from _in_chunks(call, lookups, keys, when))
        except RequestError as error:
            # The error names the server's own limit, which may be lower than the default.
            call.server.max_keys = int(error.problem.get("max_keys") or limit)
            if call.server.max_keys >= limit:
                raise


def _at_once(call: Call, lookups: Sequence[Lookup], keys: Sequence[list[Any]], when: When) -> Steps[list[Answer]]:
    bodies = [lookup.body(each) for lookup, each in zip(lookups, keys, strict=True)]
    if len(lookups) == 1:
        response = yield from waiting(call, path("states", lookups[0].state, "lookup"), bodies[0], when)
    else:
        named = [{"state": lookup.state} | body for lookup, body in zip(lookups, bodies, strict=True)]
        response = yield from waiting(call, path("lookup"), {"lookups": named}, when)
    return (yield from _answers(call, lookups, response))


def _answers(call: Call, lookups: Sequence[Lookup], response: Response) -> Steps[list[Answer]]:
    parts = yield from typed_parts(call, [lookup.state for lookup in lookups], response)
    return [answer_of(part, types) for part, types in parts]


def _in_chunks(call: Call, lookups: Sequence[Lookup], keys: Sequence[list[Any]], when: When) -> Steps[list[Answer]]:
    try:
        return (yield from _chunks(call, lookups, keys, when))
    except OUT_OF_REACH:
        if when.at_txid is not None or when.at_time is not None:
            raise
    try:
        return (yield from _chunks(call, lookups, keys, when))
    except OUT_OF_REACH as error:
        raise SnapshotLostError(
            f"{sum(map(len, keys))} keys of {_names_of(lookups)} were asked for, {call.server.max_keys} at a time, but "
            f"twice their batch did not stay available ({error}); ask for fewer, or let the state keep a changelog"
        ) from error


def _chunks(call: Call, lookups: Sequence[Lookup], keys: Sequence[list[Any]], when: When) -> Steps[list[Answer]]:
    """Look up in chunks. Raises SnapshotLostError if the batch is replayed meanwhile, and what a request raises."""
    size, answers = call.server.max_keys, []
    starts = yield from _at_once(call, lookups, [[] for _ in lookups], when)
    pinned = When(at_txid=starts[0].txid, epoch=starts[0].epoch)
    tag = (yield from _empty(call, lookups[0].state, pinned)).headers.get("etag", "")
    for lookup, asked, start in zip(lookups, keys, starts, strict=True):
        found: list[Result] = []
        for first in range(0, len(asked), size):
            [answer] = yield from _at_once(call, [lookup], [asked[first : first + size]], pinned)
            found += answer.results
        answers.append(replace(start, results=found))
    if (yield from _empty(call, lookups[0].state, pinned, tag)).status != UNCHANGED:
        raise SnapshotLostError(
            f"batch {pinned.at_txid} of {_names_of(lookups)} was replayed during the lookup; ask again"
        )
    return answers


def _empty(call: Call, state: str, when: When, tag: str = "") -> Steps[Response]:
    """Send a lookup without keys, whose answer has the ETag of the batch."""
    headers = {"If-None-Match": tag} if tag else {}
    return (yield from waiting(call, path("states", state, "lookup"), {"keys": []}, when, headers))


def waiting(
    call: Call, where: str, body: Mapping[str, Any], when: When, headers: Mapping[str, str] | None = None
) -> Steps[Response]:
    """Send a lookup, and repeat it until `min_txid` is committed or `wait` is over."""
    asked = {"at_txid": when.at_txid, "at_time": to_json(when.at_time), "min_txid": when.min_txid, "epoch": when.epoch}
    body = {**body, **{name: value for name, value in asked.items() if value is not None}}
    ends = None if when.wait is None else clock() + when.wait
    while True:
        if ends is not None:
            body["wait_ms"] = int(1_000 * min(WAIT_SECONDS, max(0.0, ends - clock())))
        try:
            return (yield from call.ask(Request("POST", where, body=body, headers=headers or {})))
        except NotReachedError:
            if ends is None or clock() >= ends:
                raise


def types_of(call: Call, state: str, again: bool = False) -> Steps[Types]:
    """Return the types of a state's columns. again: read them from the server even if they are cached."""
    if not call.options.typed:
        return AS_IN_JSON
    read_at, types = call.server.types.get(state, (-TYPES_SECONDS, AS_IN_JSON))
    if again or clock() - read_at >= TYPES_SECONDS or types is AS_IN_JSON:
        types = Types.of((yield from call.json(Request("GET", path("states", state)))))
        call.server.types[state] = (clock(), types)
    return types


def typed_parts(call: Call, states: Sequence[str], response: Response) -> Steps[list[tuple[Any, Types]]]:
    """Return the answer of each state, and its types."""
    again = False
    while True:
        types = []
        for state in states:
            types.append((yield from types_of(call, state, again)))
        document = parsed(response.content, types)
        parts = [document | part for part in document.get("answers", [document])]
        if again or all(each.knows(part) for each, part in zip(types, parts, strict=True)):
            return list(zip(parts, types, strict=True))
        again = True


def names(measures: Sequence[str] | None) -> list[str] | None:
    """Return the names of measures as a list. A bare string is a single name."""
    return None if measures is None else [measures] if isinstance(measures, str) else list(measures)


def _names_of(lookups: Sequence[Lookup]) -> str:
    return ", ".join(repr(lookup.state) for lookup in lookups)

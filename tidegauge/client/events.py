"""Event streams: server-sent events as typed values. After a drop they resume with the last event's id.

A stream continues until its consumer stops, or until the server refuses it for good, for example because the API key
was revoked. If a client missed batches that the server cannot send again, it gets a `Reset`, never a silent gap.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

from tidegauge.client.answers import Result, result_of
from tidegauge.client.calls import Call, Opened, Pause, Request, Steps, in_json
from tidegauge.client.errors import (
    ApiError,
    DeadlineError,
    InvalidArgumentError,
    NoAnswerError,
    RateLimitedError,
    UnavailableError,
)
from tidegauge.client.lookups import names, types_of
from tidegauge.client.values import AS_IN_JSON, Types, key_in_json, parsed, timestamp

SILENT_SECONDS = 60.0  # the server sends a heartbeat every 15
EVENT_STREAM = "text/event-stream"

PASSING = (NoAnswerError, DeadlineError, UnavailableError, RateLimitedError)


@dataclass(frozen=True)
class Event:
    """Base of all events. id: pass it as `last_id` to resume a stream after this event."""

    id: str


@dataclass(frozen=True)
class OfState(Event):
    """An event of a state, at batch `txid` of `epoch`."""

    state: str
    epoch: str
    txid: int
    batch_time: datetime | None


@dataclass(frozen=True)
class Ready(OfState):
    """The stream of a state or a prefix has begun: read the state with this txid as `min_txid`, then apply the events.

    resumed: whether nothing was missed since the previous event.
    """

    resumed: bool


@dataclass(frozen=True)
class Snapshot(OfState):
    """The stream of some keys has begun. results: their current values."""

    results: Sequence[Result]


@dataclass(frozen=True)
class Batch(OfState):
    """A batch was committed. changes: the new values, each in full. complete: False if some are missing: read again."""

    changes: Sequence[Result]
    complete: bool


@dataclass(frozen=True)
class Reset(OfState):
    """The events received so far are no longer valid. results: the keys' values now; None: read the state again."""

    reason: str
    results: Sequence[Result] | None


@dataclass(frozen=True)
class Pipelines(Event):
    """The stream of all pipelines has begun. txids: the committed batch of each."""

    txids: Mapping[str, int]


@dataclass(frozen=True)
class Tide(Event):
    """A pipeline has committed, or its driver started, stopped or failed. txid: None if the pipeline is gone."""

    pipeline: str
    txid: int | None


@dataclass(frozen=True)
class OtherEvent(Event):
    """An event that this version of the client does not know."""

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)


class Feed:
    """One subscription: parses what it receives, and resumes after a drop. begin: makes the call of a connection."""

    def __init__(self, begin: Callable[[], Call], request: Request, state: str | None, last_id: str = "") -> None:
        self._begin = begin
        self._request = request
        self._state = state
        self._last_id = last_id
        self._was_connected = False
        self._failures = 0
        self._types = AS_IN_JSON
        self._lines = Lines()

    def connect(self) -> Steps[Opened]:
        """Open the stream; after a drop, try again without limit. Raises ApiError if the server refuses it."""
        while True:
            try:
                if self._was_connected:
                    yield Pause(self._begin().options.pause(self._failures, self._lines.retry_seconds))
                opened = yield from self._connected(self._begin())
            except PASSING as error:
                if not self._was_connected:
                    raise
                self._failures += 1
                yield Pause((error.retry_after if isinstance(error, ApiError) else None) or 0.0)
            else:
                self._was_connected = True
                return opened

    def received(self, content: bytes) -> Steps[list[Event]]:
        """Return the events that are complete with this piece of the stream."""
        events = []
        for message in self._lines.messages(content):
            self._failures, self._last_id = 0, message.id
            if message.data:
                events.append((yield from self._event(message)))
        return events

    def _connected(self, call: Call) -> Steps[Opened]:
        self._lines = Lines(self._last_id, self._lines.retry_seconds)
        if self._state is not None:
            self._types = yield from types_of(call, self._state)
        last = {"Last-Event-ID": self._last_id} if self._last_id else {}
        request = replace(self._request, headers={"Accept": EVENT_STREAM} | last, media_type=EVENT_STREAM)
        return (yield from call.open(request, SILENT_SECONDS))

    def _event(self, message: "Message") -> Steps[Event]:
        data = parsed(message.data, [self._types])
        if self._state is not None and not self._types.knows(data):
            self._types = yield from types_of(self._begin(), self._state, again=True)
            data = parsed(message.data, [self._types])
        return _event(message, data, self._types)


@dataclass(frozen=True)
class Message:
    """A server-sent event; without data it only advances the id."""

    name: str
    data: str
    id: str


class Lines:
    """Parses server-sent events (WHATWG HTML, 9.2.6). Lines end only with LF or CRLF, because JSON may contain U+2028.

    retry_seconds: how long the server asks clients to wait before they reconnect.
    """

    def __init__(self, last_id: str = "", retry_seconds: float = 0.0) -> None:
        self.retry_seconds = retry_seconds
        self._rest = b""
        self._id = last_id
        self._fields: list[tuple[str, str]] = []

    def messages(self, content: bytes) -> list[Message]:
        """Return the messages that are complete with this piece."""
        *lines, self._rest = (self._rest + content).split(b"\n")
        return [message for line in lines if (message := self._line(line.removesuffix(b"\r").decode())) is not None]

    def _line(self, line: str) -> Message | None:
        if line:
            name, _, value = line.partition(":")
            self._fields.append((name, value.removeprefix(" ")))
            return None
        fields, self._fields = self._fields, []
        last = dict(fields)
        self._id = last.get("id", self._id)
        if last.get("retry", "").isdecimal():
            self.retry_seconds = int(last["retry"]) / 1_000
        return Message(
            last.get("event", "message"), "\n".join(value for name, value in fields if name == "data"), self._id
        )


def request(path: str) -> Request:
    """path: the part after `/events`."""
    return Request("GET", f"/events/{path.removeprefix('/events').lstrip('/')}")


def state_request(state: str, keys: Sequence[Any] | None, prefix: Any, measures: Sequence[str] | None) -> Request:
    if keys is not None and prefix is not None:
        raise InvalidArgumentError("keys and prefix exclude each other; use two streams")
    asked = {} if keys is None else {"keys": in_json([key_in_json(key) for key in keys])}
    asked |= {} if prefix is None else {"prefix": in_json(key_in_json(prefix))}
    chosen = names(measures)
    asked |= {} if chosen is None else {"measures": ",".join(chosen)}
    return Request("GET", f"/events/states/{quote(state, safe='')}", asked)


def _event(message: Message, data: Mapping[str, Any], types: Types) -> Event:
    match message.name:
        case "ready" if "pipelines" in data:
            return Pipelines(message.id, data["pipelines"])
        case "ready":
            return Ready(*_of_state(message, data), resumed=data.get("resumed", False))
        case "snapshot":
            return Snapshot(*_of_state(message, data), results=_results(data["results"], types))
        case "batch":
            return Batch(*_of_state(message, data), _results(data["changes"], types), data["complete"])
        case "reset":
            results = _results(data["results"], types) if "results" in data else None
            return Reset(*_of_state(message, data), data["reason"], results)
        case "tide":
            return Tide(message.id, data["pipeline"], data["txid"])
    return OtherEvent(message.id, message.name, data)


def _of_state(message: Message, data: Mapping[str, Any]) -> tuple[str, str, str, int, datetime | None]:
    return message.id, data["state"], data["epoch"], data["txid"], timestamp(data.get("batch_time"))


def _results(rows: Sequence[Mapping[str, Any]], types: Types) -> list[Result]:
    return [result_of(row, types) for row in rows]

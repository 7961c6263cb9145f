"""Windows: keys of a state with tiles, folded over trailing windows of event time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from tidegauge.client.calls import Call, Steps, path
from tidegauge.client.errors import InvalidArgumentError
from tidegauge.client.lookups import When, names, typed_parts, waiting
from tidegauge.client.values import AS_IN_JSON, Key, Time, Types, key_in_json, timestamp, to_json

Granularity = Literal["second", "minute", "hour", "day"]


@dataclass(frozen=True)
class Window:
    """The events from `start` (inclusive) to `stop` (exclusive). window: as in the request, such as `24h`.

    granularity: the tile in use at `start`, to whose start the window was extended.
    """

    window: str
    start: datetime
    stop: datetime
    granularity: Granularity


@dataclass(frozen=True)
class WindowResult:
    """key: without the tile. values: one for each window, in their order; without events that of an empty state."""

    key: Key
    values: Sequence[Any]


@dataclass(frozen=True)
class Windows:
    """One result per key asked, all at batch `txid` of `epoch`, whose time is `batch_time`.

    windows: which events each one covers.
    """

    windows: Sequence[Window]
    results: Sequence[WindowResult]
    epoch: str
    txid: int
    batch_time: datetime | None
    isolation: str
    types: Types = field(default=AS_IN_JSON, repr=False, compare=False)

    def __iter__(self) -> Iterator[WindowResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def table(self) -> list[dict[str, Any]]:
        """Return a dict by column per key and window, for `pandas.DataFrame`, or for `Table.from_pylist` of Arrow."""
        return [
            {"window": window.window} | self.types.row(result.key, value)
            for result in self.results
            for window, value in zip(self.windows, result.values, strict=True)
        ]


def windows(
    call: Call,
    state: str,
    keys: Sequence[Any],
    lengths: str | timedelta | Sequence[str | timedelta],
    to: Time | None,
    measures: Sequence[str] | None,
    when: When,
) -> Steps[Windows]:
    asked = {
        "keys": [key_in_json(key) for key in keys],
        "windows": [_text(length) for length in ([lengths] if isinstance(lengths, str | timedelta) else lengths)],
        "to": to_json(to),
        "measures": names(measures),
    }
    body = {name: value for name, value in asked.items() if value is not None}
    response = yield from waiting(call, path("states", state, "windows"), body, when)
    [(document, types)] = yield from typed_parts(call, [state], response)
    return _windows_of(document, types.of_columns(types.names[:-1]))


def _text(length: str | timedelta) -> str:
    if isinstance(length, str):
        return length
    seconds = length.total_seconds()
    if not seconds.is_integer():
        raise InvalidArgumentError(f"a window of {length!r} is not a whole number of seconds")
    return f"{int(seconds)}s"


def _windows_of(document: Mapping[str, Any], types: Types) -> Windows:
    covered = [
        Window(
            each["window"], datetime.fromisoformat(each["from"]), datetime.fromisoformat(each["to"]),
            each["granularity"],
        )
        for each in document["windows"]
    ]  # fmt: skip
    results = [
        WindowResult(types.key(row["key"]), [types.value(value) for value in row["values"]])
        for row in document["results"]
    ]
    return Windows(
        covered, results, document["epoch"], document["txid"], timestamp(document["batch_time"]),
        document["isolation"], types,
    )  # fmt: skip

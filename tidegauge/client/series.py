"""Series: figures of a pipeline, or values of a key, over a range of time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidegauge.client.calls import Call, Request, Steps, in_json, path
from tidegauge.client.lookups import names
from tidegauge.client.values import Time, key_in_json, to_json


@dataclass(frozen=True)
class Span:
    """A range of time. start, stop: with a zone, or in ISO 8601. last: instead of start, how many seconds before stop.

    points: about how many at most.
    """

    start: Time | None = None
    stop: Time | None = None
    last: int | None = None
    points: int | None = None

    def parameters(self) -> dict[str, str]:
        asked = {"from": self.start, "to": self.stop, "last": self.last, "points": self.points}
        return {name: str(to_json(value)) for name, value in asked.items() if value is not None}


@dataclass(frozen=True)
class Series:
    """Numbers over time: `series` has under each name one number for each of `times`, or None.

    start, stop: the range. step_seconds: the longest time that one point stands for. txid, epoch: the committed batch.
    phases: the seconds of each part of a pipeline's batches, by Spark's names, one for each of `times`. txids: the
    batches that wrote the values of a key.
    """

    times: Sequence[datetime]
    series: Mapping[str, Sequence[float | None]]
    start: datetime
    stop: datetime
    step_seconds: int
    epoch: str
    txid: int
    phases: Mapping[str, Sequence[float | None]]
    txids: Sequence[int | None]

    def __len__(self) -> int:
        return len(self.times)

    def table(self) -> list[dict[str, Any]]:
        """Return a dict by name per time, for `pandas.DataFrame`, or for `Table.from_pylist` of Arrow."""
        points = zip(*self.series.values(), strict=True)
        return [
            {"time": time} | dict(zip(self.series, point, strict=True))
            for time, point in zip(self.times, points, strict=bool(self.series))
        ]


def of_pipeline(call: Call, pipeline: str, span: Span) -> Steps[Series]:
    return _series_of((yield from call.json(Request("GET", path("pipelines", pipeline, "series"), span.parameters()))))


def of_key(call: Call, state: str, key: Any, measures: Sequence[str] | None, span: Span) -> Steps[Series]:
    asked = span.parameters() | {"key": in_json(key_in_json(key))}
    asked |= {} if measures is None else {"measures": ",".join(names(measures) or ())}
    return _series_of((yield from call.json(Request("GET", path("states", state, "series"), asked))))


def _series_of(document: Mapping[str, Any]) -> Series:
    return Series(
        [datetime.fromisoformat(time) for time in document["times"]], document["series"],
        datetime.fromisoformat(document["from"]), datetime.fromisoformat(document["to"]), document["step_seconds"],
        document["epoch"], document["txid"], document.get("phases", {}), document.get("txids", ()),
    )  # fmt: skip

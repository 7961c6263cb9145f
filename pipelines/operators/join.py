"""Join: pair the tuples of two streams that share a key and lie within a time of each other.

Either side waits for the other, whichever comes first. Pairs are passed on at once and each just once. A tuple waits
until the watermark has passed the last time that a partner may have; then it goes, and if it never found one it is
passed on alone, where that was asked for. So what waits is bounded by `within` and by how late tuples may come.
A tuple that comes late is paired with what still waits; a partner that has gone already was passed on alone, and so is
the late one then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.context import BatchContext
from pipelines.errors import PipelineError
from pipelines.functions import BatchState, Collector
from pipelines.operators.keyed import (
    TICK,
    after,
    as_text,
    check_keeper,
    fold_by_key,
    has_passed,
    packed,
    unpacked,
    with_time,
)
from pipelines.stream import Stream
from state_backends.spec import StateSpec

LEFT, RIGHT, TIME, DUE = "left", "right", "time", "due"

# Which sides are passed on alone in the end if they have found nobody.
ALONE = {"inner": (), "left": (LEFT,), "right": (RIGHT,), "full": (LEFT, RIGHT)}


def join(
    left: Stream,
    right: Stream,
    waiting: StateSpec,
    *,
    times: tuple[str, str],
    within: timedelta,
    how: Literal["inner", "left", "right", "full"] = "left",
) -> Stream:
    """Return the pairs: the key, then the other columns of the left and of the right side, null where it is alone.

    A pair shares the key of `waiting` and has left time <= right time <= left time + within.
    Both streams need a watermark: nobody is passed on alone before both have moved on.
    waiting: the state that keeps the sides; opaque, with value="jsonb" and no ttl. All that waits of a key is one
    value, so choose a key that few tuples share, an impression rather than a campaign.
    times: the left's and the right's column of event time; tuples without a time are left out.
    how: as in SQL, who is passed on alone.
    Raises PipelineError; for columns that do not fit when the pipeline is checked.
    """
    check_keeper(waiting)
    key = tuple(waiting.key)
    if how not in ALONE:
        raise PipelineError(f"join by {', '.join(key)}: how {how!r} is none of {', '.join(ALONE)}")

    def pairs(context: BatchContext, found: DataFrame, left: DataFrame, right: DataFrame) -> DataFrame:
        _check_names(key, left, right)
        sides = found.select(unpacked(LEFT, left).alias(LEFT), unpacked(RIGHT, right).alias(RIGHT))
        shared = [F.coalesce(sides[LEFT][name], sides[RIGHT][name]).alias(name) for name in key]
        return sides.select(*shared, *_others(sides, LEFT, left, key), *_others(sides, RIGHT, right, key))

    tuples = _side(LEFT, left, key, times[0]).merge(_side(RIGHT, right, key, times[1]))
    updater = Join(key, within, ALONE[how])
    fed = tuples.partition_persist(waiting, updater, emits={LEFT: "string", RIGHT: "string"}, due=DUE)
    return Stream((fed.new_values_stream(), left, right), pairs)


@dataclass
class Waiting:
    """One tuple that waits. met: whether it has been passed on with a partner."""

    time: datetime
    payload: str
    met: bool = False


@dataclass(frozen=True)
class Join:
    """Pairs tuples. key: the state's key columns. alone: the sides to be passed on without a partner in the end.

    Takes the key, `time`, and the payload in the column of its side, `left` or `right`; emits a left and a right
    payload. A value: `{"left": [[time, payload, met], ..], "right": [..], "due": when the first of them goes}`.
    """

    key: tuple[str, ...]
    within: timedelta
    alone: tuple[str, ...]

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        def fold(value: Any, rows: list[Mapping[str, Any]]) -> Any:
            sides = {side: [_kept(*each) for each in (value or {}).get(side, ())] for side in (LEFT, RIGHT)}
            for row in rows:
                if not row["woken"]:
                    self._meet(sides, row, collector)
            return self._value({side: self._staying(side, sides[side], state, collector) for side in sides})

        fold_by_key(state, tuples, self.key, fold)

    def _meet(self, sides: dict[str, list[Waiting]], row: Mapping[str, Any], collector: Collector) -> None:
        side, opposite = (LEFT, RIGHT) if row[LEFT] is not None else (RIGHT, LEFT)
        new = Waiting(row[TIME], row[side])
        for other in sides[opposite]:
            left, right = (new, other) if side == LEFT else (other, new)
            if left.time <= right.time <= after(left.time, self.within):
                collector.emit(left.payload, right.payload)
                left.met = right.met = True
        sides[side].append(new)

    def _staying(self, side: str, waiting: list[Waiting], state: BatchState, collector: Collector) -> list[Waiting]:
        staying = []
        for each in waiting:
            if not has_passed(state.watermark, self._end(side, each)):
                staying.append(each)
            elif side in self.alone and not each.met:
                collector.emit(*((each.payload, None) if side == LEFT else (None, each.payload)))
        return staying

    def _end(self, side: str, waiting: Waiting) -> datetime:
        """Return the first watermark at which no partner can come in time."""
        return after(waiting.time, (self.within if side == LEFT else timedelta()) + TICK)

    def _value(self, sides: dict[str, list[Waiting]]) -> Any:
        ends = [self._end(side, each) for side, waiting in sides.items() for each in waiting]
        if not ends:
            return None
        kept = {side: [[as_text(each.time), each.payload, each.met] for each in sides[side]] for side in sides}
        return kept | {DUE: as_text(min(ends))}


def _kept(time: str, payload: str, met: bool) -> Waiting:
    return Waiting(datetime.fromisoformat(time), payload, met)


def _side(side: str, stream: Stream, key: Sequence[str], time: str) -> Stream:
    def tag(context: BatchContext, events: DataFrame) -> DataFrame:
        events = with_time(events, time)
        keys = [events[name] for name in key]
        return events.select(*keys, events[time].alias(TIME), packed(events).alias(side))

    return Stream((stream,), tag)


def _check_names(key: Sequence[str], left: DataFrame, right: DataFrame) -> None:
    both = [name for name in left.columns if name in right.columns and name not in key]
    if both:
        raise PipelineError(f"join by {', '.join(key)}: both sides have a column {both[0]!r}; rename it in each()")


def _others(pairs: DataFrame, side: str, like: DataFrame, key: Sequence[str]) -> list[Any]:
    return [pairs[side][name].alias(name) for name in like.columns if name not in key]

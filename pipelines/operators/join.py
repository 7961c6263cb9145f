"""Stream-stream join: pairs tuples that share a key and whose times are at most `within` apart.

The side that comes first waits for the other. Every pair is emitted once, as soon as it is complete. A tuple waits
until the watermark has passed the last time that a partner may have. It is then removed; if it never had a partner, it
is emitted alone if `how` says so. The number of waiting tuples is thus bounded by `within` and by how late tuples come.
A late tuple is paired with tuples that still wait; if its partner was already emitted alone, it is emitted alone too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.functions import BatchState, Collector
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.operators.keyed import TICK, after, as_text, check_can_hold, fold_by_key, has_passed, with_time
from tidegauge.pipelines.spark.packing import packed, unpacked
from tidegauge.state_backends.spec.state_spec import StateSpec

LEFT, RIGHT, TIME, DUE = "left", "right", "time", "due"

# The sides that are emitted alone if they find no partner.
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
    """Return the pairs: the key, then the other columns of the left and of the right side, null if there is none.

    A pair shares the key of `waiting` and has left time <= right time <= left time + within.
    Both streams need a watermark: no tuple is emitted alone before both watermarks have passed it.
    waiting: the state that holds waiting tuples; opaque, with value="jsonb" and no ttl. All waiting tuples of a key are
    one value, so choose a key that few tuples share, such as an impression rather than a campaign.
    times: the left's and the right's column of event time; tuples without a time are left out.
    how: as in SQL, the sides that are emitted alone.
    Raises PipelineError for an unknown `how` or an unfit state; for wrong columns, when the pipeline is checked.
    """
    check_can_hold(waiting)
    key = tuple(waiting.key)
    if how not in ALONE:
        raise PipelineError(f"join by {', '.join(key)}: how is {how!r}, not one of {', '.join(ALONE)}")

    def pairs(context: BatchContext, found: DataFrame, left: DataFrame, right: DataFrame) -> DataFrame:
        _check_names(key, left, right)
        sides = found.select(unpacked(LEFT, left).alias(LEFT), unpacked(RIGHT, right).alias(RIGHT))
        shared = [F.coalesce(sides[LEFT][name], sides[RIGHT][name]).alias(name) for name in key]
        return sides.select(*shared, *_others(sides, LEFT, left, key), *_others(sides, RIGHT, right, key))

    tuples = _side(LEFT, left, key, times[0]).merge(_side(RIGHT, right, key, times[1]))
    updater = Join(key, within, ALONE[how])
    stored = tuples.partition_persist(waiting, updater, emits={LEFT: "string", RIGHT: "string"}, due=DUE)
    return Stream((stored.new_values_stream(), left, right), pairs)


@dataclass
class Waiting:
    """One waiting tuple. paired: whether it has been emitted with a partner."""

    time: datetime
    payload: str
    paired: bool = False


@dataclass(frozen=True)
class Join:
    """Pairs tuples. key: the state's key columns. alone: the sides to be emitted without a partner.

    Takes the key, `time`, and the payload in the column of its side, `left` or `right`; emits a left and a right
    payload. A value: `{"left": [[time, payload, paired], ..], "right": [..], "due": when the first is removed}`.
    """

    key: tuple[str, ...]
    within: timedelta
    alone: tuple[str, ...]

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        def fold(value: Any, rows: list[Mapping[str, Any]]) -> Any:
            sides = {side: [_stored(*each) for each in (value or {}).get(side, ())] for side in (LEFT, RIGHT)}
            for row in rows:
                if not row["woken"]:
                    self._pair(sides, row, collector)
            return self._value({side: self._still_waiting(side, sides[side], state, collector) for side in sides})

        fold_by_key(state, tuples, self.key, fold)

    def _pair(self, sides: dict[str, list[Waiting]], row: Mapping[str, Any], collector: Collector) -> None:
        side, opposite = (LEFT, RIGHT) if row[LEFT] is not None else (RIGHT, LEFT)
        new = Waiting(row[TIME], row[side])
        for other in sides[opposite]:
            left, right = (new, other) if side == LEFT else (other, new)
            if left.time <= right.time <= after(left.time, self.within):
                collector.emit(left.payload, right.payload)
                left.paired = right.paired = True
        sides[side].append(new)

    def _still_waiting(
        self, side: str, waiting: list[Waiting], state: BatchState, collector: Collector
    ) -> list[Waiting]:
        still = []
        for each in waiting:
            if not has_passed(state.watermark, self._end(side, each)):
                still.append(each)
            elif side in self.alone and not each.paired:
                collector.emit(*((each.payload, None) if side == LEFT else (None, each.payload)))
        return still

    def _end(self, side: str, waiting: Waiting) -> datetime:
        """Return the first watermark at which no partner can be in time."""
        return after(waiting.time, (self.within if side == LEFT else timedelta()) + TICK)

    def _value(self, sides: dict[str, list[Waiting]]) -> Any:
        ends = [self._end(side, each) for side, waiting in sides.items() for each in waiting]
        if not ends:
            return None
        stored = {side: [[as_text(each.time), each.payload, each.paired] for each in sides[side]] for side in sides}
        return stored | {DUE: as_text(min(ends))}


def _stored(time: str, payload: str, paired: bool) -> Waiting:
    return Waiting(datetime.fromisoformat(time), payload, paired)


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

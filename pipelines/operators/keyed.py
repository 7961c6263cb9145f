"""What the updaters share: one fold per key, tuples and times stored as text, and late tuples.

An updater holds tuples in a state of JSON values. A tuple is one JSON text, so an updater can hold and emit any columns
without knowing their types; a time is ISO text, which sorts by time.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.functions import BatchState
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec

PAYLOAD, LATE = "payload", "late"

# The smallest step in time: a timer set to T plus one tick runs once the watermark has passed T.
TICK = timedelta(microseconds=1)
END_OF_TIME = datetime.max.replace(tzinfo=UTC)

# The stored value of a key, None if absent, and the key's tuples of this batch, to the new value.
Fold = Callable[[Any, list[Mapping[str, Any]]], Any]


def fold_by_key(state: BatchState, tuples: Sequence[Mapping[str, Any]], key: Sequence[str], fold: Fold) -> None:
    """Replace the value of every key that has tuples by the result of `fold`, with one read and one write.

    key: the columns that are the state's key. fold: must not change the value it is given; returns the new one, or None
    to remove it. A value that stays the same is not written, so its ttl is not extended.
    """
    groups: dict[Key, list[Mapping[str, Any]]] = {}
    for row in tuples:
        groups.setdefault(tuple(row[name] for name in key), []).append(row)
    stored = state.multi_get(list(groups))
    folded = [fold(value, rows) for value, rows in zip(stored, groups.values(), strict=True)]
    changed = {each: new for each, new, old in zip(groups, folded, stored, strict=True) if new != old}
    state.multi_put(list(changed), list(changed.values()))


def check_can_hold(spec: StateSpec, *, ttl: bool = False) -> None:
    """Raise PipelineError if an updater cannot hold tuples in a state.

    ttl: whether keys may expire. A batch that is tried again must emit what it emitted before, which only an opaque
    state allows.
    """
    if spec.measures or spec.kind != "opaque" or (spec.ttl and not ttl):
        raise PipelineError(
            f"state {spec.name!r}: cannot hold tuples; declare it opaque, with value='jsonb'"
            + ("" if ttl else " and without a ttl, which would lose events")
        )


def as_text(at: datetime) -> str:
    """Return ISO text in UTC; all texts have one length and sort by time."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def after(at: datetime, by: timedelta) -> datetime:
    """Return the sum, or the last possible time if it is beyond that, so that one odd event cannot stop a pipeline."""
    return END_OF_TIME if by > END_OF_TIME - at else at + by


def has_passed(watermark: datetime | None, due: datetime) -> bool:
    return watermark is not None and due <= watermark


def timed(stream: Stream, time: str) -> Stream:
    """Return the tuples that have a time, with a column `late`: whether the watermark before this batch was beyond it.

    Tuples without a time are left out (see with_time).
    Raises PipelineError, when the pipeline is checked, if `time` is not a timestamp or the stream has a column `late`.
    """

    def mark(context: BatchContext, events: DataFrame) -> DataFrame:
        if LATE in events.columns:
            raise PipelineError(f"the stream has a column {LATE!r} already; rename it in each()")
        late = F.lit(False) if context.late_before is None else F.col(time) < F.lit(context.late_before)
        return with_time(events, time).withColumn(LATE, late)

    return Stream((stream,), mark)


def with_time(events: DataFrame, time: str) -> DataFrame:
    """Return the tuples whose time is in the years 1 to 9999, the range of Python's datetime.

    To keep the others as dead letters, declare the column NOT NULL at the source.
    Raises PipelineError if `time` is not a timestamp.
    """
    found = dict(events.dtypes).get(time, "absent")
    if found != "timestamp":
        raise PipelineError(f"event time {time!r} is {found} in the stream; cast it to a timestamp in each()")
    return events.where(F.year(time).between(1, 9999))

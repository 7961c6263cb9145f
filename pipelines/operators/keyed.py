"""Times as a JSON state keeps them, and sums of them that end with the calendar."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.context import BatchContext
from pipelines.errors import PipelineError
from pipelines.functions import BatchState
from pipelines.stream import Stream
from state_backends.row import Key
from state_backends.spec import StateSpec

# The step from one time to the next: what is due a tick after T is due when the watermark has passed T.
TICK = timedelta(microseconds=1)
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


def as_text(at: datetime) -> str:
    """Return ISO text in UTC; texts of one length, in the order of the times."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def after(at: datetime, by: timedelta) -> datetime:
    """Return the sum, or the end of time where it would lie beyond: one odd event must not stop a pipeline."""
    return END_OF_TIME if by > END_OF_TIME - at else at + by


def has_passed(watermark: datetime | None, due: datetime) -> bool:
    return watermark is not None and due <= watermark


# Whole tuples as one text, so that an updater can keep and pass on any columns without knowing their types.


PAYLOAD = "payload"

# Spark's own format would cut times at milliseconds.
OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def packed(events: DataFrame) -> Column:
    """Return all columns of a tuple as JSON text."""
    return F.to_json(F.struct(*(events[name] for name in events.columns)), OPTIONS)


def unpacked(payload: str, like: DataFrame) -> Column:
    """Return the struct of what was packed into a column, with the columns and types of `like`."""
    return F.from_json(F.col(payload), like.schema, OPTIONS)


# Which tuples came late: after the watermark that the batches before had brought.


LATE = "late"


def timed(stream: Stream, time: str) -> Stream:
    """Return the tuples that have a time, with a column `late`: whether the watermark before this batch was beyond it.

    Tuples without a time are left out (see with_time).
    Raises PipelineError, when the pipeline is checked, where `time` is no timestamp or `late` is there already.
    """

    def mark(context: BatchContext, events: DataFrame) -> DataFrame:
        if LATE in events.columns:
            raise PipelineError(f"the stream has a column {LATE!r} already; rename it in each()")
        late = F.lit(False) if context.late_before is None else F.col(time) < F.lit(context.late_before)
        return with_time(events, time).withColumn(LATE, late)

    return Stream((stream,), mark)


def with_time(events: DataFrame, time: str) -> DataFrame:
    """Return the tuples whose time is in the years 1 to 9999; Python knows no others.

    To have those without a time as dead letters, declare the column NOT NULL at the source.
    Raises PipelineError where `time` is no timestamp.
    """
    found = dict(events.dtypes).get(time, "absent")
    if found != "timestamp":
        raise PipelineError(f"event time {time!r} is {found} in the stream; cast it to a timestamp in each()")
    return events.where(F.year(time).between(1, 9999))


# One read and one write of a state per call, whatever number of keys the call is about.


# Makes the new value of a key of the one kept, None for absent, and the key's tuples of this batch.
Fold = Callable[[Any, list[Mapping[str, Any]]], Any]


def fold_by_key(state: BatchState, tuples: Sequence[Mapping[str, Any]], key: Sequence[str], fold: Fold) -> None:
    """Replace the value of every key that has tuples by what `fold` makes of it.

    key: the columns that are the state's key. fold: leaves the value it is given as it is and returns the new one, or
    None to remove it. A value that stays the same is not written, so its ttl runs on.
    """
    groups: dict[Key, list[Mapping[str, Any]]] = {}
    for row in tuples:
        groups.setdefault(tuple(row[name] for name in key), []).append(row)
    kept = state.multi_get(list(groups))
    folded = [fold(value, rows) for value, rows in zip(kept, groups.values(), strict=True)]
    changed = {each: new for each, new, old in zip(groups, folded, kept, strict=True) if new != old}
    state.multi_put(list(changed), list(changed.values()))


def check_keeper(spec: StateSpec, *, ttl: bool = False) -> None:
    """Raise PipelineError where a state cannot keep what waits, or what was seen.

    ttl: whether it may forget. What a batch that is tried again emits must be what it emitted before, which only an
    opaque state can see to.
    """
    if spec.measures or spec.kind != "opaque" or (spec.ttl and not ttl):
        raise PipelineError(
            f"state {spec.name!r}: cannot keep what waits; declare it opaque, with value='jsonb'"
            + ("" if ttl else " and without a ttl, which would lose events")
        )

"""Event time: where the watermark of a pipeline stands, carried from batch to batch in the ledger.

A stream's mark is the latest time it has brought, minus its delay; it never goes back. The pipeline's watermark is the
mark of the stream that is furthest behind, and never goes back either. An idle stream does not hold it back. If all
streams are idle, the watermark advances with the batches' clock. All of this is computed from the previous batch in the
ledger and from the batch's own tuples and time, so a retry gets the same result.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import psycopg

from tidegauge.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegauge.pipelines.declare.context import BatchContext
    from tidegauge.pipelines.declare.frames import Frames
    from tidegauge.pipelines.declare.pipeline import Pipeline
    from tidegauge.pipelines.declare.stream import Watermark
    from tidegauge.pipelines.spark.observed import JobMetrics

# A time further ahead of the batch's time moves no watermark, because one event in the year 2999 would make all late.
MOST_AHEAD = timedelta(days=1)

SEEN = "seen"

PART = r"([-+]?\d{1,9})\s+(millisecond|second|minute|hour|day|week)s?"
INTERVAL = re.compile(rf"\s*{PART}(\s+{PART})*\s*")

COMMITTED = """
SELECT b.marks, b.watermark FROM tidegauge.pipeline p
JOIN tidegauge.batch b ON b.pipeline = p.name AND b.txid = p.committed_txid WHERE p.name = %s
"""


@dataclass(frozen=True)
class EventTime:
    """Where event time stands after a batch.

    marks: the mark of each stream that has had a time, by its place among the watermarks: `0`, `1`, .. seen: by place,
    the time of the last batch that brought the stream a tuple, or of the first batch. late: how many tuples of the
    batch came after the watermark; dropped: how many of those were left out. newest: the latest time in the batch, or
    None.
    """

    marks: Mapping[str, datetime] = field(default_factory=dict)
    seen: Mapping[str, datetime] = field(default_factory=dict)
    watermark: datetime | None = None
    late: int = 0
    dropped: int = 0
    newest: datetime | None = None

    @property
    def stored(self) -> dict[str, datetime]:
        """What the ledger stores of it besides the watermark."""
        return {**self.marks, **{f"{place} {SEEN}": at for place, at in self.seen.items()}}

    def watermark_at(self, streams: Iterable["Watermark"], now: datetime) -> datetime | None:
        """Return the watermark of a batch at the time `now` if it brings no further tuples."""
        active: list[datetime | None] = []
        idle: list[datetime] = []
        for place, stream in enumerate(streams):
            mark, waited = self.marks.get(str(place)), now - self.seen.get(str(place), now)
            if stream.idle_after is None or waited < interval(stream.idle_after):
                active.append(mark)
            elif mark is not None:
                idle.append(mark + waited)
        known = [mark for mark in active if mark is not None]
        reached = [self.watermark] if self.watermark else []
        # An active stream without a mark holds the watermark back, because the time of its first tuple is unknown.
        if len(known) == len(active):
            reached += [min(known)] if known else idle
        return max(reached, default=None)


def committed(conn: psycopg.Connection, pipeline: str) -> EventTime:
    """Return event time after the committed batch."""
    row = conn.execute(COMMITTED, [pipeline]).fetchone()
    if row is None:
        return EventTime()
    times = {name: datetime.fromisoformat(time) for name, time in row[0].items()}
    marks = {place: time for place, time in times.items() if SEEN not in place}
    seen = {name.removesuffix(f" {SEEN}"): time for name, time in times.items() if SEEN in name}
    return EventTime(marks, seen, row[1])


def advance(
    pipeline: "Pipeline",
    frames: "Frames",
    before: EventTime,
    context: "BatchContext",
    ran: Callable[["JobMetrics"], None],
) -> EventTime:
    """Find the latest times and count the late tuples of a batch, with one Spark job per watermark.

    ran: called with what each of the jobs has observed.
    """
    now = context.batch.batch_time
    marks, seen, late, dropped = dict(before.marks), dict(before.seen), 0, 0
    times: list[datetime] = []
    for number, stream in enumerate(pipeline.watermarked):
        assert stream.watermark is not None
        place = str(number)
        # The input of the watermark's step, because the step itself may leave out the late tuples.
        found = _measure(frames.of(stream.inputs[0]), stream.watermark, context, ran)
        late += found.late
        dropped += found.late if stream.watermark.drop_late else 0
        times += [found.newest] if found.newest is not None else []
        if found.mark is not None and (place not in marks or found.mark > marks[place]):
            marks[place] = found.mark
        if found.tuples or place not in seen:
            seen[place] = now
    after = EventTime(marks, seen, before.watermark, late, dropped)
    watermark = after.watermark_at(pipeline.watermarks, now)
    return EventTime(marks, seen, watermark, late, dropped, max(times, default=None))


class _Found(NamedTuple):
    """What a batch has of a stream. newest: the latest time. mark: that minus the delay. tuples: those with a time."""

    newest: datetime | None
    mark: datetime | None
    tuples: int
    late: int


def _measure(
    events: "DataFrame", watermark: "Watermark", context: "BatchContext", ran: Callable[["JobMetrics"], None]
) -> _Found:
    from pyspark.sql import functions as F

    from tidegauge.pipelines.spark.observed import JobMetrics
    from tidegauge.state_backends.aggregators.column import quoted

    time, late_before = F.col(watermark.column), context.late_before
    late = F.lit(0) if late_before is None else F.count(F.when(time < F.lit(late_before), 1))
    mark = F.expr(f"{quoted(watermark.column)} - interval '{watermark.delay}'")
    # A mark before the year 1 is left out, because Python's datetime cannot hold it.
    possible = (time <= F.lit(context.batch.batch_time + MOST_AHEAD)) & (F.year(mark) >= 1)
    newest, latest = (F.unix_micros(F.max(F.when(possible, each))) for each in (time, mark))
    figures = newest.alias("newest"), latest.alias("mark"), F.count(time).alias("tuples"), late.alias("late")
    measured = events.agg(*figures)
    [row] = measured.collect()
    ran(JobMetrics(measured))
    return _Found(_moment(row.newest), _moment(row.mark), row.tuples, row.late)


def _moment(micros: int | None) -> datetime | None:
    # Read as a number, because Spark returns a datetime in the machine's time zone.
    return None if micros is None else datetime.fromtimestamp(micros / 1_000_000, UTC)


def interval(given: str | timedelta) -> timedelta:
    """Return an interval of fixed length, such as `90 minutes`. Raises PipelineError for any other text."""
    if isinstance(given, timedelta):
        return given
    if INTERVAL.fullmatch(given) is None:
        raise PipelineError(
            f"interval {given!r} has no fixed length or cannot be read; write '30 seconds', '10 minutes', '2 hours', "
            "'1 day' or '1 week'"
        )
    return sum((timedelta(**{f"{unit}s": int(number)}) for number, unit in re.findall(PART, given)), timedelta())

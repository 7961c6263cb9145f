"""How far event time has come in a pipeline, carried from batch to batch in the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.context import BatchContext
from pipelines.frames import Frames
from pipelines.pipeline import Pipeline
from pipelines.stream import Watermark
from state_backends.aggregators.column import quoted

# One event in the year 2999 must not make all others late: a time so far ahead of the batch's moves nothing.
MOST_AHEAD = timedelta(days=1)

# The watermark of each stream that has one, by its place among them: `0`, `1`, ..
Marks = Mapping[str, datetime]


@dataclass(frozen=True)
class Progress:
    """Where event time stands with a batch. late: tuples that came after the watermark; dropped: those left out."""

    marks: Marks
    watermark: datetime | None
    late: int = 0
    dropped: int = 0


def committed_marks(conn: psycopg.Connection, pipeline: str) -> Marks:
    """Return what the committed batch brought the watermarks to; empty before the first."""
    row = conn.execute(
        "SELECT b.marks FROM tidemark.pipeline p JOIN tidemark.batch b ON b.pipeline = p.name "
        "AND b.txid = p.committed_txid WHERE p.name = %s",
        [pipeline],
    ).fetchone()
    return {place: datetime.fromisoformat(mark) for place, mark in (row[0] if row else {}).items()}


def watermark_of(pipeline: Pipeline, marks: Marks) -> datetime | None:
    """Return the watermark of the stream furthest behind; None while one of them has seen nothing."""
    if not pipeline.watermarked or len(marks) < len(pipeline.watermarked):
        return None
    return min(marks.values())


def advance(pipeline: Pipeline, frames: Frames, marks: Marks, context: BatchContext) -> Progress:
    """Look through a batch for its latest times and its late tuples, one Spark job per watermark."""
    latest, late, dropped = dict(marks), 0, 0
    for place, stream in enumerate(pipeline.watermarked):
        assert stream.watermark is not None
        mark, behind = _look(frames.of(stream.inputs[0]), stream.watermark, context)
        late += behind
        dropped += behind if stream.watermark.drop_late else 0
        before = latest.get(str(place))
        if mark is not None and (before is None or mark > before):
            latest[str(place)] = mark
    return Progress(latest, watermark_of(pipeline, latest), late, dropped)


def _look(events: DataFrame, watermark: Watermark, context: BatchContext) -> tuple[datetime | None, int]:
    time, late_before = F.col(watermark.column), context.late_before
    late = F.lit(0) if late_before is None else F.count(F.when(time < F.lit(late_before), 1))
    mark = F.expr(f"{quoted(watermark.column)} - interval '{watermark.delay}'")
    possible = (time <= F.lit(context.batch.batch_time + MOST_AHEAD)) & (F.year(mark) >= 1)
    [row] = events.agg(F.unix_micros(F.max(F.when(possible, mark))).alias("mark"), late.alias("late")).collect()
    # As a number: a datetime out of Spark is in the machine's own time zone.
    return (None if row.mark is None else datetime.fromtimestamp(row.mark / 1_000_000, UTC)), row.late

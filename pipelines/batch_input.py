"""Batch input: what a micro-batch brings, as DataFrames, with its bad lines and its watermarks.

Each source's events are counted on the way and those that cannot be read are sorted out; the frame of every stream is
made once, however many states read it; event time is carried from batch to batch in the ledger.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

import psycopg
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pipelines.context import BatchContext
from pipelines.errors import BadInputError
from pipelines.pipeline import Pipeline
from pipelines.sources.source import Parsed, Source
from pipelines.stream import Node, Stream, Watermark
from state_backends.aggregators.column import quoted
from state_backends.batch import Batch
from state_backends.dead_letters import DeadLetter

# Lines that may be bad however small the batch.
TOLERATED_BAD_LINES = 10

# One event in the year 2999 must not make all others late: a time so far ahead of the batch's moves no watermark.
MOST_AHEAD = timedelta(days=1)

# The watermark of each stream that has one, by its place among them: `0`, `1`, ..
Marks = Mapping[str, datetime]


class Frames:
    """Makes the frames of a pipeline's streams from those of its sources.

    A source or a costly step that several streams read is computed once and cached until `forget`.
    """

    def __init__(self, pipeline: Pipeline, context: BatchContext, sources: Mapping[Node, DataFrame]) -> None:
        self._pipeline = pipeline
        self._context = context
        self._frames: dict[Node, DataFrame] = dict(sources)
        self._kept: list[DataFrame] = []

    def of(self, node: Node) -> DataFrame:
        """Return the frame of a source, a stream, or a state's new values once they have been added."""
        if node not in self._frames:
            assert isinstance(node, Stream)
            frame = node.step(self._context, *map(self.of, node.inputs))
            self._frames[node] = self.keep(frame) if node.costly and self._pipeline.readers(node) > 1 else frame
        return self._frames[node]

    def add(self, node: Node, frame: DataFrame) -> None:
        """Set the new values of a state, once it has been fed."""
        self._frames[node] = frame

    def keep(self, frame: DataFrame) -> DataFrame:
        """Cache a frame at its first use."""
        self._kept.append(frame.persist())
        return frame

    def forget(self) -> None:
        for frame in self._kept:
            frame.unpersist()


class SourceEvents:
    """What one source brought; counted by the job that reads it first."""

    def __init__(self, source: Source, parsed: Parsed) -> None:
        self.source = source
        self._unseen = parsed
        self._observation = Observation()
        self.parsed = replace(parsed, rows=parsed.rows.observe(self._observation, *_figures(parsed)))

    @property
    def rows(self) -> int:
        return self._counts["rows"]

    @property
    def bad(self) -> int:
        return self._counts["bad"]

    @cached_property
    def _counts(self) -> dict[str, int]:
        if _was_seen(self._observation, self._unseen.rows.sparkSession):
            return self._observation.get
        # No state read the rows, behind a condition that is never true for example: the figures would never come.
        [row] = self._unseen.rows.agg(*_figures(self._unseen)).collect()
        return row.asDict()


class BatchInput:
    """The events of one micro-batch, source by source. few: whether they are so few that one task reads them."""

    def __init__(self, pipeline: Pipeline, frame: DataFrame, batch: Batch, *, few: bool = False) -> None:
        self._pipeline = pipeline
        self._batch = batch
        # With one partition there is nothing to shuffle before a group-by.
        parsed = pipeline.source.split(frame.coalesce(1) if few else frame)
        self._parts = [SourceEvents(source, part) for source, part in zip(pipeline.sources, parsed, strict=True)]
        self.events: dict[Node, DataFrame] = {part.source: part.parsed.good() for part in self._parts}

    @property
    def rows(self) -> int:
        """Everything that came, good and bad. Known once every source has been read."""
        return sum(part.rows for part in self._parts)

    def check_first(self, frames: Frames) -> None:
        """Read and count before any write, where writes could not be reverted or several states read a source.

        Raises BadInputError.
        """
        for part in self._parts:
            if self._must_come_first or self._pipeline.readers_below(part.source) > 1:
                frames.keep(part.parsed.rows)
        if self._must_come_first:
            for part in self._parts:
                part.parsed.rows.count()
            self.check()

    def check(self) -> None:
        """Raise BadInputError where too large a share cannot be read."""
        for part in self._parts:
            if part.bad > max(TOLERATED_BAD_LINES, part.source.max_bad_share * part.rows):
                raise BadInputError(self._too_bad(part))

    def dead_letters(self) -> Iterator[tuple[int, Iterator[DeadLetter]]]:
        """Yield what could not be read, per source that has any, with the source's place."""
        for place, part in enumerate(self._parts):
            if part.bad:
                yield place, part.source.dead_letters(part.parsed.rows)

    @property
    def _must_come_first(self) -> bool:
        # Only opaque rows can be reverted, and a watermark is known only when all times have been seen.
        revertible = all(spec.kind == "opaque" for spec in self._pipeline.specs) and not self._pipeline.stores
        return bool(self._pipeline.watermarked) or not revertible

    def _too_bad(self, part: SourceEvents) -> str:
        example = next(part.source.dead_letters(part.parsed.rows))
        return (
            f"pipeline {self._batch.pipeline!r}: {part.bad} of {part.rows} lines of batch {self._batch.txid} cannot "
            f"be read, more than the share of {part.source.max_bad_share}; the first: {example.source!r} line "
            f"{example.line_number}: {example.reason}; correct the input or raise max_bad_share"
        )


def _figures(parsed: Parsed) -> list[Column]:
    return [F.expr("count(1) AS rows"), F.expr(f"count({parsed.bad}) AS bad" if parsed.bad else "0 AS bad")]


def _was_seen(observation: Observation, spark: SparkSession) -> bool:
    """Return whether a job has counted the rows. Spark reports after the job's end, and offers no call for it."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    seen = observation._jo
    return bool(seen and seen.future().isCompleted() and seen.getRow().length())


@dataclass(frozen=True)
class EventTime:
    """Where event time stands with a batch. late: tuples that came after the watermark; dropped: those left out."""

    marks: Marks
    watermark: datetime | None
    late: int = 0
    dropped: int = 0


def committed_marks(conn: psycopg.Connection, pipeline: str) -> Marks:
    """Return the watermarks after the committed batch; empty before the first."""
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


def advance(pipeline: Pipeline, frames: Frames, marks: Marks, context: BatchContext) -> EventTime:
    """Look through a batch for its latest times and its late tuples, one Spark job per watermark."""
    latest, late, dropped = dict(marks), 0, 0
    for place, stream in enumerate(pipeline.watermarked):
        assert stream.watermark is not None
        mark, behind = _measure(frames.of(stream.inputs[0]), stream.watermark, context)
        late += behind
        dropped += behind if stream.watermark.drop_late else 0
        before = latest.get(str(place))
        if mark is not None and (before is None or mark > before):
            latest[str(place)] = mark
    return EventTime(latest, watermark_of(pipeline, latest), late, dropped)


def _measure(events: DataFrame, watermark: Watermark, context: BatchContext) -> tuple[datetime | None, int]:
    time, late_before = F.col(watermark.column), context.late_before
    late = F.lit(0) if late_before is None else F.count(F.when(time < F.lit(late_before), 1))
    mark = F.expr(f"{quoted(watermark.column)} - interval '{watermark.delay}'")
    possible = (time <= F.lit(context.batch.batch_time + MOST_AHEAD)) & (F.year(mark) >= 1)
    [row] = events.agg(F.unix_micros(F.max(F.when(possible, mark))).alias("mark"), late.alias("late")).collect()
    # As a number: Spark returns a datetime in the machine's time zone.
    return (None if row.mark is None else datetime.fromtimestamp(row.mark / 1_000_000, UTC)), row.late

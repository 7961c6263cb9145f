"""Batch input: what a micro-batch brings, as DataFrames, with its bad lines.

Each source's events are counted on the way and those that cannot be read are sorted out; the frame of every stream is
made once, however many states read it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pipelines.context import BatchContext
from pipelines.errors import BadInputError
from pipelines.pipeline import Pipeline
from pipelines.sources.source import Parsed, ReplayedSource, Source
from pipelines.sources.ticks import Ticks
from pipelines.stream import Node, Stream
from state_backends.batch import Batch
from state_backends.dead_letter_replay import RawLetter
from state_backends.dead_letters import DeadLetter

# Lines that may be bad however small the batch.
TOLERATED_BAD_LINES = 10


class Frames:
    """Makes the frames of a pipeline's streams from those of its sources.

    A source or a costly step that several streams read is computed once and cached until `forget`.
    """

    def __init__(self, pipeline: Pipeline, context: BatchContext, sources: Mapping[Node, DataFrame]) -> None:
        self._pipeline = pipeline
        self._context = context
        self._frames: dict[Node, DataFrame] = dict(sources)
        self._kept: list[DataFrame] = []

    def reach(self, context: BatchContext) -> None:
        """Give the steps that come a context that knows the batch's watermark."""
        self._context = context

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


class Replayed:
    """Dead letters of one source that a batch reads again, from their raw records."""

    def __init__(self, spark: SparkSession, source: Source | None, letters: Sequence[RawLetter]) -> None:
        self._letters = letters
        self._readable: list[RawLetter] = []
        self._parsed: Parsed | None = None
        self._source = source
        reader = _reader(source)
        if reader is not None:
            self._readable = [letter for letter in letters if letter.record.get("record") == reader.records]
            if self._readable:
                self._parsed = reader.parse_again(spark, [letter.record for letter in self._readable])

    def joined(self, events: DataFrame, *, few: bool) -> DataFrame:
        """Return the source's events with those that can be read now."""
        if self._parsed is None:
            return events
        good = self._parsed.good()
        joined = events.unionByName(good.coalesce(1) if few else good)
        return joined.coalesce(1) if few else joined

    def failed(self) -> list[tuple[int, str]]:
        """Return the letters that cannot be read now either, with the reason."""
        found = [
            (letter.id, f"its source is no longer at place {letter.place} of the pipeline")
            for letter in self._letters
            if letter not in self._readable
        ]
        if self._parsed is None or self._source is None:
            return found
        # Each record is parsed by itself, so equal ones fail alike.
        reasons = {_canonical(bad.record): bad.reason for bad in self._source.dead_letters(self._parsed.rows)}
        texts = ((letter.id, _canonical(letter.record)) for letter in self._readable)
        return found + [(number, reasons[text]) for number, text in texts if text in reasons]


def _reader(source: object) -> ReplayedSource | None:
    return source if isinstance(source, ReplayedSource) else None


def _canonical(record: Mapping[str, Any] | None) -> str:
    return json.dumps(record, sort_keys=True)


class BatchInput:
    """The events of one micro-batch, source by source. few: whether they are so few that one task reads them.

    replayed: dead letters that it reads again.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        frame: DataFrame,
        batch: Batch,
        *,
        few: bool = False,
        replayed: Sequence[RawLetter] = (),
    ) -> None:
        self._pipeline = pipeline
        self._batch = batch
        # With one partition there is nothing to shuffle before a group-by.
        parsed = pipeline.source.split(frame.coalesce(1) if few else frame)
        self._parts = [
            SourceEvents(source, part)
            for source, part in zip(pipeline.sources, parsed, strict=True)
            if not isinstance(source, Ticks)
        ]
        self.events: dict[Node, DataFrame] = {part.source: part.parsed.good() for part in self._parts}
        self._replayed = []
        for place, letters in groupby(sorted(replayed, key=_place), _place):
            source = pipeline.sources[place] if place < len(pipeline.sources) else None
            again = Replayed(frame.sparkSession, source, list(letters))
            self._replayed.append(again)
            if source is not None:
                self.events[source] = again.joined(self.events[source], few=few)

    @property
    def rows(self) -> int:
        """Everything that came, good and bad. Known once every source has been read.

        Dead letters were counted when they came, and are not counted again: a reprocess reads them once.
        """
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

    def failed_again(self) -> list[tuple[int, str]]:
        """Return the replayed dead letters that cannot be read now either, with the reason."""
        return [failed for again in self._replayed for failed in again.failed()]

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


def _place(letter: RawLetter) -> int:
    return letter.place


def _figures(parsed: Parsed) -> list[Column]:
    return [F.expr("count(1) AS rows"), F.expr(f"count({parsed.bad}) AS bad" if parsed.bad else "0 AS bad")]


def _was_seen(observation: Observation, spark: SparkSession) -> bool:
    """Return whether a job has counted the rows. Spark reports after the job's end, and offers no call for it."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    seen = observation._jo
    return bool(seen and seen.future().isCompleted() and seen.get().size())

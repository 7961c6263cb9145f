"""Batch input: the events of a micro-batch as DataFrames, and its bad lines.

Each source's events are counted while they are read, and those that cannot be read are set apart. The frame of every
stream is made once, however many states read it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegauge.pipelines.batch.replayed import Reader, Replayed
from tidegauge.pipelines.declare.frames import Frames
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.rule_rows import RuledOut, SourceRows
from tidegauge.pipelines.declare.stream import Node
from tidegauge.pipelines.errors import BadInputError
from tidegauge.pipelines.sources.source import Parsed, ReplayedSource, Source
from tidegauge.pipelines.sources.ticks import Ticks
from tidegauge.pipelines.spark.observed import JobMetrics, Observed
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.dead_letters.replay import RawLetter
from tidegauge.state_backends.ledger.batch import Batch

# So many bad lines are accepted in any batch, because in a small batch a few are already a large share.
TOLERATED_BAD_LINES = 10


class SourceEvents:
    """The events of one source, counted by the first job that reads them."""

    def __init__(self, source: Source, parsed: Parsed) -> None:
        self.source = source
        self._observed = Observed(parsed.rows, *_figures(parsed))
        self.parsed = replace(parsed, rows=self._observed.frame)

    @property
    def are_counted(self) -> bool:
        return self._observed.are_known

    @property
    def rows(self) -> int:
        return self._observed.figures["rows"]

    @property
    def bad(self) -> int:
        return self._observed.figures["bad"]

    def take(self, job: JobMetrics) -> None:
        self._observed.take(job)


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
        for (place, of_rule), letters in groupby(sorted(replayed, key=_kind), _kind):
            source = self._parts[place].source if place < len(self._parts) else None
            reader = None if source is None else self._reader(source, of_rule=of_rule)
            again = Replayed(frame.sparkSession, source, reader, list(letters))
            self._replayed.append(again)
            if source is not None:
                self.events[source] = again.joined(self.events[source], few=few)
        self._rules: list[RuledOut] = []

    @property
    def rows(self) -> int:
        """How many rows came, good and bad. Known once every source has been read.

        Replayed dead letters are not included, because they were counted when they came; a reprocess reads them once.
        """
        return sum(part.rows for part in self._parts)

    def keep(self, frames: Frames) -> None:
        """Cache what is read more than once, and count the rows that break a rule."""
        self._rules = [RuledOut(stream, frames) for stream in self._pipeline.rules]
        for part in self._parts:
            if self._must_come_first or self._pipeline.readers_below(part.source) > 1:
                frames.keep(part.parsed.rows)

    def check_first(self) -> None:
        """With a watermark or writes that cannot be reverted, check all input, and read what no job has read yet.

        Raises BadInputError.
        """
        if not self._must_come_first:
            return
        for part in self._parts:
            if not part.are_counted:
                counted = part.parsed.rows.groupBy().count()
                counted.collect()
                part.take(JobMetrics(counted))
        self.check()

    def take(self, job: JobMetrics) -> None:
        """Take the figures of what a job has read."""
        for part in self._parts:
            part.take(job)
        for ruled_out in self._rules:
            ruled_out.take(job)

    def check(self) -> None:
        """Raise BadInputError if too large a share cannot be read or breaks a rule."""
        for part in self._parts:
            rejected = self._rejected(part.source)
            if part.bad + rejected > max(TOLERATED_BAD_LINES, part.source.max_bad_share * part.rows):
                raise BadInputError(self._too_bad(part, rejected))

    def dead_letters(self) -> Iterator[tuple[int, Iterator[DeadLetter]]]:
        """Yield the dead letters of each source that has any, with the source's place."""
        for place, part in enumerate(self._parts):
            if part.bad or self._rejected(part.source):
                yield place, self._letters(part)

    def failed_again(self) -> list[tuple[int, str]]:
        """Return the replayed dead letters that still cannot be read, or break a rule, with the reason."""
        failed = [failed for again in self._replayed for failed in again.failed()]
        return failed + [rejected for _, again in self._rejected_again for rejected in again]

    def _letters(self, part: SourceEvents) -> Iterator[DeadLetter]:
        if part.bad:
            yield from part.source.dead_letters(part.parsed.rows)
        for ruled_out in self._rules:
            if ruled_out.source is part.source and ruled_out.number:
                yield from ruled_out.letters(part.parsed.good())

    def _rejected(self, source: Source) -> int:
        """Return how many new rows of a source break a rule."""
        found = sum(ruled_out.number for ruled_out in self._rules if ruled_out.source is source)
        return found - sum(len(again) for of, again in self._rejected_again if of is source)

    @cached_property
    def _rejected_again(self) -> list[tuple[Source, list[tuple[int, str]]]]:
        """Which replayed letters break a rule, by rule and its source."""
        return [
            (ruled_out.source, again.rejected(ruled_out))
            for ruled_out in self._rules
            for again in self._replayed
            if again.source is ruled_out.source and ruled_out.number
        ]

    def _reader(self, source: Source, *, of_rule: bool) -> Reader | None:
        if of_rule:
            return SourceRows(self.events[source].schema)
        return source if isinstance(source, ReplayedSource) else None

    @property
    def _must_come_first(self) -> bool:
        # Because only opaque rows can be reverted, and a watermark is known only once all times have been seen.
        revertible = all(spec.kind == "opaque" for spec in self._pipeline.specs) and not self._pipeline.stores
        return bool(self._pipeline.watermarked) or not revertible

    def _too_bad(self, part: SourceEvents, rejected: int) -> str:
        example = next(self._letters(part))
        line = f" line {example.line_number}" if example.line_number else ""
        counted = f"{part.bad} of {part.rows} lines of batch {self._batch.txid} cannot be read"
        if rejected:
            counted += f" and {rejected} break a rule"
        return (
            f"pipeline {self._batch.pipeline!r}: {counted}, more than the allowed share of "
            f"{part.source.max_bad_share}; the first: {example.source!r}{line}: {example.reason}; correct the input"
            f"{' or the rule,' if rejected else ''} or raise max_bad_share"
        )


def _kind(letter: RawLetter) -> tuple[int, bool]:
    """Return the place of a letter's source, and whether a rule has written it."""
    return letter.place, letter.record.get("record") == SourceRows.records


def _figures(parsed: Parsed) -> list[Column]:
    return [F.expr("count(1) AS rows"), F.expr(f"count({parsed.bad}) AS bad" if parsed.bad else "0 AS bad")]

"""What a micro-batch brings: each source's events, how many there are, and which of them cannot be read."""

from collections.abc import Iterator
from functools import cached_property

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pipelines.errors import BadInputError
from pipelines.frames import Frames
from pipelines.pipeline import Pipeline
from pipelines.sources.source import Parsed, Source
from pipelines.stream import Node
from state_backends.journal.dead_letters import DeadLetter
from state_backends.journal.ledger import Batch

# A handful of bad lines stops nobody, however small the batch.
TOLERATED_BAD_LINES = 10


class _Part:
    """What one source brought; counted on the way, by the job that reads it first."""

    def __init__(self, source: Source, raw: DataFrame) -> None:
        self.source = source
        self._unseen = source.parse(raw)
        self._observation = Observation()
        rows = self._unseen.rows.observe(self._observation, *_figures(self._unseen))
        self.parsed = Parsed(rows, self._unseen.columns, self._unseen.bad)

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
        # Nobody needed the rows, behind a condition that is never true, say; waiting for the figures would be for ever.
        [row] = self._unseen.rows.agg(*_figures(self._unseen)).collect()
        return row.asDict()


class Intake:
    """The events of one micro-batch, source by source."""

    def __init__(self, pipeline: Pipeline, frame: DataFrame, batch: Batch) -> None:
        self._pipeline = pipeline
        self._batch = batch
        raw = pipeline.source.split(frame)
        self._parts = [_Part(source, part) for source, part in zip(pipeline.sources, raw, strict=True)]
        self.events: dict[Node, DataFrame] = {part.source: part.parsed.good() for part in self._parts}

    @property
    def rows(self) -> int:
        """Everything that came, good and bad. Known once every source has been read."""
        return sum(part.rows for part in self._parts)

    def check_first(self, frames: Frames) -> None:
        """Read and count before anything is written, where what is written could not be undone, or is read twice.

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
        # Only opaque rows can go back, and a watermark is known only when all times have been seen.
        undoable = all(spec.kind == "opaque" for spec in self._pipeline.specs) and not self._pipeline.stores
        return bool(self._pipeline.watermarked) or not undoable

    def _too_bad(self, part: _Part) -> str:
        example = next(part.source.dead_letters(part.parsed.rows))
        return (
            f"pipeline {self._batch.pipeline!r}: {part.bad} of {part.rows} lines of batch {self._batch.txid} cannot "
            f"be read, more than the share of {part.source.max_bad_share}; the first: {example.source!r} line "
            f"{example.line_number}: {example.reason}; mend the input or raise max_bad_share"
        )


def _figures(parsed: Parsed) -> list[Column]:
    bad = F.lit(0) if parsed.bad is None else F.count(parsed.bad)
    return [F.count(F.lit(1)).alias("rows"), bad.alias("bad")]


def _was_seen(observation: Observation, spark: SparkSession) -> bool:
    """Tell whether a job has counted the rows. Spark reports behind the job's end, and has no call to ask by."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    seen = observation._jo
    return bool(seen and seen.future().isCompleted() and seen.getRow().length())

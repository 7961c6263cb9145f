"""`Sources`, which reads all sources of a query as one.

A query has one streaming DataFrame. `Sources` merges those of its sources, so that their input of a batch commits
together.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegauge.pipelines.checkpoint.files import CheckpointPath
from tidegauge.pipelines.checkpoint.folder import batch_offsets
from tidegauge.pipelines.errors import InputLostError
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.pipelines.sources.pending import Pending, combined
from tidegauge.pipelines.sources.source import GivenSource, Parsed, Source
from tidegauge.pipelines.sources.ticks import Ticks
from tidegauge.state_backends.ledger.source_input import Identity, SourceInput
from tidegauge.state_backends.schema.counted import CountedInput

# From the strongest promise to the weakest.
STRENGTH: list[Spout] = ["transactional", "opaque", "non_transactional"]


class Sources:
    """The sources of one query. If there are several, the column `_0`, `_1`, .. of a row holds its source's input.

    Input that is parsed by row is parsed in the query itself, because Spark then plans it once, not for every batch.
    spout: the weakest of their promises.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.spout: Spout = max((source.spout for source in sources), key=STRENGTH.index)
        self.packages = tuple(sorted({package for source in sources for package in source.packages}))
        self._sources = sources
        self._parsed: Sequence[Parsed] = ()

    def load(self, spark: SparkSession, waiting: Collection[Source] = ()) -> DataFrame:
        """Return the streaming DataFrame of their input, which `split` takes apart again.

        waiting: sources of which new batches read nothing.
        """
        raw = [
            source.load_waiting(spark) if source in waiting else source.load(spark)  # type: ignore[attr-defined]
            for source in self._sources
        ]
        self._parsed = [source.parse(rows) for source, rows in zip(self._sources, raw, strict=True)]
        frames = [parsed.rows if parsed.by_row else rows for parsed, rows in zip(self._parsed, raw, strict=True)]
        if len(frames) == 1:
            return frames[0]
        first, *others = (frame.select(F.struct("*").alias(f"_{place}")) for place, frame in enumerate(frames))
        for other in others:
            first = first.unionByName(other, allowMissingColumns=True)
        return first

    def split(self, batch: DataFrame) -> list[Parsed]:
        """Return the parsed input of each source in a micro-batch of the query that was loaded."""
        if isinstance(self._sources[0], GivenSource):
            return [self._sources[0].parse_given(batch)]
        parts = [batch]
        if len(self._sources) > 1:
            parts = [batch.where(f"_{place} is not null").select(f"_{place}.*") for place in range(len(self._sources))]
        return [
            replace(parsed, rows=part) if parsed.by_row else source.parse(part)
            for source, parsed, part in zip(self._sources, self._parsed, parts, strict=True)
        ]

    def held(self, checkpoint: CheckpointPath, batch_id: int) -> list[SourceInput | None]:
        """Return what a planned batch reads of each source, None if the checkpoint does not say."""
        places = self.at_places(len(batch_offsets(checkpoint, batch_id) or self._sources))
        return [source.held(checkpoint, batch_id, place) for place, source in enumerate(places)]

    def at_places(self, count: int) -> Sequence[Source]:
        """Return the source at each place of a query that has `count` sources in its checkpoint."""
        if isinstance(self._sources[0], GivenSource):
            return [self._sources[0]] * count
        # Matched by their number, because a pipeline may gain or lose its ticks between two runs.
        events = [source for source in self._sources if not isinstance(source, Ticks)]
        return {len(events): events, len(events) + 1: [*events, Ticks()]}.get(count, self._sources)

    def identities(self) -> list[Identity]:
        """Return what each source reads, with its id."""
        return [source.identity() for source in self._sources]

    def missing(self, spark: SparkSession, counted: CountedInput) -> list[str]:
        """Say which counted input a query from the start would no longer read, as far as the sources know."""
        found = (source.missing(spark, counted.of(place)) for place, source in enumerate(self._sources))
        return [missing for missing in found if missing]

    def check_from(
        self, offsets: Sequence[Any], again: Callable[[int], Collection[str]], spark: Callable[[], SparkSession]
    ) -> Iterator[tuple[Source, InputLostError | None]]:
        """Yield each source, and why what comes after its offset cannot be read; None if it can.

        again: returns, for the place of a source, the items that it has read after the offset.
        """
        for place, (source, offset) in enumerate(zip(self.at_places(len(offsets)), offsets, strict=True)):
            try:
                source.check_from(offset, again(place), spark)
                yield source, None
            except InputLostError as lost:
                yield source, lost

    def pending(self, checkpoint: CheckpointPath) -> Pending | None:
        """Return what all sources together have pending, or None if no source knows."""
        return combined([source.pending(checkpoint, place) for place, source in enumerate(self._sources)])

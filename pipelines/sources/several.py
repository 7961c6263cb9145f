"""The sources of one query, read side by side, so that what they bring in a batch commits together."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.guarantee import Spout
from pipelines.sources.source import Pending, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# From the strongest promise to the weakest.
STRENGTH: list[Spout] = ["transactional", "opaque", "non_transactional"]


class Sources:
    """One source as it is, or several: then the column `_0`, `_1`, .. of a row holds the raw input of its source.

    spout: the weakest of their promises.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.spout: Spout = max((source.spout for source in sources), key=STRENGTH.index)
        self.packages = tuple(sorted({package for source in sources for package in source.packages}))
        self._sources = sources

    def load(self, spark: "SparkSession") -> "DataFrame":
        """Return the streaming DataFrame of raw input."""
        if len(self._sources) == 1:
            return self._sources[0].load(spark)
        from pyspark.sql import functions as F

        first, *others = (
            source.load(spark).select(F.struct("*").alias(f"_{place}")) for place, source in enumerate(self._sources)
        )
        for other in others:
            first = first.unionByName(other, allowMissingColumns=True)
        return first

    def split(self, batch: "DataFrame") -> "list[DataFrame]":
        """Return the raw input of each source in a micro-batch."""
        if len(self._sources) == 1:
            return [batch]
        return [batch.where(f"_{place} is not null").select(f"_{place}.*") for place in range(len(self._sources))]

    def pending(self, checkpoint: Path) -> Pending | None:
        """Return what waits to be counted at all of them together, or None where that cannot be told."""
        parts = [source.pending(checkpoint, place) for place, source in enumerate(self._sources)]
        known = [part for part in parts if part is not None]
        if not known:
            return None
        oldest = min((part.oldest for part in known if part.oldest), default=None)
        return Pending(sum(part.count for part in known), " and ".join(sorted({part.unit for part in known})), oldest)

"""Ticks: a source without events that makes Spark run a batch when only time has passed.

Spark runs no batch without new input, so on idle input no watermark would advance and no timer fire. A tick is a new
offset without rows. The driver writes it to a file, because the reader runs in a process of its own. The value of an
offset has no meaning: what a batch does with time follows from the time that the ledger gives it.
"""

import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidegauge.pipelines.checkpoint.files import CheckpointPath, compact_json
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.pipelines.sources.pending import Pending
from tidegauge.pipelines.sources.python_reader import python_stream
from tidegauge.pipelines.sources.source import Parsed
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger.source_input import Identity, SourceInput
from tidegauge.state_backends.schema.counted import CountedSource


class Ticks:
    """A source without events. All are equal. A pipeline has one if a watermark of it may advance on idle input."""

    spout: Spout = "transactional"
    max_bad_share = 1.0
    packages: tuple[str, ...] = ()

    @property
    def schema(self) -> StructType:
        return StructType().add("tick", "long")

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tidegauge_ticks_")
        self._file = Path(self._folder.name) / "tick"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ticks)

    def __hash__(self) -> int:
        return hash(Ticks)

    def __str__(self) -> str:
        return "ticks"

    def tick(self) -> None:
        """Ask for a batch. The new offset is this host's time in microseconds, or the last offset plus 1 if later."""
        before = int(self._file.read_text()) if self._file.exists() else 0
        draft = self._file.with_suffix(".new")
        draft.write_text(str(max(time.time_ns() // 1_000, before + 1)))
        draft.replace(self._file)  # so that the reader never sees half a number

    def load(self, spark: SparkSession) -> DataFrame:
        # Not at the top, because Spark has such readers only since 4.0.
        from tidegauge.pipelines.sources.tick_reader import TickReader

        return python_stream(spark, "ticks", self.schema, partial(TickReader, self._file))

    def parse(self, batch: DataFrame) -> Parsed:
        return Parsed(batch, ("tick",))

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        return iter(())

    def pending(self, checkpoint: CheckpointPath, place: int = 0) -> Pending | None:
        return None

    def held(self, checkpoint: CheckpointPath, batch_id: int, place: int = 0) -> SourceInput | None:
        return SourceInput("positions", {})

    def identity(self) -> Identity:
        return {}

    def missing(self, spark: SparkSession, counted: CountedSource) -> str:
        return ""

    def check_from(self, offset: Any, again: Collection[str], spark: Callable[[], SparkSession]) -> None:
        """Nothing to check: there is nothing to read."""

    def offset_text(self, offset: Any) -> str:
        return compact_json(offset)

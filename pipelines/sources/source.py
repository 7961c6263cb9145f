"""What a runner asks of a source."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pipelines.guarantee import Spout
from state_backends.journal.dead_letters import DeadLetter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Pending:
    """Input that is there and not counted yet. oldest: when the oldest of it arrived, ISO, or None.

    alarm: what somebody must look at before it gets worse, or None.
    """

    count: int
    unit: str
    oldest: str | None
    alarm: str | None = None


@dataclass(frozen=True)
class Parsed:
    """A micro-batch taken apart. rows: every event, good and bad. columns: an event's own.

    bad: the column that holds a line that could not be read, and null beside every good one; None where none is bad.
    """

    rows: "DataFrame"
    columns: tuple[str, ...]
    bad: str | None = None

    def good(self) -> "DataFrame":
        events = self.rows if self.bad is None else self.rows.where(f"{self.bad} is null")
        return events.select(*(events[name] for name in self.columns))


class Source(Protocol):
    """A place events come from. Compared by identity: streams that share one read it once.

    spout: `transactional` where a replayed batch brings the same tuples, `opaque` where it may bring others,
    `non_transactional` where there is no replay.
    max_bad_share: the share of a batch that may be unreadable before it stops the pipeline.
    packages: Maven coordinates of the jars that Spark needs for it, `group:artifact:version`.
    """

    spout: Spout
    max_bad_share: float
    packages: tuple[str, ...]

    @property
    def schema(self) -> "StructType":
        """The columns of an event."""

    def load(self, spark: "SparkSession") -> "DataFrame":
        """Return the streaming DataFrame of raw input."""

    def parse(self, batch: "DataFrame") -> Parsed:
        """Take a micro-batch of raw input apart."""

    def dead_letters(self, parsed: "DataFrame") -> Iterator[DeadLetter]:
        """Say of each bad row where it stood and what is wrong with it."""

    def pending(self, checkpoint: Path, place: int = 0) -> Pending | None:
        """Return what waits to be counted, or None where that cannot be told.

        place: which of the query's sources this is; Spark numbers them in the checkpoint.
        """


def as_progress(pending: Pending | None) -> dict[str, Any]:
    if pending is None:
        return {}
    return {"pending": {name: value for name, value in vars(pending).items() if name != "alarm" or value is not None}}

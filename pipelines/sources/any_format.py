"""AnyFormat: what Spark's checkpoint says about a source, whatever its format.

The offsets of a file source count the entries of a log in the checkpoint, so its batches are compared, and its log is
restored, file by file. For any other source only the offsets are known, as the JSON that the source itself wrote.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegauge.pipelines.checkpoint.file_log import log_number, logged_files, modified_now, restore_log, taken_files
from tidegauge.pipelines.checkpoint.files import CheckpointPath, compact_json
from tidegauge.pipelines.checkpoint.folder import offset_range
from tidegauge.pipelines.errors import InputLostError
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.pipelines.sources.pending import Pending
from tidegauge.pipelines.sources.source import offsets_held
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger.source_input import Identity, SourceInput
from tidegauge.state_backends.repair.resume import Files, ResumePoint
from tidegauge.state_backends.schema.counted import CountedSource

ROOT = Path("/")


class AnyFormat:
    """What sources share that Spark reads by one of its formats. None of their events is unreadable.

    spout: what the source promises when a batch is replayed. max_bad_share: the share of events a state may reject.
    """

    packages: tuple[str, ...] = ()
    # Shown in place of what comes after an offset, because Spark's formats cannot be asked for it.
    unasked = "cannot say what is still there; the query fails when it starts if the input after that batch is gone"

    def __init__(self, spout: Spout, max_bad_share: float = 0.5) -> None:
        self.spout = spout
        self.max_bad_share = max_bad_share

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        return iter(())

    def pending(self, checkpoint: CheckpointPath, place: int = 0) -> Pending | None:
        return None

    def held(self, checkpoint: CheckpointPath, batch_id: int, place: int = 0) -> SourceInput | None:
        """Return the batch's files by path, or the offsets between which it lies."""
        offsets = offset_range(checkpoint, batch_id, place)
        if offsets is None or not reads_files(offsets[1]):
            return offsets_held(checkpoint, batch_id, place, str(place))
        first, last = map(log_number, offsets)
        files = logged_files(checkpoint / "sources" / str(place), first + 1, last)
        if files is None:
            return None
        return SourceInput("files", {str(path): modified_now(path, at) for path, at in files.items()}, listed=True)

    def identity(self) -> Identity:
        return {}

    def missing(self, spark: SparkSession, counted: CountedSource) -> str:
        return "the source cannot be read again from its start" if self.spout == "non_transactional" else ""

    def offset_text(self, offset: Any) -> str:
        return compact_json(offset)

    def check_from(self, offset: Any, again: Collection[str], spark: Callable[[], SparkSession]) -> None:
        if self.spout == "non_transactional":
            raise InputLostError(f"{self}: does not keep its input, so what it sent cannot be read again")
        missing = sorted(path for path in again if not Path(path).exists())
        if missing:
            raise InputLostError(
                f"{self}: {len(missing)} of the files that were counted and must be read again are gone, the first is "
                f"{missing[0]!r}; put them back, or put an empty file in the place of each that must not count"
            )

    def restore(self, log: CheckpointPath, place: int, point: ResumePoint, read: Mapping[int, Files]) -> None:
        if reads_files(point.offsets[place]):
            restore_log(log, place, point, read, ROOT)

    def taken(self, log: CheckpointPath, offset: Any) -> Files:
        files = taken_files(log, log_number(offset)) if reads_files(offset) else {}
        return {str(path): at for path, at in files.items()}


def reads_files(offset: Any) -> bool:
    """Return whether an offset is one of Spark's file source, which counts the entries of its log."""
    return isinstance(offset, dict) and offset.keys() == {"logOffset"}

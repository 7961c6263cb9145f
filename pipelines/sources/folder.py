"""A folder that files land in: each is read once, oldest first.

Spark notes which files a batch holds before it runs, so a replay reads the same ones: a transactional spout, as long
as nobody changes a file once it has landed (write it elsewhere, then move it in).
"""

from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pipelines.guarantee import Spout
from pipelines.sources.columns import declared
from pipelines.sources.file_log import ProcessedFiles
from pipelines.sources.source import Pending
from pipelines.sources.texts import RESERVED

# Spark forgets files a week older than the newest, and then ignores one that lands late with an old time stamp, as
# `mv` and `rsync` keep it. A note of every file costs about 200 bytes of the driver's memory; a lost one costs more.
REMEMBER_FILES = "36500d"

FILE = "_file"  # the column that says which file a row came from


class Folder:
    """What all sources of files share.

    folder: made if absent; files that match `pattern` are read, but for those whose name begins with `_` or a dot.
    schema: the columns of an event. files_per_batch: how many files one batch takes at most.
    """

    spout: Spout = "transactional"
    packages: tuple[str, ...] = ()
    pattern: ClassVar[str]
    # Columns of ours beside an event's own, which it cannot have.
    reserved: ClassVar[tuple[str, ...]] = (*RESERVED, FILE)

    def __init__(
        self,
        folder: Path | str,
        *,
        schema: str | StructType,
        files_per_batch: int = 100,
        max_bad_share: float = 0.5,
    ) -> None:
        self._schema = schema
        self.folder = Path(folder)
        self.files_per_batch = files_per_batch
        self.max_bad_share = max_bad_share
        self._processed: dict[Path, ProcessedFiles] = {}

    @cached_property
    def schema(self) -> StructType:
        return declared(self._schema, repr(str(self.folder)), self.reserved)

    def pending(self, checkpoint: Path, place: int = 0) -> Pending | None:
        """Return the files that have landed and that no committed batch has read."""
        seen = self._processed.setdefault(checkpoint, ProcessedFiles(checkpoint, place)).names()
        waiting = [path.stat().st_mtime for path in self._landed() if path.name not in seen]
        oldest = datetime.fromtimestamp(min(waiting), UTC).isoformat() if waiting else None
        return Pending(len(waiting), "files", oldest)

    def _landed(self) -> list[Path]:
        return [path for path in self.folder.glob(self.pattern) if not path.name.startswith(("_", "."))]

    def _stream(self, spark: SparkSession, kind: str, schema: StructType | None = None) -> DataFrame:
        self.folder.mkdir(parents=True, exist_ok=True)
        reader = spark.readStream.format(kind)
        if schema is not None:
            reader = reader.schema(schema)
        return (
            reader.option("pathGlobFilter", self.pattern)
            .option("maxFilesPerTrigger", self.files_per_batch)
            .option("maxFileAge", REMEMBER_FILES)
            # Whatever the session says: a file that is skipped in silence is lost.
            .option("ignoreCorruptFiles", "false")
            .option("ignoreMissingFiles", "false")
            .load(str(self.folder))
        )


def path_of(file: str) -> Path:
    """Return the path that a value of the column FILE stands for."""
    return Path(unquote(urlparse(file).path))

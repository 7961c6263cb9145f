"""Folder: what file sources share, whatever the format of their files.

It works with Spark's log of files in the checkpoint (file_log.py): it tells which files a batch holds, which have
landed since and which are gone, and writes that log again when a checkpoint is restored.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidegauge.pipelines.checkpoint.file_log import (
    ProcessedFiles,
    log_number,
    logged_files,
    modified_now,
    restore_log,
    taken_files,
)
from tidegauge.pipelines.checkpoint.files import CheckpointPath, compact_json
from tidegauge.pipelines.checkpoint.folder import offset_range
from tidegauge.pipelines.errors import InputLostError, SourceSetupError
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.pipelines.sources.parsing import RESERVED
from tidegauge.pipelines.sources.pending import Pending
from tidegauge.pipelines.sources.schemas import declared
from tidegauge.pipelines.sources.source import Span
from tidegauge.state_backends.ledger.source_input import Identity, SourceInput
from tidegauge.state_backends.repair.resume import Files, ResumePoint
from tidegauge.state_backends.schema.counted import CountedSource, missing_files

# 100 years, because by default Spark forgets files a week older than the newest, and ignores a file that lands late
# with an old time stamp, which `mv` and `rsync` keep. A remembered file costs about 200 bytes of the driver's memory.
REMEMBER_FILES = "36500d"

# Characters of Spark's path patterns. If a path in a batch has one of them, Spark's stream reads all other files of the
# batch twice, although it does not expand the path (DataSource.checkAndGlobPathIfNecessary).
GLOB = re.compile(r"[*?\[\]{}\\]")

NO_FILE = "_"  # a pattern that matches no file, because names that begin with it are left out

# A path pattern in the folder that matches no file. Neither another folder nor NO_FILE would do for a stream, because
# Spark also applies those to the files of a batch planned before: it would fail, or read none of them.
NOWHERE = "[.]waiting"

FILE = "_file"  # the column that says which file a row came from


class Folder:
    """What all sources of files share.

    folder: created if absent; files that match `pattern` are read, except those whose names begin with `_` or a dot.
    schema: the columns of an event. files_per_batch: the most files that one batch reads.
    """

    spout: Spout = "transactional"
    packages: tuple[str, ...] = ()
    pattern: ClassVar[str]
    # Our own columns; an event's schema cannot name them.
    reserved: ClassVar[tuple[str, ...]] = (*RESERVED, FILE)
    _waits = False

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
        self._processed: dict[CheckpointPath, ProcessedFiles] = {}

    @cached_property
    def schema(self) -> StructType:
        return declared(self._schema, repr(str(self.folder)), self.reserved)

    def load(self, spark: SparkSession) -> DataFrame:
        return self._raw(spark, None)

    def load_waiting(self, spark: SparkSession) -> DataFrame:
        waiting = copy(self)
        waiting._waits = True
        return waiting.load(spark)

    def reread(self, spark: SparkSession, span: Span) -> DataFrame:
        changed = sorted(name for name, at in span.files.items() if modified_now(self.folder / name, -1) != at)
        if changed:
            raise InputLostError(
                f"{self}: {len(changed)} of the {len(span.files)} files that were counted are gone or have changed "
                f"since, the first is {changed[0]!r}"
            )
        return self._raw(spark, span.files)

    def pending(self, checkpoint: CheckpointPath, place: int = 0) -> Pending | None:
        """Return the files that have landed and that no committed batch has read."""
        seen = self._processed.setdefault(checkpoint, ProcessedFiles(checkpoint, place)).names()
        waiting = [path.stat().st_mtime for path in self._landed() if path.name not in seen]
        oldest = datetime.fromtimestamp(min(waiting), UTC).isoformat() if waiting else None
        return Pending(len(waiting), "files", oldest)

    def held(self, checkpoint: CheckpointPath, batch_id: int, place: int = 0) -> SourceInput | None:
        """Return the batch's files, by path in the folder, with their present modification times."""
        offsets = offset_range(checkpoint, batch_id, place)
        if offsets is None:
            return None
        first, last = (log_number(offset) for offset in offsets)
        planned = logged_files(checkpoint / "sources" / str(place), first + 1, last)
        if planned is None:
            return None
        self._check_names(planned)
        items = {self._name(path): modified_now(path, modified) for path, modified in planned.items()}
        return SourceInput("files", items, listed=True)

    def identity(self) -> Identity:
        """Return the folder's path, because Spark takes files of another folder as new, even if they were counted."""
        return {"folder": str(self.folder.absolute())}

    def missing(self, spark: SparkSession, counted: CountedSource) -> str:
        there = {self._name(path) for path in self._landed()}
        missing = [name for name in counted.files() if name not in there]
        return f"folder {str(self.folder)!r}: {missing_files(missing)}" if missing else ""

    def offset_text(self, offset: Any) -> str:
        return compact_json(offset)

    def check_from(self, offset: Any, again: Collection[str], spark: Callable[[], SparkSession]) -> None:
        missing = sorted(name for name in again if not (self.folder / name).exists())
        if missing:
            raise InputLostError(
                f"{self}: {len(missing)} of the files that were counted and must be read again are gone, the first is "
                f"{missing[0]!r}; put them back, or put an empty file in the place of each that must not count"
            )

    def restore(self, log: CheckpointPath, place: int, point: ResumePoint, read: Mapping[int, Files]) -> None:
        restore_log(log, place, point, read, self.folder)

    def taken(self, log: CheckpointPath, offset: Any) -> Files:
        return {self._name(path): at for path, at in taken_files(log, log_number(offset)).items()}

    def __str__(self) -> str:
        return f"folder {str(self.folder)!r}"

    def _check_names(self, planned: Iterable[Path]) -> None:
        paths = list(planned)
        patterns = [path for path in paths if GLOB.search(str(path))]
        if patterns and len(paths) > 1:
            raise SourceSetupError(
                f"{self}: Spark would read the {len(paths) - 1} other files of the batch twice, because the path "
                f"{str(patterns[0])!r} has one of the characters *?[]{{}}\\; rename it, and run `tidegauge pipelines "
                "restore-checkpoint` so that the batch is planned again, or read with files_per_batch=1"
            )

    def _name(self, path: Path) -> str:
        # Both absolute, because the folder may be given relative to the working directory, and logs have whole paths.
        folder, path = self.folder.absolute(), path.absolute()
        return str(path.relative_to(folder) if path.is_relative_to(folder) else path)

    def _landed(self) -> list[Path]:
        return [path for path in self.folder.glob(self.pattern) if not path.name.startswith(("_", "."))]

    def _raw(self, spark: SparkSession, files: Iterable[str] | None) -> DataFrame:
        """Return the raw input of `files` as a batch; if None, that of all files that land, as a stream."""
        raise NotImplementedError

    def _frame(
        self, spark: SparkSession, files: Iterable[str] | None, kind: str, schema: StructType | None = None
    ) -> DataFrame:
        self.folder.mkdir(parents=True, exist_ok=True)
        reader: Any = (spark.readStream if files is None else spark.read).format(kind)
        if schema is not None:
            reader = reader.schema(schema)
        # Overrides the session's settings, because a file that is skipped without an error is lost.
        reader = reader.options(ignoreCorruptFiles="false", ignoreMissingFiles="false")
        if files is None:
            settings = {"maxFilesPerTrigger": self.files_per_batch, "maxFileAge": REMEMBER_FILES}
            path = self.folder / NOWHERE if self._waits else self.folder
            frame = reader.options(pathGlobFilter=self.pattern, **settings).load(str(path))
        elif paths := [GLOB.sub(r"\\\g<0>", str(self.folder.absolute() / name)) for name in files]:
            frame = reader.load(paths)
        else:
            frame = reader.option("pathGlobFilter", NO_FILE).load(str(self.folder))
        assert isinstance(frame, DataFrame)
        return frame

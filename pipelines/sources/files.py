"""Files that land in a folder: JSON lines and text lines.

Spark notes which files a batch holds before it runs, so a replay reads the same ones: a transactional spout, as long
as nobody changes a file once it has landed (write it elsewhere, then move it in).
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pipelines.errors import PipelineError
from pipelines.guarantee import Spout
from pipelines.sources.bad_lines import line_numbers, why_bad
from pipelines.sources.file_log import ProcessedFiles
from pipelines.sources.source import Parsed, Pending
from state_backends.journal.dead_letters import DeadLetter

# Spark forgets files a week older than the newest, and then ignores one that lands late with an old time stamp, as
# `mv` and `rsync` keep it. A note of every file costs about 200 bytes of the driver's memory; a lost one costs more.
REMEMBER_FILES = "36500d"

# Beside the events' own columns: the line itself where it is bad, and the file it came from.
BAD_LINE, FILE, CORRUPT = "_bad_line", "_file", "_corrupt"


class _LineFiles:
    """What JSON lines and text lines share: a folder, and one event per line that is not blank.

    folder: made if absent; files that match `pattern` are read once each, oldest first.
    files_per_batch: how many files one batch takes at most.
    """

    spout: Spout = "transactional"
    packages: tuple[str, ...] = ()
    pattern: ClassVar[str]

    def __init__(self, folder: Path | str, *, files_per_batch: int, max_bad_share: float) -> None:
        self.folder = Path(folder)
        self.files_per_batch = files_per_batch
        self.max_bad_share = max_bad_share
        self._processed: ProcessedFiles | None = None

    def load(self, spark: SparkSession) -> DataFrame:
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = (
            spark.readStream.format("text")
            .option("pathGlobFilter", self.pattern)
            .option("maxFilesPerTrigger", self.files_per_batch)
            .option("maxFileAge", REMEMBER_FILES)
            .load(str(self.folder))
        )
        return lines.select("value", F.col("_metadata.file_path").alias(FILE))

    def pending(self, checkpoint: Path, place: int = 0) -> Pending | None:
        """Return the files that have landed and that no committed batch has read."""
        if self._processed is None:
            self._processed = ProcessedFiles(checkpoint, place)
        seen = self._processed.names()
        waiting = [path.stat().st_mtime for path in self.folder.glob(self.pattern) if path.name not in seen]
        oldest = datetime.fromtimestamp(min(waiting), UTC).isoformat() if waiting else None
        return Pending(len(waiting), "files", oldest)


class JsonFiles(_LineFiles):
    """JSON-lines files (`*.json`, `*.jsonl`): one object per line.

    schema: the columns, as Spark DDL or a StructType; `NOT NULL` makes a column required. Fields that the schema
    does not name are left out, absent ones are null. A line that is no JSON object, has a value of another type or
    lacks a required column is bad: it goes to the dead letters and into no state.
    max_bad_share: a batch with more than this share of bad lines (and more than 10) stops the pipeline.
    """

    pattern = "*.json*"

    def __init__(
        self,
        folder: Path | str,
        *,
        schema: str | StructType,
        files_per_batch: int = 100,
        max_bad_share: float = 0.5,
    ) -> None:
        super().__init__(folder, files_per_batch=files_per_batch, max_bad_share=max_bad_share)
        self._schema = schema

    @cached_property
    def schema(self) -> StructType:
        if isinstance(self._schema, StructType):
            return self._schema
        parsed = StructType.fromDDL(self._schema)
        if not isinstance(parsed, StructType):
            raise PipelineError(f"source {str(self.folder)!r}: schema {self._schema!r} names no columns")
        return parsed

    def parse(self, batch: DataFrame) -> Parsed:
        nullable = StructType([StructField(field.name, field.dataType, True) for field in self.schema])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "allowSingleQuotes": "false"}
        row = F.from_json("value", nullable.add(CORRUPT, "string"), options)
        required = [field.name for field in self.schema if not field.nullable]
        bad = F.col(f"row.{CORRUPT}").isNotNull() | ~_is_one_value()
        for name in required:
            bad = bad | F.col("row")[name].isNull()
        rows = (
            batch.where("trim(value) <> ''")
            .select("value", FILE, row.alias("row"))
            .select("row.*", F.when(bad, F.col("value")).alias(BAD_LINE), FILE)
            .drop(CORRUPT)
        )
        return Parsed(rows, tuple(self.schema.names), BAD_LINE)

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        numbers = line_numbers()
        for line, file in (
            parsed.where(f"{BAD_LINE} is not null").select(BAD_LINE, FILE).orderBy(FILE).toLocalIterator()
        ):
            path = Path(unquote(urlparse(file).path))
            yield DeadLetter(path.name, line, why_bad(line, self.schema), numbers(path, line))


class TextFiles(_LineFiles):
    """Text files (`*.txt`): one event per line that is not blank, in the column `line`. No line is bad."""

    pattern = "*.txt"

    def __init__(self, folder: Path | str, *, files_per_batch: int = 100) -> None:
        super().__init__(folder, files_per_batch=files_per_batch, max_bad_share=1.0)

    @cached_property
    def schema(self) -> StructType:
        return StructType().add("line", "string")

    def parse(self, batch: DataFrame) -> Parsed:
        return Parsed(batch.where("trim(value) <> ''").withColumnRenamed("value", "line"), ("line",))

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        return iter(())


def _is_one_value() -> "F.Column":
    # Spark's parser stops at the end of the first value, so `{..}{..}` would lose the second one in silence.
    wrapped = F.concat(F.lit("["), F.col("value"), F.lit("]"))
    return F.coalesce(F.json_array_length(wrapped) == 1, F.lit(False))

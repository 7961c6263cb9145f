"""Files that land in a folder: lines of JSON, CSV or text, and Parquet. Each is read once, oldest first.

Spark stores which files a batch holds before the batch runs, so a replay reads the same files. The source is therefore
a transactional spout, if no file changes after it has landed (write it elsewhere, then move it in).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, DataType, IntegerType, ShortType, StringType, StructField, StructType

from tidegauge.pipelines.checkpoint.file_log import path_of
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.bad_lines import A_HEADER, line_numbers, why_bad, why_bad_csv
from tidegauge.pipelines.sources.files.folder import FILE, Folder
from tidegauge.pipelines.sources.parsing import BAD_LINE, BAD_ROW, CORRUPT, csv_events, csv_row, json_events
from tidegauge.pipelines.sources.schemas import nullable, required
from tidegauge.pipelines.sources.source import Parsed
from tidegauge.pipelines.spark.rows import read_rows
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.dead_letters.letters import DeadLetter, record_bytes, record_value

# Further columns for CSV and Parquet files: the place of a line or row in its file, and a header unlike the schema.
BLOCK_START, ORDER, FOUND_HEADER, ROW_INDEX = "_block_start", "_order", "_found_header", "_row_index"

LINE = StructType().add("line", "string")


class _LineFiles(Folder):
    """One event per line that is not blank."""

    records = "line of a file"

    def _raw(self, spark: SparkSession, files: Iterable[str] | None) -> DataFrame:
        return self._frame(spark, files, "text").select("value", F.col("_metadata.file_path").alias(FILE))

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        numbers = line_numbers(self._is_header)
        bad = parsed.where(f"{BAD_LINE} is not null").select(BAD_LINE, f"{BAD_ROW}.*")
        for row in read_rows(bad.orderBy(FILE)):
            path, line = path_of(row[FILE]), row[BAD_LINE]
            yield DeadLetter(path.name, line, self._why_bad(row), numbers(path, line), record=self._record(row))

    def parse_again(self, spark: SparkSession, records: Sequence[Mapping[str, Any]]) -> Parsed:
        lines = [(bytearray(record_bytes(record["line"]) or b""), record["file"]) for record in records]
        schema = StructType().add("value", "binary").add(FILE, "string")
        return self._parsed(spark.createDataFrame(lines, schema).withColumn("value", F.col("value").cast("string")))

    def _record(self, row: Row) -> dict[str, Any] | None:
        return {"record": self.records, "file": row[FILE], "line": record_value(row["bytes"])}

    def parse(self, batch: DataFrame) -> Parsed:
        raise NotImplementedError

    def _parsed(self, lines: DataFrame) -> Parsed:
        """Parse lines that are known to be events, without looking for a header in their file."""
        return self.parse(lines)

    def _is_header(self, line: str) -> bool:
        return False

    def _why_bad(self, row: Row) -> str:
        raise NotImplementedError


class JsonFiles(_LineFiles):
    """JSON-lines files (`*.json`, `*.jsonl`): one object per line.

    folder: created if absent; names that begin with `_` or a dot are left out. files_per_batch: the limit per batch.
    schema: the columns, as Spark DDL or a StructType; `NOT NULL` makes a column required. Fields that the schema
    does not name are ignored, absent ones are null. A line that is not a JSON object, has a value of another type
    or lacks a required column is bad: it goes to the dead letters and into no state.
    max_bad_share: a batch with more than this share of bad lines (and more than 10) stops the pipeline.
    """

    pattern = "*.json*"

    def parse(self, batch: DataFrame) -> Parsed:
        rows = json_events(batch.where("trim(value) <> ''"), self.schema, keep=(), place=[FILE])
        return Parsed(rows, tuple(self.schema.names), BAD_LINE)

    def _why_bad(self, row: Row) -> str:
        return why_bad(row[BAD_LINE], self.schema)


class CsvFiles(_LineFiles):
    """CSV files (`*.csv`, `*.tsv`): one line per event, its fields in the schema's order.

    folder, files_per_batch: as for JsonFiles.
    schema: the columns, as Spark DDL or a StructType; `NOT NULL` makes a column required. An empty field is null.
    header: whether each file's first line names the columns and is not an event. It must name the schema's columns in
    their order; otherwise every line of the file is bad, so that no value lands in another column.
    delimiter: one character.
    max_bad_share: a batch with more than this share of bad lines (and more than 10) stops the pipeline.

    A line is bad if it has more or fewer fields than the schema, a value of another type, no value where one is
    required, or a quote that it does not close. A quoted field must end on its line, so records with line breaks are
    not supported. Quotes are `"`, doubled within a quoted field.
    """

    pattern = "*.[ct]sv"
    reserved = (*Folder.reserved, BLOCK_START, ORDER, FOUND_HEADER)

    def __init__(
        self,
        folder: Path | str,
        *,
        schema: str | StructType,
        header: bool = True,
        delimiter: str = ",",
        files_per_batch: int = 100,
        max_bad_share: float = 0.5,
    ) -> None:
        super().__init__(folder, schema=schema, files_per_batch=files_per_batch, max_bad_share=max_bad_share)
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise PipelineError(
                f"source {str(folder)!r}: delimiter {delimiter!r} is not a delimiter; give one character that is "
                "neither a quote nor a line break"
            )
        self.header = header
        self.delimiter = delimiter

    def _raw(self, spark: SparkSession, files: Iterable[str] | None) -> DataFrame:
        if not self.header:
            return super()._raw(spark, files)
        block_start = F.col("_metadata.file_block_start").alias(BLOCK_START)
        return self._frame(spark, files, "text").select("value", F.col("_metadata.file_path").alias(FILE), block_start)

    def parse(self, batch: DataFrame) -> Parsed:
        lines = batch.where("trim(value) <> ''")
        if self.header:
            events = self._events_under_headers(lines)
        else:
            events = csv_events(lines, self.schema, self.delimiter, keep=(), place=[FILE])
        return Parsed(events, tuple(self.schema.names), BAD_LINE, by_row=not self.header)

    def _parsed(self, lines: DataFrame) -> Parsed:
        lines = lines.withColumn(FOUND_HEADER, F.lit(None).cast("string"))
        events = self._below_header(lines, self._names_the_schema("value"))
        return Parsed(events, tuple(self.schema.names), BAD_LINE)

    def _record(self, row: Row) -> dict[str, Any] | None:
        # None under a wrong header, because the column of each value is unknown.
        return None if self.header and row[FOUND_HEADER] is not None else super()._record(row)

    def _events_under_headers(self, lines: DataFrame) -> DataFrame:
        # Tasks read lines in order, and a large file in blocks, so the header is the first line of the block from 0.
        lines = lines.withColumn(ORDER, F.monotonically_increasing_id())
        first = F.min_by(F.struct(ORDER, "value"), ORDER).alias("first")
        headers = lines.where(F.col(BLOCK_START) == 0).groupBy(FILE).agg(first)
        wrong = F.when(~self._names_the_schema("first.value"), F.col("first.value")).alias("wrong")
        located = lines.join(
            F.broadcast(headers.select(FILE, F.col(f"first.{ORDER}").alias("at"), wrong)), FILE, "left"
        )
        # A file whose first block has only blank lines has no header.
        found = located.withColumn(FOUND_HEADER, F.when(F.col("at").isNull(), "").otherwise(F.col("wrong")))
        below = found.where(f"{FOUND_HEADER} IS NOT NULL OR {ORDER} <> at")
        bad = F.col(FOUND_HEADER).isNotNull() | self._names_the_schema("value")
        return self._below_header(below, bad)

    def _below_header(self, lines: DataFrame, refused: Column) -> DataFrame:
        place = [FILE, FOUND_HEADER]
        return csv_events(lines, self.schema, self.delimiter, keep=(), place=place, refused=refused)

    def _names_the_schema(self, line: str) -> Column:
        texts = StructType()
        for name in self.schema.names:
            texts = texts.add(name, StringType())
        fields = csv_row(line, texts, self.delimiter)
        same = fields[CORRUPT].isNull()
        for name in self.schema.names:
            same = same & F.coalesce(F.trim(fields[name]) == F.lit(name), F.lit(False))
        return same

    def _is_header(self, line: str) -> bool:
        return self.header and why_bad_csv(line, self.schema, self.delimiter) == A_HEADER

    def _why_bad(self, row: Row) -> str:
        header = self.delimiter.join(self.schema.names)
        found = row[FOUND_HEADER] if self.header else None
        if found is not None:
            return f"the file's header is {found[:200]!r}, expected {header!r}"
        return why_bad_csv(row[BAD_LINE], self.schema, self.delimiter)


class TextFiles(_LineFiles):
    """Text files (`*.txt`): one event per line that is not blank, in the column `line`. No line is bad.

    folder, files_per_batch: as for JsonFiles. max_bad_share: if a state rejects a larger share of a batch's events
    (and more than 10), the pipeline stops.
    Bytes that are not UTF-8 become the replacement character.
    """

    pattern = "*.txt"

    def __init__(self, folder: Path | str, *, files_per_batch: int = 100, max_bad_share: float = 0.5) -> None:
        super().__init__(folder, schema=LINE, files_per_batch=files_per_batch, max_bad_share=max_bad_share)

    def parse(self, batch: DataFrame) -> Parsed:
        lines = batch.where("trim(value) <> ''").select(F.make_valid_utf8("value").alias("line"))
        return Parsed(lines, ("line",))

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        return iter(())


class ParquetFiles(Folder):
    """Parquet files (`*.parquet`): one event per row.

    folder, files_per_batch: as for JsonFiles.
    schema: the columns, as Spark DDL or a StructType; `NOT NULL` makes a column required. Columns that the schema
    does not name are ignored. A column that a file lacks is null in all its rows, so require those that must exist.
    A row without a required value, or with a number outside the range of a tinyint or smallint column, is bad: it goes
    to the dead letters, as JSON and with its number from 1.
    A file that cannot be read, or holds a column of another type, stops the batch with an error that names it.
    max_bad_share: a batch with more than this share of bad rows (and more than 10) stops the pipeline.
    """

    pattern = "*.parquet"
    reserved = (*Folder.reserved, ROW_INDEX)

    def _raw(self, spark: SparkSession, files: Iterable[str] | None) -> DataFrame:
        rows = self._frame(spark, files, "parquet", self._stored)
        if not self._may_be_bad:
            return rows  # without places, because no row can be a dead letter
        return rows.select("*", F.col("_metadata.file_path").alias(FILE), F.col("_metadata.row_index").alias(ROW_INDEX))

    def parse(self, batch: DataFrame) -> Parsed:
        if not self._may_be_bad:
            return Parsed(batch, tuple(self.schema.names))
        bad = F.lit(False)
        for name in required(self.schema):
            bad = bad | batch[name].isNull()
        for name, kind in self._narrow.items():
            bad = bad | (batch[name].isNotNull() & batch[name].try_cast(kind).isNull())
        event = F.struct(*(batch[name] for name in self.schema.names))
        rows = batch.withColumn(BAD_LINE, F.when(bad, F.to_json(event, {"ignoreNullFields": "false"})))
        rows = rows.withColumns({name: F.col(quoted(name)).try_cast(kind) for name, kind in self._narrow.items()})
        return Parsed(rows, tuple(self.schema.names), BAD_LINE)

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        bad = parsed.where(f"{BAD_LINE} is not null").select(BAD_LINE, FILE, ROW_INDEX)
        for line, file, index in read_rows(bad.orderBy(FILE, ROW_INDEX)):
            yield DeadLetter(path_of(file).name, line, self._why_bad(json.loads(line)), index + 1)

    def _why_bad(self, row: dict[str, Any]) -> str:
        absent = ", ".join(name for name in required(self.schema) if row[name] is None)
        if absent:
            return f"{absent}: required, and absent or null"
        return why_bad(json.dumps({name: row[name] for name in self._narrow}), StructType(list(self._fields())))

    @property
    def _may_be_bad(self) -> bool:
        return bool(required(self.schema) or self._narrow)

    @property
    def _narrow(self) -> dict[str, DataType]:
        """The columns whose types Parquet stores in 32 bits. Read as int, because Spark would cut 200 to -56."""
        return {field.name: field.dataType for field in self._fields()}

    def _fields(self) -> Iterator[StructField]:
        return (field for field in self.schema if isinstance(field.dataType, ByteType | ShortType))

    @property
    def _stored(self) -> StructType:
        wide = StructType()
        for field in nullable(self.schema):
            wide = wide.add(field.name, IntegerType() if field.name in self._narrow else field.dataType)
        return wide

"""Given rows: the rows that a test gives to a source of a pipeline instead of its real input.

For a source of files, the rows are written to a file in a temporary folder, and the source's own code reads them, with
its dead letters and line numbers. For other sources, the rows become events with the source's schema.
"""

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidegauge.pipelines.checkpoint.files import CheckpointPath, compact_json
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import FedState, Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.files.folder import Folder
from tidegauge.pipelines.sources.files.formats import CsvFiles, JsonFiles, ParquetFiles, TextFiles
from tidegauge.pipelines.sources.pending import Pending
from tidegauge.pipelines.sources.schemas import nullable
from tidegauge.pipelines.sources.source import Parsed, Source, Span
from tidegauge.pipelines.sources.ticks import Ticks
from tidegauge.pipelines.spark.session import as_arrow
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger.source_input import Identity, SourceInput
from tidegauge.state_backends.schema.counted import CountedSource
from tidegauge.testing.steps import BatchRows, Rows


class GivenRows:
    """A source that gives the rows of a test. It has the schema and the replay guarantee of the source it replaces.

    folder: where files with the rows are written.
    """

    packages: tuple[str, ...] = ()

    def __init__(self, source: Source, folder: Path) -> None:
        self.spout = source.spout
        self.max_bad_share = source.max_bad_share
        self.schema = source.schema
        self.name = name_of(source)
        self._source = source
        self._folder = folder
        self._rows: Rows = ()
        self._held: SourceInput | None = None
        self._loads = 0
        if isinstance(source, Folder):
            # A copy of the source with another folder, so that nothing is written into the user's folder.
            self._source = copy(source)
            self._source.folder = folder
            folder.mkdir(parents=True)

    def give(self, rows: Rows, *, half: bool = False) -> None:
        """Set the rows of the next batch. half: load only the first, the third and so on, but report all as held."""
        self._held = SourceInput("rows", {f"row {place:06}": repr(row) for place, row in enumerate(rows, start=1)})
        self._rows = rows[::2] if half else rows

    def load(self, spark: SparkSession) -> DataFrame:
        """Return the raw input of this batch as a DataFrame that is not streaming."""
        self._loads += 1
        if isinstance(self._source, Folder):
            return self._from_file(spark, self._source)
        rows = [tuple(_typed(event[field.name], field.dataType) for field in self.schema) for event in self._events()]
        return spark.createDataFrame(rows, nullable(self.schema))

    def parse(self, batch: DataFrame) -> Parsed:
        if isinstance(self._source, Folder):
            return self._source.parse(batch)
        return Parsed(batch, tuple(self._names))

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        return self._source.dead_letters(parsed)

    def held(self, checkpoint: CheckpointPath, batch_id: int, place: int = 0) -> SourceInput | None:
        return self._held

    def pending(self, checkpoint: CheckpointPath, place: int = 0) -> Pending | None:
        return None

    def identity(self) -> Identity:
        return {}

    def missing(self, spark: SparkSession, counted: CountedSource) -> str:
        return ""

    def check_from(self, offset: Any, again: Collection[str], spark: Callable[[], SparkSession]) -> None:
        return None

    def offset_text(self, offset: Any) -> str:
        return compact_json(offset)

    def __str__(self) -> str:
        return f"source {self.name!r}"

    @property
    def _names(self) -> list[str]:
        return list(self.schema.names)

    def _from_file(self, spark: SparkSession, source: Folder) -> DataFrame:
        files = {}
        if self._rows:
            path = self._folder / f"batch-{self._loads}{source.pattern.replace('*', '').replace('[ct]', 'c')}"
            self._write(path, source)
            files = {path.name: path.stat().st_mtime_ns // 1_000_000}
        return source.reread(spark, Span(CountedSource(), None, None, files))

    def _write(self, path: Path, source: Folder) -> None:
        if isinstance(source, ParquetFiles):
            pq.write_table(_table(self._events(), nullable(self.schema)), path)
            return
        lines = [row if isinstance(row, str) else self._line(row, place) for place, row in enumerate(self._rows, 1)]
        if isinstance(source, CsvFiles) and source.header:
            lines.insert(0, _csv_line(self._names, source.delimiter))
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def _line(self, row: Any, place: int) -> str:
        event = self._event(row, place)
        if isinstance(self._source, JsonFiles):
            return json.dumps(event, default=_as_json, ensure_ascii=False)
        if isinstance(self._source, CsvFiles):
            return _csv_line(map(_as_text, event.values()), self._source.delimiter)
        if isinstance(self._source, TextFiles):
            return str(event["line"])
        raise PipelineError(f"{self}: rows cannot be written as lines of {type(self._source).__name__}")

    def _events(self) -> list[dict[str, Any]]:
        return [self._event(row, place) for place, row in enumerate(self._rows, 1)]

    def _event(self, row: Any, place: int) -> dict[str, Any]:
        """Return a row as a dict with all columns of the schema; columns that the row lacks are None."""
        names = self._names
        if dataclasses.is_dataclass(row) and not isinstance(row, type):
            row = dataclasses.asdict(row)
        elif isinstance(row, Row):
            row = row.asDict(recursive=True)
        elif isinstance(row, tuple) and len(row) == len(names):
            row = dict(zip(names, row, strict=True))
        if not isinstance(row, Mapping):
            raise PipelineError(
                f"{self}: row {place} is {row!r}; give a dict, a dataclass, or a tuple of {len(names)} values"
                + (", or a line of text" if isinstance(self._source, JsonFiles | CsvFiles | TextFiles) else "")
            )
        if unknown := [name for name in row if name not in names]:
            raise PipelineError(f"{self}: row {place} has column {unknown[0]!r}; the schema has {', '.join(names)}")
        return {name: row.get(name) for name in names}


class NoTicks(Ticks):
    """The ticks of a run: none, because the test itself asks for every batch."""

    def load(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([], self.schema)


def given_pipeline(pipeline: Pipeline, folder: Path) -> Pipeline:
    """Return the pipeline with every source replaced by given rows. folder: does not exist yet."""
    sources = {source: GivenRows(source, folder / str(place)) for place, source in enumerate(read_sources(pipeline))}
    made: dict[Any, Any] = {**sources}

    def remade(node: Any) -> Any:
        if node not in made:
            if isinstance(node, Stream):
                late_of = None if node.late_of is None else remade(node.late_of)
                made[node] = dataclasses.replace(node, inputs=tuple(map(remade, node.inputs)), late_of=late_of)
            else:
                made[node] = dataclasses.replace(node, stream=remade(node.stream))
        return made[node]

    feeds: list[FedState] = [remade(fed) for fed in pipeline.feeds]
    given = dataclasses.replace(pipeline, feeds=feeds, bootstrap=())
    if given.ticks is not None:
        given.__dict__["ticks"] = NoTicks()  # replaces the value that the cached property has just stored
    return given


def read_sources(pipeline: Pipeline) -> list[Source]:
    """Return the sources of events, which are all but the ticks."""
    return [source for source in pipeline.sources if not isinstance(source, Ticks)]


def give(pipeline: Pipeline, rows: BatchRows, *, half: bool = False) -> None:
    """Set the rows of the next batch of a given pipeline. Raises PipelineError for an unknown source name."""
    for source, part in zip(read_sources(pipeline), by_source(pipeline, rows), strict=True):
        assert isinstance(source, GivenRows)
        source.give(part, half=half)


def by_source(pipeline: Pipeline, rows: BatchRows) -> list[Rows]:
    """Return the rows of each source of a pipeline, in the order of its sources."""
    names = names_of(pipeline)
    if not isinstance(rows, Mapping):
        if len(names) > 1:
            raise PipelineError(
                f"pipeline {pipeline.name!r}: has {len(names)} sources; give the rows of a batch as a dict by source: "
                f"{', '.join(map(repr, names))}"
            )
        return [rows]
    if unknown := [name for name in rows if name not in names]:
        raise PipelineError(f"pipeline {pipeline.name!r}: has no source {unknown[0]!r}; it has {', '.join(names)}")
    return [rows.get(name, ()) for name in names]


def names_of(pipeline: Pipeline) -> list[str]:
    """Return the names that a test uses for the sources of a pipeline: numbers from 0 if two have the same name."""
    names = [name_of(source) for source in read_sources(pipeline)]
    return names if len(set(names)) == len(names) else [str(place) for place in range(len(names))]


def name_of(source: Source) -> str:
    """Return the name that a test uses for a source: its folder, topics, stream or table, else its class."""
    if isinstance(source, GivenRows):
        return source.name
    if isinstance(source, Folder):
        return source.folder.name
    for attribute in ("topics", "streams", "tables", "stream", "table", "name"):
        found = getattr(source, attribute, None)
        if isinstance(found, str) or (isinstance(found, Sequence) and found and all(isinstance(x, str) for x in found)):
            return found if isinstance(found, str) else ",".join(found)
    return type(source).__name__


def _csv_line(values: Any, delimiter: str) -> str:
    line = io.StringIO()
    csv.writer(line, delimiter=delimiter, lineterminator="").writerow(values)
    return line.getvalue()


def _as_json(value: Any) -> Any:
    if isinstance(value, Decimal):
        # As text if a double would lose digits, because sources read JSON's numbers with every digit.
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    return _as_text(value)


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _typed(value: Any, kind: DataType) -> Any:
    """Return a value in the form that Spark accepts for a type. Times may be ISO text, and numbers of any type."""
    if value is None:
        return None
    if isinstance(kind, TimestampType | TimestampNTZType) and isinstance(value, str):
        return datetime.fromisoformat(value)
    if isinstance(kind, DateType) and isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(kind, DecimalType) and not isinstance(value, Decimal):
        return Decimal(str(value))
    if isinstance(kind, DoubleType | FloatType) and not isinstance(value, float):
        return float(value)
    if isinstance(kind, StringType) and not isinstance(value, str):
        raise PipelineError(f"value {value!r} is for a text column; give a str")
    if isinstance(kind, StructType) and isinstance(value, Mapping):
        return tuple(_typed(value.get(field.name), field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return [_typed(each, kind.elementType) for each in value]
    if isinstance(kind, MapType):
        return {_typed(name, kind.keyType): _typed(each, kind.valueType) for name, each in value.items()}
    return value


def _table(events: Sequence[Mapping[str, Any]], schema: StructType) -> pa.Table:
    arrow = as_arrow(schema)
    columns = {
        field.name: pa.array([_typed(event[field.name], kind.dataType) for event in events], field.type)
        for field, kind in zip(arrow, schema, strict=True)
    }
    return pa.table(columns, schema=arrow)

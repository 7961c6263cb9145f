"""Rule rows: turns the rows that break a rule into dead letters that can be replayed.

A letter holds the row as its source gave it, in JSON, so that a replay runs it through all of the current code: a rule
that was relaxed lets it through, and a step that was corrected is applied. It then counts exactly once, because no
state has counted it yet. A rule is therefore allowed only where each row of the source is still at most one tuple, and
where everything that the source feeds comes after the rule. `check_place` and `check_steps` refuse any other place.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegauge.pipelines.declare.rules import Rule
from tidegauge.pipelines.declare.stream import Node, PartitionPersist, PersistentAggregate, Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.bad_lines import why_bad
from tidegauge.pipelines.sources.parsing import BAD_LINE, json_events
from tidegauge.pipelines.sources.source import Parsed, Source, called
from tidegauge.pipelines.spark.observed import JobMetrics, Observed
from tidegauge.pipelines.spark.packing import JSON_OPTIONS
from tidegauge.pipelines.spark.rows import read_rows
from tidegauge.pipelines.spark.session import plan_nodes
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.dead_letters.letters import DeadLetter

if TYPE_CHECKING:
    from tidegauge.pipelines.declare.frames import Frames
    from tidegauge.pipelines.declare.pipeline import Pipeline

# The column that carries the row of the source to a rule.
ROW = "_source_row"

# The plan nodes that make at most one tuple of each row, and look at each row by itself.
ONE_TO_ONE = {
    "Project", "Filter", "Repartition", "RepartitionByExpression", "SubqueryAlias", "LocalRelation", "LogicalRDD",
}  # fmt: skip

# The column for the text of a dead letter that has fields without a column in the source.
UNKNOWN = "_unknown"


def check_place(pipeline: "Pipeline", stream: Stream) -> None:
    """Raise PipelineError unless a replayed row would reach only the rule of the stream, and as one tuple."""
    node: Node = stream
    while isinstance(node, Stream):
        if len(node.inputs) > 1:
            _refuse(pipeline.name, stream, "comes after merge()", "put it on each stream before the merge")
        if node.scope is not None:
            what = "comes after a Python function or a lookup, which may emit any number of tuples"
            _refuse(pipeline.name, stream, what, "put it before that step")
        [node] = node.inputs
        if isinstance(node, PersistentAggregate | PartitionPersist):
            _refuse(pipeline.name, stream, f"is on the new values of state {node.name!r}", "put it before that state")
        if pipeline.readers(node) > 1:
            what = "leaves a row out of a part of what its source feeds, and a replay would count it again in the rest"
            _refuse(pipeline.name, stream, what, "put it right after Stream.read, and read the source only there")


def check_steps(name: str, stream: Stream, frames: "Frames", rows: DataFrame) -> None:
    """Raise PipelineError unless the steps before the rule of a stream always make at most one tuple of each row.

    name: of the pipeline. rows: a frame of its source.
    """
    if ROW in rows.columns:
        _refuse(name, stream, f"uses the column {ROW!r} itself", "give that column of the source another name")
    SourceRows(rows.schema).parse_again(rows.sparkSession, [])  # fails for a type that JSON cannot hold
    traced = frames.rerun(stream.inputs[0], with_row(rows))
    for node in plan_nodes(traced.where(_rule(stream).is_broken)):
        if node.nodeName() not in ONE_TO_ONE:
            what = f"comes after a step ({node.nodeName()}) that does not make one tuple of each row"
            _refuse(name, stream, what, "put it before that step")
        if not node.deterministic():
            what = f"may give another result when a row is replayed, or comes after such a step ({node.nodeName()})"
            _refuse(name, stream, what, "make it depend only on the row")
    if ROW not in traced.columns:
        _refuse(name, stream, "comes after a step that selects columns, such as project()", "put it before that step")


def _refuse(name: str, stream: Stream, what: str, way_out: str) -> NoReturn:
    raise PipelineError(
        f"pipeline {name!r}: {stream.rule} {what}, so its dead letters could not be replayed; {way_out}, or leave such "
        "tuples out with where()"
    )


def source_of(stream: Stream) -> Source:
    """Return the source whose rows the rule of a stream looks at."""
    node: Node = stream
    while isinstance(node, Stream):
        node = node.inputs[0]
    assert not isinstance(node, PersistentAggregate | PartitionPersist)
    return node


def _rule(stream: Stream) -> Rule:
    assert stream.rule is not None
    return stream.rule


def with_row(events: DataFrame) -> DataFrame:
    """Return a source's events, each with itself as JSON in ROW."""
    return events.withColumn(ROW, row_text(events.columns))


def row_text(columns: Iterable[str]) -> Column:
    """Return a row of these columns as JSON, as records have it; a null is left out."""
    return F.to_json(F.struct(*map(quoted, columns)), JSON_OPTIONS)


class RuledOut:
    """The rows of a batch that break the rule of a stream, counted by the first job that reads the stream."""

    def __init__(self, stream: Stream, frames: "Frames") -> None:
        self.source = source_of(stream)
        self.rule = _rule(stream)
        self._stream = stream
        self._frames = frames
        count = F.count(F.when(self.rule.is_broken, 1)).alias("rejected")
        self._observed = Observed(frames.of(stream.inputs[0]), count)
        frames.add(stream, self._observed.frame.where(~self.rule.is_broken))

    @property
    def number(self) -> int:
        """How many there are, including replayed dead letters."""
        return self._observed.figures["rejected"]

    def take(self, job: JobMetrics) -> None:
        """Take the number from a job that has read the stream."""
        self._observed.take(job)

    def rows(self, events: DataFrame) -> DataFrame:
        """Return those of the given source events that break the rule, as JSON."""
        traced = self._frames.rerun(self._stream.inputs[0], with_row(events))
        return traced.where(self.rule.is_broken).select(ROW)

    def letters(self, events: DataFrame) -> Iterator[DeadLetter]:
        """Yield a dead letter for each of the given source events that breaks the rule."""
        for (text,) in read_rows(self.rows(events)):
            yield DeadLetter(called(self.source), text, self.rule.letter_reason, record=_record(text))


class SourceRows:
    """Reads the records of these dead letters, by the rules of JSON lines. See ReplayedSource.

    schema: the source's current columns. One that a record lacks is null, because nulls are not written.
    """

    records = "row"

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def parse_again(self, spark: SparkSession, records: Sequence[Mapping[str, Any]]) -> Parsed:
        texts = [(record["row"], record["row"] if self._unknown(record["row"]) else None) for record in records]
        lines = spark.createDataFrame(texts, f"value string, {UNKNOWN} string")
        rows = json_events(lines, self._schema, [UNKNOWN])
        rows = rows.withColumn(BAD_LINE, F.coalesce(BAD_LINE, UNKNOWN))
        return Parsed(rows, tuple(self._schema.names), BAD_LINE)

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        for (text,) in read_rows(parsed.where(f"{BAD_LINE} is not null").select(BAD_LINE)):
            # Checked, because a column that was renamed would silently be null.
            unknown = self._unknown(text)
            reason = f"{unknown}: the source has no such column now" if unknown else why_bad(text, self._schema)
            yield DeadLetter("", text, reason, record=_record(text))

    def _unknown(self, text: str) -> str | None:
        return next((name for name in json.loads(text) if name not in self._schema.names), None)


def _record(text: str) -> dict[str, Any]:
    # Kept as text, because readers of JSON in between would round long numbers.
    return {"record": SourceRows.records, "row": text}

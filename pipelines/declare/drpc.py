"""DRPC: run the verbs of a stream over a few argument tuples and return the result. Trident's DRPCStream.

    words = Stream.read(Arguments("words string")).each(word="explode(split(words, ' '))")
    counts = words.state_query(WORDS, ["word"], count="bigint").where("count is not null")
    execute(counts.aggregate(sum="sum(count)"), [{"words": "cat dog"}], spark, dsn)    # [{"sum": 17}]

It reads what pipelines have committed and writes nothing. A call runs one or more Spark jobs, which takes some tenths
of a second, so a service that only looks up or combines keys should use a StateReader.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidegauge.pipelines.checkpoint.files import CheckpointPath
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.stream import Node, PartitionPersist, PersistentAggregate, Stream
from tidegauge.pipelines.errors import PipelineError, failure_reason
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.pipelines.sources.pending import Pending
from tidegauge.pipelines.sources.schemas import declared
from tidegauge.pipelines.sources.source import Parsed
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.ledger.source_input import Identity, SourceInput
from tidegauge.state_backends.schema.counted import CountedSource


class Arguments:
    """The source of a DRPC stream: the argument tuples that are passed to `execute`.

    schema: their columns, as Spark DDL or a StructType; a `NOT NULL` column is required.
    Raises PipelineError for an invalid schema, and if a pipeline uses it as a source.
    """

    spout: Spout = "non_transactional"
    max_bad_share = 0.0
    packages: tuple[str, ...] = ()

    def __init__(self, schema: str | StructType) -> None:
        self._schema = schema

    @cached_property
    def schema(self) -> StructType:
        return declared(self._schema, "Arguments")

    def load(self, spark: SparkSession) -> DataFrame:
        self._refuse()

    def parse(self, batch: DataFrame) -> Parsed:
        self._refuse()

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        self._refuse()

    def pending(self, checkpoint: CheckpointPath, place: int = 0) -> Pending | None:
        return None

    def held(self, checkpoint: CheckpointPath, batch_id: int, place: int = 0) -> SourceInput | None:
        return None

    def identity(self) -> Identity:
        return {}

    def missing(self, spark: SparkSession, counted: CountedSource) -> str:
        return ""

    def offset_text(self, offset: Any) -> str:
        self._refuse()

    def check_from(self, offset: Any, again: Collection[str], spark: Callable[[], SparkSession]) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise PipelineError("Arguments cannot feed a pipeline; pass their stream to execute(), or read from a source")


def execute(stream: Stream, rows: Sequence[Mapping[str, Any]], spark: SparkSession, dsn: str) -> list[dict[str, Any]]:
    """Run a stream that starts at Arguments over some rows, and return its tuples: column to value, unordered.

    rows: the argument tuples, column to value; a missing column is null. dsn: the database that holds the states.
    A state_query reads the batch that is committed when it runs; two in one stream may read different batches if one
    commits in between. A state that is not opaque may show rows of an open batch. A row that is older than its ttl, by
    the database's clock, is absent.
    Raises PipelineError unless the stream starts at exactly one Arguments, if it feeds a state or has a watermark or a
    rule, if a row does not fit the schema, and if a verb fails on the rows.
    """
    arguments = _arguments(stream)
    values = [_values(row, place, arguments.schema) for place, row in enumerate(rows)]
    try:
        context = BatchContext(Batch("execute", 0, 0, 0, _now(dsn)), dsn)
        # One partition, so that a state_query makes one call.
        given = spark.createDataFrame(values, arguments.schema).coalesce(1)
        return [row.asDict(recursive=True) for row in _frame(stream, context, given).collect()]
    except PySparkException as error:
        raise PipelineError(f"execute: {failure_reason(error)}") from error


def _arguments(stream: Stream) -> Arguments:
    found: dict[Node, None] = {}
    for node in _upstream(stream):
        if isinstance(node, Stream) and node.watermark is not None:
            raise PipelineError("execute: the stream has a watermark, but arguments have no event time; leave it out")
        if isinstance(node, Stream) and node.rule is not None:
            raise PipelineError(f"execute: {node.rule} makes dead letters, which execute() does not keep; use where()")
        if not isinstance(node, Stream):
            found[node] = None
    first, *others = found
    if others or not isinstance(first, Arguments):
        raise PipelineError(
            f"execute: the stream starts at {', '.join(map(_label, found))}; start it at one Arguments, "
            "Stream.read(Arguments(..)), and let pipelines feed the states that it queries"
        )
    return first


def _upstream(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, Stream):
        for each in node.inputs:
            yield from _upstream(each)


def _label(node: Node) -> str:
    if isinstance(node, PersistentAggregate | PartitionPersist):
        return f"the fed state {node.name!r}"
    return type(node).__name__


def _values(row: Mapping[str, Any], place: int, schema: StructType) -> tuple[Any, ...]:
    unknown = [name for name in row if name not in schema.names]
    if unknown:
        raise PipelineError(f"row {place}: no column {unknown[0]!r}; there are {', '.join(schema.names)}")
    return tuple(row.get(name) for name in schema.names)


def _frame(node: Node, context: BatchContext, given: DataFrame) -> DataFrame:
    if not isinstance(node, Stream):
        return given
    return node.step(context, *(_frame(each, context, given) for each in node.inputs))


def _now(dsn: str) -> datetime:
    with connect(dsn, "execute") as conn:
        row = conn.execute("SELECT now()").fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]

"""DRPC: run the verbs of a stream over a few argument tuples, now, and return what comes out. Trident's DRPCStream.

    words = Stream.read(Arguments("words string")).each(word="explode(split(words, ' '))")
    counts = words.state_query(WORDS, ["word"], count="bigint").where("count is not null")
    execute(counts.aggregate(sum="sum(count)"), [{"words": "cat dog"}], spark, dsn)    # [{"sum": 17}]

It asks what pipelines have committed and writes nothing. A call is a Spark job or more, some tenths of a second:
a service that looks keys up, or folds some into one, asks a StateReader instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pipelines.connections import connect
from pipelines.context import BatchContext
from pipelines.errors import PipelineError, failure_reason
from pipelines.guarantee import Spout
from pipelines.sources.source import Parsed, Pending, declared
from pipelines.stream import Node, PartitionPersist, PersistentAggregate, Stream
from state_backends.dead_letters import DeadLetter
from state_backends.ledger import Batch


class Arguments:
    """Where the stream of a request starts: its arguments, handed over by `execute`.

    schema: their columns, as Spark DDL or a StructType; `NOT NULL` makes one required.
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

    def pending(self, checkpoint: Path, place: int = 0) -> Pending | None:
        return None

    def _refuse(self) -> NoReturn:
        raise PipelineError("Arguments feed no pipeline; give their stream to execute(), or read it from a source")


def execute(stream: Stream, rows: Sequence[Mapping[str, Any]], spark: SparkSession, dsn: str) -> list[dict[str, Any]]:
    """Run a stream that starts at Arguments over some rows, and return its tuples: column to value, in no order.

    rows: the argument tuples, column to value; a column left out is null. dsn: the database that the states are in.
    A state_query finds what is committed when it runs, one whole batch per call; two of them in a stream may see two
    batches, if one commits between; a state that is not opaque may show rows of an open one. What has outlived its ttl
    by the database's clock is absent.
    Raises PipelineError for a stream that starts elsewhere, feeds a state or has a watermark, for rows that do not fit
    the schema, and for what a verb refuses.
    """
    arguments = _arguments(stream)
    values = [_values(row, place, arguments.schema) for place, row in enumerate(rows)]
    try:
        context = BatchContext(Batch("execute", 0, 0, 0, _now(dsn)), dsn)
        # In one partition, so that a lookup is one call.
        given = spark.createDataFrame(values, arguments.schema).coalesce(1)
        return [row.asDict(recursive=True) for row in _frame(stream, context, given).collect()]
    except PySparkException as error:
        raise PipelineError(f"execute: {failure_reason(error)}") from error


def _arguments(stream: Stream) -> Arguments:
    found: dict[Node, None] = {}
    for node in _upstream(stream):
        if isinstance(node, Stream) and node.watermark is not None:
            raise PipelineError("execute: the stream has a watermark, but arguments have no event time; leave it out")
        if not isinstance(node, Stream):
            found[node] = None
    first, *others = found
    if others or not isinstance(first, Arguments):
        raise PipelineError(
            f"execute: the stream starts at {', '.join(map(_called, found))}; start it at one Arguments, "
            "Stream.read(Arguments(..)), and let pipelines feed the states that it asks"
        )
    return first


def _upstream(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, Stream):
        for each in node.inputs:
            yield from _upstream(each)


def _called(node: Node) -> str:
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

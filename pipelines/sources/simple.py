"""Sources for experiments: numbers at a rate, and lines from a socket. They cannot be replayed."""

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegauge.pipelines.checkpoint.files import CheckpointPath, compact_json
from tidegauge.pipelines.errors import InputLostError, PipelineError
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.pipelines.sources.pending import Pending
from tidegauge.pipelines.sources.source import Parsed
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger.source_input import Identity, SourceInput
from tidegauge.state_backends.schema.counted import CountedSource


class _WithoutReplay:
    """A source without replay, in which no event is bad and pending input is unknown."""

    spout: Spout = "non_transactional"
    max_bad_share = 1.0
    packages: tuple[str, ...] = ()

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        return iter(())

    def pending(self, checkpoint: CheckpointPath, place: int = 0) -> Pending | None:
        return None

    def held(self, checkpoint: CheckpointPath, batch_id: int, place: int = 0) -> SourceInput | None:
        return None

    def identity(self) -> Identity:
        return {}

    def missing(self, spark: SparkSession, counted: CountedSource) -> str:
        return "the source cannot be read again from its start"

    def offset_text(self, offset: Any) -> str:
        return compact_json(offset)

    def check_from(self, offset: Any, again: Collection[str], spark: Callable[[], SparkSession]) -> None:
        raise InputLostError(f"{self}: does not keep its input, so what it sent cannot be read again")

    def __str__(self) -> str:
        return f"source {type(self).__name__}"


class Rate(_WithoutReplay):
    """Consecutive numbers from 0 in the column `value`, each with its `timestamp`.

    rows_per_second: 1 or more. Raises PipelineError for less.
    """

    def __init__(self, rows_per_second: int) -> None:
        if rows_per_second < 1:
            raise PipelineError(f"source rate: {rows_per_second!r} rows per second is not a rate; give 1 or more")
        self.rows_per_second = rows_per_second

    @cached_property
    def schema(self) -> StructType:
        return StructType().add("timestamp", "timestamp").add("value", "long")

    def load(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.format("rate").option("rowsPerSecond", self.rows_per_second).load()

    def parse(self, batch: DataFrame) -> Parsed:
        return Parsed(batch, ("timestamp", "value"))


class Socket(_WithoutReplay):
    """Lines of text from a server's socket, in the column `line`; `nc -lk 9999` is such a server.

    host, port: of the server. Raises PipelineError if they are invalid.
    A line can be read once only. Bytes that are not UTF-8 become the replacement character. Blank lines are not events.
    """

    def __init__(self, host: str, port: int) -> None:
        if not host or not 0 < port < 65536:
            raise PipelineError(f"source socket: {host!r}, port {port!r} is not an address; give a host and a port")
        self.host = host
        self.port = port

    @cached_property
    def schema(self) -> StructType:
        return StructType().add("line", "string")

    def load(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.format("socket").option("host", self.host).option("port", self.port).load()

    def parse(self, batch: DataFrame) -> Parsed:
        return Parsed(batch.where("trim(value) <> ''").select(F.col("value").alias("line")), ("line",))

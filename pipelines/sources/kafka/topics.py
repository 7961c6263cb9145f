"""Kafka topics, read by Spark's own connector.

Spark stores which offsets a batch holds before the batch runs. A replay reads the same offsets, but compaction and
retention may have removed messages since, so this is an opaque spout. The lag comes from Kafka's own client inside
Spark's JVM, so Python needs none.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any, Literal

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegauge.pipelines.checkpoint.files import CheckpointPath, compact_json
from tidegauge.pipelines.checkpoint.folder import offset_range
from tidegauge.pipelines.errors import InputLostError, PipelineError, SourceUnavailableError, failure_reason
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.pipelines.sources.kafka.admin import KafkaAdmin, Lag, Offsets, check_partitions, first_offsets
from tidegauge.pipelines.sources.kafka.messages import MESSAGE, Messages
from tidegauge.pipelines.sources.kafka.start import start_fault, start_offsets, start_options
from tidegauge.pipelines.sources.pending import Pending
from tidegauge.pipelines.sources.registry.schemas import Registry
from tidegauge.pipelines.sources.source import Parsed, Span
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger.source_input import Identity, SourceInput
from tidegauge.state_backends.schema.counted import CountedSource, later_start

# The connector must be of Spark's own release, and of the Scala version that PySpark is built with.
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"

TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
SERVER = re.compile(r"[^\s,]+:\d+")

# Because messages of aborted transactions are not events, but Kafka's own default shows them.
DEFAULTS = {"kafka.isolation.level": "read_committed"}
OURS = {"kafka.bootstrap.servers"}


class KafkaTopics:
    """Messages of Kafka topics.

    servers: `host:port`, one or more.
    topics: their names, one or more; or a compiled pattern for all topics whose whole name it matches, including those
    that are created later. Spark reads it as a Java pattern.
    schema: the columns of a value that is a JSON object, as Spark DDL or a StructType, read as JsonFiles reads a line;
    None: the value is a text, in the column `value`.
    starting: where a query without a checkpoint starts: at the `earliest` message that is kept, after the `latest`, at
    the first message of a time or later, or at the offset of each partition, as {"orders": {0: 120}}; partitions that
    are not named start at the earliest.
    max_offsets_per_batch: the most messages that one batch reads, over all partitions.
    max_bad_share: a batch with more than this share of bad messages (and more than 10) stops the pipeline.
    tombstones: whether a message without a value is an event: its value's columns are null, and `kafka_tombstone` is
    true. By default it is left out.
    registry: the schema registry by which values were written, in Avro, Protobuf or JSON Schema; `schema` names the
    columns to read from them, whatever versions their schemas have. decode_keys: whether keys were written by it, too;
    `kafka_key` is then JSON.
    options: settings of Kafka's consumer, prefixed with `kafka.`, as {"kafka.security.protocol": "SASL_SSL"}.
    packages: Maven coordinates of the connector; none if its jars are on Spark's class path.
    Raises PipelineError if one of these is invalid; an option's value is never shown.

    Every event has `kafka_key` (null if it is not UTF-8), `kafka_topic`, `kafka_partition`, `kafka_offset`,
    `kafka_timestamp` and `kafka_headers` (an array of structs of `key` and `value`, a text and bytes; null if there are
    none) beside the value's columns. A value that cannot be read becomes a dead letter whose source is
    `topic/partition` and whose line number is the offset, from 0.
    The pipeline stops if Kafka no longer has the next offsets, because their messages would be missing from the states.
    It also stops if a topic was deleted and created again, because its offsets then mean other messages; each topic's
    id is compared before every batch.
    """

    spout: Spout = "opaque"

    def __init__(
        self,
        servers: str | Sequence[str],
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        schema: str | StructType | None = None,
        starting: Literal["earliest", "latest"] | datetime | Mapping[str, Mapping[int, int]] = "earliest",
        max_offsets_per_batch: int = 500_000,
        max_bad_share: float = 0.5,
        tombstones: bool = False,
        registry: Registry | None = None,
        decode_keys: bool = False,
        options: Mapping[str, str] | None = None,
        packages: Sequence[str] = (CONNECTOR,),
    ) -> None:
        self.servers = tuple([servers] if isinstance(servers, str) else servers)
        named = [topics] if isinstance(topics, str) else topics
        self.topics = named if isinstance(named, re.Pattern) else tuple(named)
        self.starting = starting
        self.max_offsets_per_batch = max_offsets_per_batch
        self.max_bad_share = max_bad_share
        self.packages = tuple(packages)
        if decode_keys and registry is None:
            raise PipelineError(f"source {self._name!r}: decode_keys needs a registry")
        self._messages = Messages(
            repr(self._name), schema, tombstones=tombstones, registry=registry, decode_keys=decode_keys
        )
        self.records = self._messages.records
        self._options = DEFAULTS | dict(options or {})
        self._check_options()
        self._settings = self._options | {"kafka.bootstrap.servers": ",".join(self.servers)}
        self._admin: KafkaAdmin | None = None
        self._lag: Lag | None = None

    @property
    def schema(self) -> StructType:
        return self._messages.schema

    def load(self, spark: SparkSession) -> DataFrame:
        return self._stream(spark, self.max_offsets_per_batch)

    def load_waiting(self, spark: SparkSession) -> DataFrame:
        # With 0, each partition ends where it begins, and a new one at its first message.
        return self._stream(spark, max_offsets=0)

    def _stream(self, spark: SparkSession, max_offsets: int) -> DataFrame:
        if self._admin is not None:
            self._admin.close()
        self._admin = KafkaAdmin(spark, self._settings, self.topics)
        self._lag = Lag(self._admin)
        by, names = "subscribe", ",".join(self._given)
        if isinstance(self.topics, re.Pattern):
            by, names = "subscribePattern", self.topics.pattern
        reader = spark.readStream.option(by, names).option("maxOffsetsPerTrigger", max_offsets)
        return self._raw(reader.options(**self._start()))

    def reread(self, spark: SparkSession, span: Span) -> DataFrame:
        if span.counted.count > len(span.counted.first):
            raise InputLostError(
                f"source {self._name!r}: the ledger has the first offsets of only {len(span.counted.first)} of "
                f"the {span.counted.count} partitions"
            )
        start = span.start or _by_topic(_starts(span.counted))
        # From 0 for a partition that was added later, because Spark reads it from its first message on.
        begin = {topic: {each: start.get(topic, {}).get(each, 0) for each in ends} for topic, ends in span.end.items()}
        self.check_from(begin, (), lambda: spark)
        return self._raw(
            spark.read.option("assign", compact_json({topic: list(map(int, ends)) for topic, ends in span.end.items()}))
            .option("startingOffsets", compact_json(begin))
            .option("endingOffsets", compact_json(span.end))
        )

    def _raw(self, reader: Any) -> DataFrame:
        try:
            messages: DataFrame = (
                reader.format("kafka").options(**self._settings, failOnDataLoss="true", includeHeaders="true").load()
            )
        except AnalysisException as error:
            raise self._no_connector() from error
        return messages.select("value", *(F.col(name.removeprefix("kafka_")).alias(name) for name in MESSAGE))

    def parse(self, batch: DataFrame) -> Parsed:
        return self._messages.parse(batch)

    def parse_again(self, spark: SparkSession, records: Sequence[Mapping[str, Any]]) -> Parsed:
        return self._messages.parse(self._messages.raw(spark, records))

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        return self._messages.dead_letters(parsed)

    def pending(self, checkpoint: CheckpointPath, place: int = 0) -> Pending | None:
        """Return the messages that no committed batch has read, or None if Kafka or the checkpoint does not say.

        Counted by offsets, so transaction markers and messages that compaction removed count too.
        """
        count = None if self._lag is None else self._lag.messages(checkpoint, place)
        return None if count is None else Pending(count, "messages", None)

    def held(self, checkpoint: CheckpointPath, batch_id: int, place: int = 0) -> SourceInput | None:
        """Return the offsets [from, to] of each partition that the batch reads; from is null for a new partition."""
        offsets = offset_range(checkpoint, batch_id, place)
        if offsets is None or offsets[1] is None:
            return None
        start = offsets[0] or first_offsets(checkpoint, place) or {}
        moved = {
            f"{topic}/{partition}": [start.get(topic, {}).get(partition), end]
            for topic, partitions in offsets[1].items()
            for partition, end in partitions.items()
        }
        return SourceInput("partitions", {name: ends for name, ends in moved.items() if ends[0] != ends[1]})

    def offset_text(self, offset: Any) -> str:
        return compact_json({topic: offset[topic] for topic in sorted(offset)})

    def check_from(self, offset: Any, again: Collection[str], spark: Callable[[], SparkSession]) -> None:
        """Raise InputLostError, with the gaps and the offsets of what is left, unless every message is there."""
        self.load(spark())  # makes the client; its error is clear if there is no connector
        assert self._admin is not None
        try:
            earliest, latest = self._admin.earliest_and_latest()
        except Py4JJavaError as error:
            raise SourceUnavailableError(
                f"source {self._name!r}: Kafka does not report its offsets ({failure_reason(error)}); check that it "
                "runs and has the topics"
            ) from None
        check_partitions(f"source {self._name!r}", offset or {}, earliest, latest)

    def identity(self) -> Identity:
        """Return the topics' ids. Raises SourceUnavailableError if Kafka does not answer or a topic does not exist."""
        if self._admin is None:
            return {}
        try:
            return self._admin.topic_ids()
        except Py4JJavaError as error:
            raise SourceUnavailableError(
                f"source {self._name!r}: Kafka does not report the topics' ids: {error.java_exception.getMessage()}; "
                "check that it runs and has the topics"
            ) from None

    def missing(self, spark: SparkSession, counted: CountedSource) -> str:
        if self.starting == "latest":
            return f"{self._name} is read from the latest message on, so nothing that was counted is read again"
        if counted.unit != "partitions":
            return ""
        with closing(KafkaAdmin(spark, self._settings, self.topics)) as admin:
            try:
                earliest = start_offsets(self.starting, admin, admin.earliest_and_latest()[0])
            except Py4JJavaError:
                earliest = {}  # nothing is known to be missing
        late = [
            later_start(f"{topic}/{partition}", start, earliest[topic][partition])
            for topic, partition, start in _starts(counted)
            if earliest.get(topic, {}).get(partition, start) > start
        ]
        return f"{self._name}: {', '.join(late)}" if late else ""

    def _no_connector(self) -> PipelineError:
        return PipelineError(
            f"source {self._name!r}: Spark has no Kafka connector; start the session with "
            f"packages={list(self.packages or [CONNECTOR])!r}, or put its jars on Spark's class path"
        )

    def _start(self) -> dict[str, str]:
        assert self._admin is not None
        try:
            return start_options(self.starting, self._admin)
        except TypeError as error:  # a class that Java does not have
            raise self._no_connector() from error
        except LookupError as absent:
            raise PipelineError(f"source {self._name!r}: starting: there is no partition {absent.args[0]!r}") from None
        except Py4JJavaError as error:
            raise SourceUnavailableError(
                f"source {self._name!r}: Kafka does not report its partitions: {failure_reason(error)}; check that it "
                "runs and has the topics"
            ) from None

    @property
    def _given(self) -> tuple[str, ...]:
        """The topics that are named."""
        return () if isinstance(self.topics, re.Pattern) else self.topics

    @property
    def _name(self) -> str:
        names = self.topics.pattern if isinstance(self.topics, re.Pattern) else ",".join(self.topics)
        return f"kafka {names}"

    def __str__(self) -> str:
        return self._name

    def _check_options(self) -> None:
        pattern = self.topics if isinstance(self.topics, re.Pattern) else None
        bad_servers = [server for server in self.servers if not SERVER.fullmatch(server)]
        bad_topics = [topic for topic in self._given if not TOPIC.fullmatch(topic)]
        # Names only, because a value may be a password.
        foreign = sorted(name for name in self._options if not name.startswith("kafka.") or name in OURS)
        fault = ""
        if bad_servers or not self.servers:
            fault = f"servers {bad_servers!r}: give each as 'host:port'"
        elif bad_topics or not (pattern or self._given):
            fault = f"topics {bad_topics!r}: give each by its name, of letters, digits, '.', '_' and '-'"
        elif pattern is not None and pattern.flags & ~re.UNICODE:
            fault = f"topics {pattern!r}: give the pattern without flags, since Java reads it"
        elif start_fault(self.starting, None if pattern else self._given):
            fault = start_fault(self.starting, None if pattern else self._given)
        elif self.max_offsets_per_batch < 1:
            fault = f"max_offsets_per_batch {self.max_offsets_per_batch!r}: give 1 or more"
        elif foreign:
            fault = f"options {foreign!r}: only settings of Kafka's consumer, by names like 'kafka.security.protocol'"
        if fault:
            raise PipelineError(f"source {self._name!r}: {fault}")


def _starts(counted: CountedSource) -> Iterator[tuple[str, str, int]]:
    """Yield each partition with the offset from which it was counted: its end if the first batch read none of it."""
    for topic, partitions in (counted.offsets or {}).items():
        for partition, end in partitions.items():
            start, _ = counted.first.get(f"{topic}/{partition}", [end, end])
            yield topic, partition, start or 0


def _by_topic(starts: Iterable[tuple[str, str, int]]) -> Offsets:
    offsets: Offsets = defaultdict(dict)
    for topic, partition, offset in starts:
        offsets[topic][partition] = offset
    return offsets

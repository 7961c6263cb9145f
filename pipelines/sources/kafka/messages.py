"""Parses Kafka's messages into events: the columns of a value, and the place, key and headers of its message.

In a compacted topic, a message without a value is a tombstone: its key is deleted.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegauge.pipelines.sources.bad_lines import why_bad
from tidegauge.pipelines.sources.parsing import BAD_LINE, RESERVED, json_events
from tidegauge.pipelines.sources.registry.schemas import Registry
from tidegauge.pipelines.sources.registry.wire import Decoder
from tidegauge.pipelines.sources.schemas import declared
from tidegauge.pipelines.sources.source import Parsed
from tidegauge.pipelines.spark.rows import read_rows
from tidegauge.state_backends.dead_letters.letters import DeadLetter, record_bytes, record_value

# Columns beside those of the value.
MESSAGE = {
    "kafka_key": "string",
    "kafka_topic": "string",
    "kafka_partition": "integer",
    "kafka_offset": "bigint",
    "kafka_timestamp": "timestamp",
    "kafka_headers": "array<struct<key: string, value: binary>>",
}
TOMBSTONE = "kafka_tombstone"

# Key and value as received, and why a decoder cannot read one of them.
KEY_BYTES, VALUE_BYTES, PROBLEM = "_key_bytes", "_value_bytes", "_problem"
DECODED = StructType().add("text", "string").add("problem", "string")
PLACE = ["kafka_topic", "kafka_partition", "kafka_offset"]

# The raw input that the record of a dead letter is turned into, to be parsed again.
RECORD_MS = "_ms"
RECORD = (
    "value binary, kafka_key binary, kafka_topic string, kafka_partition int, kafka_offset bigint, "
    f"{RECORD_MS} bigint, kafka_headers {MESSAGE['kafka_headers']}"
)


class Messages:
    """Parses the messages of a source.

    where: the source, for errors. values: the columns of a value that is a JSON object; None: it is a text.
    tombstones: whether messages without a value are events. registry: has the schemas by which values are decoded to
    JSON; None: a value is the JSON itself. decode_keys: whether keys are decoded by it, too.
    """

    records = "message of Kafka"

    def __init__(
        self,
        where: str,
        values: str | StructType | None,
        *,
        tombstones: bool,
        registry: Registry | None = None,
        decode_keys: bool = False,
    ) -> None:
        self._where = where
        self._values = values
        self._tombstones = tombstones
        self._registry = registry
        self._decode_keys = decode_keys

    @cached_property
    def schema(self) -> StructType:
        return StructType([*self._value_schema, *_columns(self._own)])

    def parse(self, batch: DataFrame) -> Parsed:
        """Parse messages with the columns `value` and those of MESSAGE, key and value as bytes."""
        messages = batch if self._tombstones else batch.where("value is not null")
        texts = self._texts(messages.withColumns({KEY_BYTES: F.col("kafka_key"), VALUE_BYTES: F.col("value")}))
        if self._tombstones:
            texts = texts.withColumn(TOMBSTONE, F.col(VALUE_BYTES).isNull())
        keep = [*self._own, KEY_BYTES, VALUE_BYTES, PROBLEM]
        if self._values is None:
            rows = texts.withColumn(BAD_LINE, F.when(~F.is_valid_utf8("value"), F.make_valid_utf8("value")))
        else:
            rows = json_events(texts, self._value_schema, keep)
        if self._registry is not None:
            rows = rows.withColumn(BAD_LINE, F.when(F.col(PROBLEM).isNotNull(), "").otherwise(F.col(BAD_LINE)))
        # Kept in bad rows only, because good rows do not need them and may be cached.
        is_bad = F.col(BAD_LINE).isNotNull()
        rows = rows.withColumns({name: F.when(is_bad, F.col(name)) for name in (KEY_BYTES, VALUE_BYTES)})
        return Parsed(rows, tuple(self.schema.names), BAD_LINE)

    def _texts(self, messages: DataFrame) -> DataFrame:
        """Return the messages with value and key as texts, and the problem if one of them cannot be decoded."""
        value, key = F.col("value").cast("string"), F.try_validate_utf8(F.col("kafka_key").cast("string"))
        if self._registry is None:
            return messages.withColumns({"value": value, "kafka_key": key, PROBLEM: F.lit(None).cast("string")})
        decoder = Decoder(self._registry)
        # In a lambda, because Spark would take the decoder's type hints for those of a pandas function.
        decode = F.udf(lambda message: decoder(message), DECODED)
        decoded = messages.withColumn("_value", decode("value"))
        problem = F.col("_value.problem")
        if self._decode_keys:
            decoded = decoded.withColumn("_key", decode("kafka_key"))
            problem, key = F.coalesce(problem, F.concat(F.lit("key: "), "_key.problem")), F.col("_key.text")
        return decoded.withColumns({"value": F.col("_value.text"), "kafka_key": key, PROBLEM: problem})

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        bad = parsed.where(f"{BAD_LINE} is not null").select(
            BAD_LINE, PROBLEM, VALUE_BYTES, *PLACE, F.unix_millis("kafka_timestamp"), KEY_BYTES, "kafka_headers"
        )
        for line, problem, value, topic, partition, offset, at, key, headers in read_rows(bad.orderBy(*PLACE)):
            reason = problem or ("not UTF-8" if self._values is None else why_bad(line, self._value_schema))
            text = bytes(value or b"").decode(errors="replace") if problem else line
            record = {
                "record": self.records,
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "timestamp": at,
                "key": record_value(key),
                "headers": [[name, record_value(content)] for name, content in headers or ()],
                "value": record_value(value),
            }
            yield DeadLetter(f"{topic}/{partition}", text, reason, offset, record=record)

    def raw(self, spark: SparkSession, records: Sequence[Mapping[str, Any]]) -> DataFrame:
        """Return messages as `parse` takes them, from the records of dead letters."""
        rows = [
            (
                record_bytes(record["value"]),
                record_bytes(record["key"]),
                record["topic"],
                record["partition"],
                record["offset"],
                record["timestamp"],
                [(name, record_bytes(content)) for name, content in record["headers"]] or None,
            )
            for record in records
        ]
        return spark.createDataFrame(rows, RECORD).withColumn("kafka_timestamp", F.timestamp_millis(F.col(RECORD_MS)))

    @property
    def _own(self) -> dict[str, str]:
        return MESSAGE | ({TOMBSTONE: "boolean"} if self._tombstones else {})

    @cached_property
    def _value_schema(self) -> StructType:
        if self._values is None:
            return _columns({"value": "string"})
        return declared(self._values, self._where, (*RESERVED, *MESSAGE, TOMBSTONE, KEY_BYTES, VALUE_BYTES, PROBLEM))


def _columns(kinds: Mapping[str, str]) -> StructType:
    return StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in kinds.items()))  # type: ignore[return-value]

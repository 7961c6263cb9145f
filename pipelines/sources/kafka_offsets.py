"""How many messages Kafka holds that no committed batch has read.

Kafka is asked by its own client inside Spark's JVM, so Python needs none. What has been read stands in the checkpoint.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.sources.committed import committed_offset

# Topic to partition to offset.
Offsets = dict[str, dict[str, int]]

# A driver asks for the lag twice a second; to ask Kafka costs a connection and some calls for each partition.
REFRESH_SECONDS = 2.0
PATIENCE_MS = 3_000


class Lag:
    """What topics hold beyond what a checkpoint says was read.

    settings: Kafka's, their names after `kafka.`; they stay inside.
    """

    def __init__(self, spark: SparkSession, settings: Mapping[str, str], topics: Sequence[str]) -> None:
        self._spark = spark
        self._settings = settings
        self._topics = topics
        self._held: tuple[Offsets, Offsets] | None = None
        self._asked_at = float("-inf")

    def messages(self, checkpoint: Path, place: int) -> int | None:
        """Return how many messages wait, or None where Kafka does not answer or the checkpoint does not say."""
        read = committed_offset(checkpoint, place) or _first_offsets(checkpoint, place)
        held = self._earliest_and_latest()
        if read is None or held is None:
            return None
        earliest, latest = held
        return sum(
            # Spark reads a partition that was added meanwhile from its first message on.
            max(0, offset - read.get(topic, {}).get(partition, earliest[topic][partition]))
            for topic, partitions in latest.items()
            for partition, offset in partitions.items()
        )

    def _earliest_and_latest(self) -> tuple[Offsets, Offsets] | None:
        if time.monotonic() - self._asked_at > REFRESH_SECONDS:
            try:
                self._held = self._ask()
            except Py4JJavaError:
                self._held = None
            self._asked_at = time.monotonic()
        return self._held

    def _ask(self) -> tuple[Offsets, Offsets]:
        jvm: Any = self._spark.sparkContext._jvm
        kafka = jvm.org.apache.kafka.clients.admin
        admin = kafka.AdminClient.create(self._admin_settings(jvm))
        try:
            topics = admin.describeTopics(_java_list(jvm, self._topics)).allTopicNames().get()
            places = [
                jvm.org.apache.kafka.common.TopicPartition(topic, part.partition())
                for topic in self._topics
                for part in topics[topic].partitions()
            ]
            committed = kafka.ListOffsetsOptions(jvm.org.apache.kafka.common.IsolationLevel.READ_COMMITTED)

            def ask(which: Any) -> Offsets:
                asked = _java_map(jvm, [(each, which) for each in places])
                return _offsets(admin.listOffsets(asked, committed).all().get())

            return ask(kafka.OffsetSpec.earliest()), ask(kafka.OffsetSpec.latest())
        finally:
            admin.close(jvm.java.time.Duration.ZERO)

    def _admin_settings(self, jvm: Any) -> Any:
        patience = {"default.api.timeout.ms": str(PATIENCE_MS), "request.timeout.ms": str(PATIENCE_MS)}
        given = {name.removeprefix("kafka."): value for name, value in self._settings.items()}
        return _java_map(jvm, (given | patience).items())


def _first_offsets(checkpoint: Path, place: int) -> Offsets | None:
    try:
        noted = (checkpoint / "sources" / str(place) / "0").read_text()
        offsets: Offsets = json.loads(noted.partition("\n")[2])  # the first line names the format
    except (OSError, ValueError):
        return None
    return offsets


def _offsets(listed: Any) -> Offsets:
    offsets: Offsets = defaultdict(dict)
    for entry in listed.entrySet():
        offsets[entry.getKey().topic()][str(entry.getKey().partition())] = entry.getValue().offset()
    return offsets


def _java_list(jvm: Any, items: Iterable[str]) -> Any:
    made = jvm.java.util.ArrayList()
    for item in items:
        made.add(item)
    return made


def _java_map(jvm: Any, items: Iterable[tuple[Any, Any]]) -> Any:
    made = jvm.java.util.HashMap()
    for key, value in items:
        made.put(key, value)
    return made

"""Kafka's admin client in Spark's JVM: ids of topics, where partitions begin and end, and how far a query is behind.

Spark's connector does not expose these, so they are requested here.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tidegauge.pipelines.checkpoint.files import CheckpointPath
from tidegauge.pipelines.checkpoint.folder import committed_offset
from tidegauge.pipelines.errors import Gap, InputLostError
from tidegauge.pipelines.spark.java_classes import java_class

Topics = Sequence[str] | re.Pattern[str]

# Topic to partition to offset.
Offsets = dict[str, dict[str, int]]

# An answer is kept this long, because a driver asks for the lag twice a second, and Kafka's costs calls per partition.
REFRESH_SECONDS = 2.0
LAG_TIMEOUT_MS = 3_000
# As long as Spark's own consumer waits, because a batch cannot begin without the ids of its topics.
IDS_TIMEOUT_MS = 60_000

ADMIN, COMMON = "org.apache.kafka.clients.admin", "org.apache.kafka.common"


class KafkaAdmin:
    """Kafka's own client in Spark's JVM. settings: names begin with `kafka.`.

    topics: their names, or a pattern that is matched against whole names at each request.
    One client is kept open, because opening one takes longer than most requests.
    """

    def __init__(self, spark: SparkSession, settings: Mapping[str, str], topics: Topics) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._settings = settings
        self._topics = topics
        self._partitions: dict[tuple[str, int], Any] = {}

    def close(self) -> None:
        if "_client" in self.__dict__:
            self._client.close(self._class("java.time.Duration").ZERO)
            del self._client

    def topic_ids(self) -> dict[str, str]:
        """Return each topic's id, which Kafka assigns when it is created; none if the broker is older than 2.8."""
        ids = {topic: found.topicId() for topic, found in self._described(IDS_TIMEOUT_MS).items()}
        none = self._class(f"{COMMON}.Uuid").ZERO_UUID
        return {topic: each.toString() for topic, each in ids.items() if not each.equals(none)}

    def partitions(self) -> dict[str, list[int]]:
        # Kafka numbers them from 0, without gaps.
        described = self._described(IDS_TIMEOUT_MS).items()
        return {topic: [*range(len(found.partitions()))] for topic, found in described}

    def earliest_and_latest(self) -> tuple[Offsets, Offsets]:
        specs = self._class(f"{ADMIN}.OffsetSpec")
        earliest, latest = self._listed(specs.earliest(), specs.latest())
        return earliest, latest

    def offsets_at(self, ms: int) -> Offsets:
        """Return each partition's first offset at a time or later; the one after its last message if there is none."""
        specs = self._class(f"{ADMIN}.OffsetSpec")
        found, latest = self._listed(specs.forTimestamp(ms), specs.latest())
        return {
            topic: {each: offset if offset >= 0 else latest[topic][each] for each, offset in partitions.items()}
            for topic, partitions in found.items()
        }

    def _listed(self, *specs: Any) -> list[Offsets]:
        described = self._described(LAG_TIMEOUT_MS).items()
        places = [(topic, number) for topic, found in described for number in range(len(found.partitions()))]
        only_committed = self._class(f"{COMMON}.IsolationLevel").READ_COMMITTED
        committed = self._class(f"{ADMIN}.ListOffsetsOptions")(only_committed).timeoutMs(LAG_TIMEOUT_MS)
        asked = [self._map((self._partition(*place), spec) for place in places) for spec in specs]
        answers = [self._client.listOffsets(each, committed).all() for each in asked]
        return [self._offsets(self._within(LAG_TIMEOUT_MS, each), places) for each in answers]

    def _offsets(self, listed: Any, places: Sequence[tuple[str, int]]) -> Offsets:
        # Asked by partition, because each step through a map of Java's is a message, and so is the end of each object.
        offsets: Offsets = defaultdict(dict)
        for topic, number in places:
            offsets[topic][str(number)] = listed.get(self._partition(topic, number)).offset()
        return offsets

    def _partition(self, topic: str, number: int) -> Any:
        place = topic, number
        if place not in self._partitions:
            self._partitions[place] = self._class(f"{COMMON}.TopicPartition")(topic, number)
        return self._partitions[place]

    @cached_property
    def _client(self) -> Any:
        settings = self._map((name.removeprefix("kafka."), value) for name, value in self._settings.items())
        return self._class(f"{ADMIN}.AdminClient").create(settings)

    def _described(self, timeout_ms: int) -> dict[str, Any]:
        options = self._class(f"{ADMIN}.DescribeTopicsOptions")().timeoutMs(timeout_ms)
        names = self._names(timeout_ms)
        asked = self._client.describeTopics([*names], options).allTopicNames()
        described = self._within(timeout_ms, asked)
        return {topic: described.get(topic) for topic in names}

    def _names(self, timeout_ms: int) -> Sequence[str]:
        if not isinstance(self._topics, re.Pattern):
            return self._topics
        listed = self._within(timeout_ms, self._client.listTopics().names())
        return sorted(name for name in listed if self._topics.fullmatch(name))

    def _within(self, timeout_ms: int, answer: Any) -> Any:
        """Wait for a future, a second longer than the client, because the client's own error says more.

        Needed because the client applies a time-out to most of the requests that it sends for a call, but not to all.
        """
        return answer.get(timeout_ms + 1_000, self._class("java.util.concurrent.TimeUnit").MILLISECONDS)

    def _class(self, name: str) -> Any:
        return java_class(self._jvm, name)

    def _map(self, items: Iterable[tuple[Any, Any]]) -> Any:
        # Not a dict, because each key of another Java class would be asked for its hash.
        made = self._class("java.util.HashMap")()
        for key, value in items:
            made.put(key, value)
        return made


class Lag:
    """How many messages the topics hold after the offsets in a checkpoint."""

    def __init__(self, admin: KafkaAdmin) -> None:
        self._admin = admin
        self._offsets: tuple[Offsets, Offsets] | None = None
        self._refreshed_at = float("-inf")

    def messages(self, checkpoint: CheckpointPath, place: int) -> int | None:
        """Return how many messages are unread, or None if Kafka does not answer or the checkpoint does not say."""
        read = committed_offset(checkpoint, place) or first_offsets(checkpoint, place)
        available = self.earliest_and_latest()
        if read is None or available is None:
            return None
        earliest, latest = available
        return sum(
            # From the first message of a partition that was added since, because Spark reads it from there.
            max(0, offset - read.get(topic, {}).get(partition, earliest[topic][partition]))
            for topic, partitions in latest.items()
            for partition, offset in partitions.items()
        )

    def earliest_and_latest(self) -> tuple[Offsets, Offsets] | None:
        """Return each partition's first offset and the one after its last message; None if Kafka does not answer."""
        if time.monotonic() - self._refreshed_at > REFRESH_SECONDS:
            try:
                self._offsets = self._admin.earliest_and_latest()
            except Py4JJavaError:
                self._offsets = None  # not raised, because an unknown lag must not stop the pipeline
            self._refreshed_at = time.monotonic()
        return self._offsets


def check_partitions(where: str, read: Offsets, earliest: Offsets, latest: Offsets) -> None:
    """Raise InputLostError unless Kafka still has every message from the offsets in `read` on."""
    gaps, left = [], {topic: dict(partitions) for topic, partitions in read.items()}
    for topic, partition, offset in ((topic, *place) for topic, places in read.items() for place in places.items()):
        first, end = (offsets.get(topic, {}).get(partition) for offsets in (earliest, latest))
        if first is None or end is None or end < offset:
            has = "does not exist" if end is None else f"ends at offset {end}"
            raise InputLostError(
                f"{where}: {topic}/{partition} was read up to offset {offset} but {has} now: the topic was deleted and "
                "created again, or lost data"
            )
        if first > offset:
            gaps.append(Gap(f"{topic}/{partition}", offset, first - 1))
            left[topic][partition] = first
    if gaps:
        raise InputLostError(f"{where}: Kafka no longer has {', '.join(map(str, gaps))}", gaps, left)


def first_offsets(checkpoint: CheckpointPath, place: int) -> Offsets | None:
    try:
        text = (checkpoint / "sources" / str(place) / "0").read_text()
        offsets: Offsets = json.loads(text.partition("\n")[2])  # the first line names the format
    except (OSError, ValueError):
        return None
    return offsets

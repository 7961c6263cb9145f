"""The Spark jobs of the benchmark: Tidegauge's and one by hand, each in a process of its own, so that it can be killed.

Both read the same topic and join it with the same campaigns, which they read from Redis when they start.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from benchmarks.drivers import drive
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.declare.windows import tumbling
from tidegauge.pipelines.sources.kafka.topics import KafkaTopics
from tidegauge.pipelines.spark.session import start_session
from tidegauge.state_backends import Count, StateSpec

# The prefix of all keys in Redis; the ids of ads and campaigns follow it. `redis_client` deletes what it matches.
PREFIX = "tidegauge:bench:yahoo:"
ADS = f"{PREFIX}ads"  # hash of ad to campaign, for jobs that read them all; each ad is also a key, as published
MOST_PER_BATCH = 2_000_000


@dataclass(frozen=True)
class Job:
    """What a job needs to know. servers, topic: Kafka's. width: of a window, as an interval. joined: see Events."""

    servers: str
    topic: str
    root: str
    jars: tuple[str, ...]
    joined: bool
    width: str

    def as_argument(self) -> str:
        return json.dumps(asdict(self))

    @property
    def schema(self) -> str:
        return f"{'ad_id' if self.joined else 'campaign_id'} string NOT NULL, event_type string, event_time string"

    def session(self) -> SparkSession:
        spark = start_session("yahoo")
        for jar in self.jars:
            spark.sql(f"ADD JAR '{jar}'")
        return spark


def views_state(backend: str) -> StateSpec:
    """Return the state of Tidegauge's job: views per campaign and window."""
    key = {"campaign": "text", "start": "timestamptz"}
    return StateSpec(f"bench_views_{backend}", key=key, measures={"seen": Count()}, backend=backend)


def pipeline(job: Job, spark: SparkSession, backend: str) -> Pipeline:
    """Return Tidegauge's job, with its state in that backend."""
    topics = KafkaTopics(
        job.servers, job.topic, schema=job.schema, max_offsets_per_batch=MOST_PER_BATCH, packages=()
    )  # fmt: skip
    counted = Stream.read(topics).transform(views_of(job, spark)).group_by("campaign", start=tumbling("at", job.width))
    return Pipeline(f"bench_yahoo_{backend}", [counted.persistent_aggregate(views_state(backend))])


def views_of(job: Job, spark: SparkSession) -> Callable[[DataFrame], DataFrame]:
    """Return the step that keeps the views, and adds the campaign and the time, as published: filter, project, join."""
    campaigns = _campaigns(spark) if job.joined else None

    def step(events: DataFrame) -> DataFrame:
        seen = events.where("event_type = 'view'").withColumn("at", F.expr("timestamp_millis(bigint(event_time))"))
        if campaigns is None:
            return seen.selectExpr("campaign_id AS campaign", "at")
        return seen.select("ad_id", "at").join(F.broadcast(campaigns), "ad_id").select("campaign", "at")

    return step


def by_hand(job: Job, spark: SparkSession) -> DataStreamWriter:
    """Return the job as it is commonly written: `foreachBatch` adds a micro-batch's counts to those in Redis."""
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    views = views_of(job, spark)
    topic = spark.readStream.format("kafka").options(
        **{"kafka.bootstrap.servers": job.servers, "subscribe": job.topic, "startingOffsets": "earliest"}
    )
    values = topic.option("maxOffsetsPerTrigger", MOST_PER_BATCH).load().selectExpr("CAST(value AS string) AS value")
    events = values.select(F.from_json("value", job.schema).alias("event")).select("event.*")

    def write(batch: DataFrame, batch_id: int) -> None:
        start = F.window("at", job.width).start.alias("start")
        counted = views(batch).groupBy("campaign", start).count().withColumn("start", F.unix_millis("start"))
        add_to_redis(client, counted.collect())

    return events.writeStream.foreachBatch(write).option("checkpointLocation", str(Path(job.root) / "checkpoint"))


def add_to_redis(client: redis.Redis, counted: list[Row]) -> None:
    """Add counts to those in Redis, in the published layout: CAMPAIGN has START -> uuid, and that key the count."""
    asked = client.pipeline(transaction=False)
    for row in counted:
        asked.hget(f"{PREFIX}{row['campaign']}", str(row["start"]))
    writes = client.pipeline(transaction=False)
    for row, found in zip(counted, asked.execute(), strict=True):
        window = found.decode() if found else str(uuid4())
        if found is None:
            writes.hset(f"{PREFIX}{row['campaign']}", str(row["start"]), window)
        writes.hincrby(f"{PREFIX}{window}", "seen_count", row["count"])
        writes.hset(f"{PREFIX}{window}", "time_updated", str(int(time.time() * 1000)))
    writes.execute()


def _campaigns(spark: SparkSession) -> DataFrame:
    with redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True) as client:
        ads: Mapping[str, str] = client.hgetall(ADS)
    return spark.createDataFrame(list(ads.items()), "ad_id string, campaign string")


JOBS: dict[str, Callable[[Job, SparkSession], Any]] = {
    "by_hand": lambda job, spark: by_hand(job, spark).start().awaitTermination(),
    "tidegauge": lambda job, spark: drive(pipeline(job, spark, "postgres"), Path(job.root), spark),
    "tidegauge_redis": lambda job, spark: drive(pipeline(job, spark, "redis"), Path(job.root), spark),
}

if __name__ == "__main__":
    given = Job(**json.loads(sys.argv[2]))
    JOBS[sys.argv[1]](given, given.session())

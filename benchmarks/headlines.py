"""The comparisons that docs/benchmarks.md begins with: what is measured and with what it is compared, in words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Headline:
    """A comparison that a reader should know first.

    what, against: the `case` of a benchmark and its `reference`, in a reader's words.
    """

    benchmark: str
    case: str
    reference: str
    what: str
    against: str


_PIPELINE = "A pipeline of one state, 500,000 events a batch"
_TRIGGER = "A trigger of one state, {} events"
_FLOOR = "Spark alone: one group-by, results discarded"
_TRIDENT = "Storm Trident, opaque state in Redis"

HEADLINES = [
    Headline("ingest", "tidegauge", "noop", _PIPELINE, _FLOOR),
    Headline("ingest", "tidegauge", "rocksdb", _PIPELINE, "Spark's own exact state, in RocksDB"),
    Headline("ingest", "tidegauge", "executemany", _PIPELINE, "an upsert by hand, which counts replays twice"),
    Headline("trident", "tidegauge_10000", "trident", "Batches of 10,000 events into PostgreSQL", _TRIDENT),
    Headline("trident", "tidegauge_500000", "trident", "Batches of 500,000 events into PostgreSQL", _TRIDENT),
    Headline("trident", "tidegauge_redis_500000", "trident", "Batches of 500,000 events into Redis", _TRIDENT),
    Headline(
        "yahoo",
        "highest_rate_tidegauge",
        "by_hand",
        "Yahoo Streaming Benchmark, highest rate",
        "a Spark job by hand, which counts replays twice",
    ),
    Headline("nexmark", "q7_tidegauge", "spark_alone", "Nexmark query 7, in core seconds", "Spark alone, in RocksDB"),
    Headline("batch-cost", "tidegauge_1_20", "noop", _TRIGGER.format("20"), _FLOOR),
    Headline("batch-cost", "tidegauge_1_10000", "noop", _TRIGGER.format("10,000"), _FLOOR),
    Headline("batch-cost", "tidegauge_1_500000", "noop", _TRIGGER.format("500,000"), _FLOOR),
    Headline("freshness", "every_second_p50", "limit_p50", "From a file to a REST client", "our limit of 1 s"),
    Headline(
        "merge", "opaque_merge", "plain_upsert_tuned", "A merge of 100,000 keys", "a plain upsert of the same keys"
    ),
    Headline(
        "lookup",
        "lookup",
        "bare_django",
        "A lookup of 100 keys over HTTP",
        "a bare Django view, without limits or logs",
    ),
    Headline("feast", "lookup", "feast", "A lookup of 100 keys over HTTP", "Feast's server over the same PostgreSQL"),
    Headline(
        "feast",
        "lookup",
        "vectors_redis",
        "A lookup of 100 keys over HTTP",
        "Feast's server, one vector a key in Redis",
    ),
]

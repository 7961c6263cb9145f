"""Traffic: an OLAP roll-up. Minutes, hours and days of one stream, kept for a day, for 90 days and without limit."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.declare.windows import tumbling
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, DistinctCount, Quantiles, StateSpec, Sum

REQUEST = "site string NOT NULL, user string, bytes bigint, millis double, at timestamp NOT NULL"

BY_MINUTE = StateSpec(
    "traffic_by_minute",
    key={"site": "text", "start": "timestamptz"},
    measures={
        "requests": Count(),
        "bytes": Sum("bytes", type="bigint"),
        "users": DistinctCount("user"),
        "millis": Quantiles("millis", (0.5, 0.99)),
    },
    ttl=timedelta(days=1),
)
BY_HOUR = replace(BY_MINUTE, name="traffic_by_hour", ttl=timedelta(days=90))
BY_DAY = replace(BY_MINUTE, name="traffic_by_day", ttl=None)
GRAINS = {"1 minute": BY_MINUTE, "1 hour": BY_HOUR, "1 day": BY_DAY}


def traffic(folder: Path, files_per_batch: int = 100) -> Pipeline:
    """Requests, bytes, users and latency per site and minute, hour and day, from JSON lines that land in a folder.

    One batch updates all grains and they commit together, so an hour always equals the fold of its minutes (see
    `StateReader.combine`); users are a union, not a sum. A window's time to live runs from its last update. Days are
    UTC days.
    """
    requests = Stream.read(JsonFiles(folder, schema=REQUEST, files_per_batch=files_per_batch))
    return Pipeline(
        "traffic",
        [
            requests.group_by("site", start=tumbling("at", width)).persistent_aggregate(spec)
            for width, spec in GRAINS.items()
        ],
    )

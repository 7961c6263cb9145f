"""Departures from New York: four live aggregates over the flights of 2013; the demo's first pipeline."""

from datetime import timedelta
from pathlib import Path

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.declare.windows import tumbling
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, Max, Mean, StateSpec, Sum

FLIGHT = (
    "time_hour timestamp NOT NULL, origin string NOT NULL, dest string NOT NULL, carrier string NOT NULL, "
    "flight int, tailnum string, dep_time int, dep_delay double, arr_delay double, distance bigint"
)

CANCELLED = Count(where="dep_time is null")

BY_CARRIER = StateSpec(
    "flights_by_carrier",
    key={"origin": "text", "carrier": "text"},
    measures={"flights": Count(), "mean_delay": Mean("dep_delay"), "largest_delay": Max("dep_delay")},
    ttl=timedelta(days=400),
    changelog=True,
)
BY_HOUR = StateSpec(
    "flights_by_hour",
    key={"hour": "timestamptz", "origin": "text"},
    measures={"flights": Count(), "cancelled": CANCELLED},
)
ROUTES = StateSpec(
    "routes",
    key={"origin": "text", "dest": "text"},
    measures={"flights": Count(), "distance": Sum("distance", type="bigint")},
)
TOTALS = StateSpec("totals", measures={"flights": Count(), "cancelled": CANCELLED})


def flights(folder: Path, files_per_batch: int = 1) -> Pipeline:
    """Departures per carrier, hour and route, from JSON-lines files that land in a folder, one per day."""
    departures = Stream.read(JsonFiles(folder, schema=FLIGHT, files_per_batch=files_per_batch))
    return Pipeline(
        "flights",
        [
            departures.group_by("origin", "carrier").persistent_aggregate(BY_CARRIER),
            departures.group_by("origin", hour=tumbling("time_hour", "1 hour")).persistent_aggregate(BY_HOUR),
            departures.group_by("origin", "dest").persistent_aggregate(ROUTES),
            departures.persistent_aggregate(TOTALS),
        ],
    )

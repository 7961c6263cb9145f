"""Aircraft: the flights of each plane, and the delays of every day as sketches; the demo's second pipeline."""

from pathlib import Path

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.declare.windows import tumbling
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, DistinctCount, Latest, Quantiles, StateSpec, Sum

# tailnum is required, so flights without one become dead letters: most were cancelled before a plane was chosen.
FLIGHT = (
    "time_hour timestamp NOT NULL, origin string NOT NULL, dest string NOT NULL, carrier string NOT NULL, "
    "tailnum string NOT NULL, dep_delay double, distance bigint"
)

AIRCRAFT = StateSpec(
    "aircraft",
    key={"tailnum": "text"},
    measures={
        "flights": Count(),
        "miles": Sum("distance", type="bigint"),
        "last_flight": Latest("carrier", "origin", "dest", by="time_hour"),
    },
    changelog=True,
)
DELAYS_BY_DAY = StateSpec(
    "delays_by_day",
    key={"day": "timestamptz", "carrier": "text"},
    measures={
        "flights": Count(),
        "minutes": Quantiles("dep_delay", (0.5, 0.95, 0.99)),
        "aircraft": DistinctCount("tailnum"),
    },
)


def aircraft(folder: Path, files_per_batch: int = 1) -> Pipeline:
    """Flights and miles of each plane, and delays and planes per day and carrier, from JSON lines of flights."""
    departures = Stream.read(JsonFiles(folder, schema=FLIGHT, files_per_batch=files_per_batch))
    return Pipeline(
        "aircraft",
        [
            departures.group_by("tailnum").persistent_aggregate(AIRCRAFT),
            departures.group_by("carrier", day=tumbling("time_hour", "1 day")).persistent_aggregate(DELAYS_BY_DAY),
        ],
    )

"""Unique events: exact counts of events that producers may send twice."""

from datetime import timedelta
from pathlib import Path

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.operators.counts import distinct
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec, Sum

PURCHASE = "id string NOT NULL, product string NOT NULL, amount decimal(18,2), at timestamp"

SEEN = StateSpec("seen_events", key={"id": "text"}, value="jsonb", ttl=timedelta(days=7))
PURCHASES = StateSpec("purchases", key={"product": "text"}, measures={"sold": Count(), "amount": Sum("amount")})


def unique_events(folder: Path, files_per_batch: int = 100) -> Pipeline:
    """Purchases per product, each counted once if it is sent repeatedly within a week, from JSON-lines files."""
    sent = Stream.read(JsonFiles(folder, schema=PURCHASE, files_per_batch=files_per_batch))
    bought = distinct(sent, SEEN, first_by=["at"])
    return Pipeline("unique_events", [bought.group_by("product").persistent_aggregate(PURCHASES)])

"""Page views: windows of event time that late events still update."""

from datetime import timedelta
from pathlib import Path

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.declare.windows import tumbling
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, Max, StateSpec

VIEW = "user string NOT NULL, page string, at timestamp NOT NULL"

VIEWS_BY_HOUR = StateSpec(
    "views_by_hour",
    key={"user": "text", "hour": "timestamptz"},
    measures={"views": Count(), "last_view": Max("at", type="timestamptz")},
    ttl=timedelta(days=90),
)


def page_views(folder: Path, files_per_batch: int = 100, *, drop_late: bool = False) -> Pipeline:
    """Page views per user and hour, from JSON-lines files that land in a folder.

    A view that is more than an hour older than one already seen is counted as late in the batch's figures, but still
    updates its hour; with `drop_late` it is dropped.
    """
    views = Stream.read(JsonFiles(folder, schema=VIEW, files_per_batch=files_per_batch))
    in_time = views.with_watermark("at", "1 hour", drop_late=drop_late)
    by_hour = in_time.group_by("user", hour=tumbling("at", "1 hour"))
    return Pipeline("page_views", [by_hour.persistent_aggregate(VIEWS_BY_HOUR)])

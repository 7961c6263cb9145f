"""Trending: the top ten pages of every hour, stored as a list."""

from datetime import timedelta
from pathlib import Path

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.declare.windows import tumbling
from tidegauge.pipelines.operators.counts import TopN
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec

VIEW = "page string NOT NULL, at timestamp NOT NULL"

# An hour is forgotten a week after its last view; views that come later than that would make its list wrong.
WEEK = timedelta(days=7)
PAGE_VIEWS = StateSpec("page_views", key={"hour": "timestamptz", "page": "text"}, measures={"views": Count()}, ttl=WEEK)
TOP_PAGES = StateSpec("top_pages", key={"hour": "timestamptz"}, value="jsonb", ttl=WEEK)


def trending(folder: Path, files_per_batch: int = 100) -> Pipeline:
    """The ten most viewed pages of every hour, from JSON lines that land in a folder.

    Each batch's new counts are compared with the stored list, so the cost depends on the pages viewed in the batch, not
    on their total number. The list is exact, because counts only grow.

    The largest keys of a whole state need no list: `StateReader(conn, spec).page(order_by="views", descending=True,
    limit=10)`, in SQL `tidegauge_live.page_views ORDER BY views DESC`, sorts at query time.
    """
    views = Stream.read(JsonFiles(folder, schema=VIEW, files_per_batch=files_per_batch))
    counted = views.group_by("page", hour=tumbling("at", "1 hour")).persistent_aggregate(PAGE_VIEWS)
    top_ten = TopN(key=("hour",), item="page", count="views", n=10)
    return Pipeline("trending", [counted.new_values_stream().partition_persist(TOP_PAGES, top_ten)])

"""Trending: the top ten pages of every hour, kept as a list that is ready to serve."""

from datetime import timedelta
from pathlib import Path

from pipelines.operators.counts import TopN
from pipelines.pipeline import Pipeline
from pipelines.sources.files import JsonFiles
from pipelines.stream import Stream, tumbling
from state_backends import Count, StateSpec

VIEW = "page string NOT NULL, at timestamp NOT NULL"

# A week after its last view an hour is forgotten; its list would be wrong if views came later than that.
WEEK = timedelta(days=7)
PAGE_VIEWS = StateSpec("page_views", key={"hour": "timestamptz", "page": "text"}, measures={"views": Count()}, ttl=WEEK)
TOP_PAGES = StateSpec("top_pages", key={"hour": "timestamptz"}, value="jsonb", ttl=WEEK)


def trending(folder: Path, files_per_batch: int = 100) -> Pipeline:
    """The ten most viewed pages of every hour, from JSON lines that land in a folder.

    Each batch's new counts are weighed against the list that is held, so the cost is that of the pages viewed in the
    batch, however many there are in all; the list is exact all the same, as views only grow.

    The largest keys of a whole state need none of this: `StateReader(conn, spec).page(order_by="views",
    descending=True, limit=10)`, in SQL `tidemark_live.page_views ORDER BY views DESC`, sorts when asked.
    """
    views = Stream.read(JsonFiles(folder, schema=VIEW, files_per_batch=files_per_batch))
    counted = views.group_by("page", hour=tumbling("at", "1 hour")).persistent_aggregate(PAGE_VIEWS)
    top_ten = TopN(key=("hour",), item="page", count="views", n=10)
    return Pipeline("trending", [counted.new_values_stream().partition_persist(TOP_PAGES, top_ten)])

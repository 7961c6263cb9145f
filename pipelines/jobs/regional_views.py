"""Regional views: a table-stream join. A table of users is kept as a state, and page views look their user up in it."""

from pathlib import Path

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, Last, StateSpec

USER = "user string NOT NULL, region string NOT NULL, moved_at timestamp NOT NULL"
VIEW = "user string, page string NOT NULL"

REGIONS = StateSpec("regions", key={"user": "text"}, measures={"region": Last("region", by="moved_at", type="text")})
VIEWS = StateSpec("regional_views", key={"region": "text"}, measures={"views": Count()})


def regional_views(folder: Path, files_per_batch: int = 100) -> Pipeline:
    """Page views per region of the viewer, from JSON lines in `users` and `views`; `unknown` if there is none.

    A lookup sees the table as committed before the batch. If a user's region arrives in the batch of a view, the view
    counts under the previous region, or as unknown, because the order within a batch is not known and a retried batch
    must find the same. If that matters, land the users one batch before their views. Counted views stay with their
    region when the user moves.
    """
    users = Stream.read(JsonFiles(folder / "users", schema=USER, files_per_batch=files_per_batch))
    views = Stream.read(JsonFiles(folder / "views", schema=VIEW, files_per_batch=files_per_batch))
    located = views.state_query(REGIONS, ["user"], region="string").each(region="coalesce(region, 'unknown')")
    return Pipeline(
        "regional_views",
        [
            users.group_by("user").persistent_aggregate(REGIONS),
            located.group_by("region").persistent_aggregate(VIEWS),
        ],
    )

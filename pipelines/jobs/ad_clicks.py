"""Ad clicks: a join of two streams, impressions with the clicks that follow within an hour."""

from datetime import timedelta
from pathlib import Path

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.operators.join import join
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec

IMPRESSION = "ad string NOT NULL, campaign string NOT NULL, shown_at timestamp NOT NULL"
CLICK = "ad string NOT NULL, clicked_at timestamp NOT NULL"

WAITING = StateSpec("waiting_for_click", key={"ad": "text"}, value="jsonb")
CLICK_THROUGH = StateSpec(
    "click_through",
    key={"campaign": "text"},
    measures={
        "clicks": Count(where="shown_at is not null and clicked_at is not null"),
        "without_click": Count(where="clicked_at is null"),
        "without_impression": Count(where="shown_at is null"),
    },
)


def ad_clicks(folder: Path, files_per_batch: int = 100) -> Pipeline:
    """Clicks within an hour of their impression, per campaign, from JSON lines in `impressions` and `clicks`.

    Both may come ten minutes late. An impression counts as without a click once no click can arrive in time; a click
    that arrives later counts as without an impression, under the campaign `unknown`.
    """
    shown = Stream.read(JsonFiles(folder / "impressions", schema=IMPRESSION, files_per_batch=files_per_batch))
    clicked = Stream.read(JsonFiles(folder / "clicks", schema=CLICK, files_per_batch=files_per_batch))
    pairs = join(
        shown.with_watermark("shown_at", "10 minutes"),
        clicked.with_watermark("clicked_at", "10 minutes"),
        WAITING,
        times=("shown_at", "clicked_at"),
        within=timedelta(hours=1),
        how="full",
    )
    named = pairs.each(campaign="coalesce(campaign, 'unknown')")
    return Pipeline("ad_clicks", [named.group_by("campaign").persistent_aggregate(CLICK_THROUGH)])

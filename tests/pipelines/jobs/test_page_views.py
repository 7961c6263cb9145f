"""page_views: an hour is updated by every view in it, also by late ones, which the batch's figures count."""

from collections import Counter
from pathlib import Path

import pytest

from tidegauge.pipelines.jobs.page_views import page_views
from tidegauge.testing import Crash

pytestmark = pytest.mark.spark


def view(user, time, page="/"):
    return {"user": user, "page": page, "at": f"2024-03-{time}:00Z"}


BATCHES = [
    [view("ann", "10T09:05"), view("bob", "10T09:59"), view("ann", "10T08:59"), view("ann", "10T10:00")],
    [view("ann", "10T09:00"), view("ann", "07T09:30"), view("bob", "10T09:01")],
]


def recount(views):
    """Views per user and hour, from the lines themselves."""
    counts = Counter((line["user"], line["at"][:13] + ":00Z") for line in views)
    return {key: {"views": times} for key, times in counts.items()}


def late(result):
    return [(batch.late, batch.dropped) for batch in result.batches]


def test_a_view_that_is_days_late_updates_its_hour_once_and_shows_in_the_figures(tidegauge_run):
    result = tidegauge_run(page_views(Path("views")), [*BATCHES, Crash()], expected={"views_by_hour": recount})

    assert late(result) == [(0, 0), (1, 0)]
    assert result.checked["views_by_hour"][0] == "one fold of all rows"


def test_late_views_are_dropped_if_asked(tidegauge_run):
    in_time = [line for batch in BATCHES for line in batch if line["at"] > "2024-03-10"]

    result = tidegauge_run(
        page_views(Path("views"), drop_late=True), BATCHES, expected={"views_by_hour": recount(in_time)}
    )

    assert late(result) == [(0, 0), (1, 1)]

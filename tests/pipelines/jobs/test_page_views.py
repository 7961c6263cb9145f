"""page_views: an hour is updated by every view in it, also by late ones, which the batch's figures count."""

from collections import Counter

import pytest

from pipelines.jobs.page_views import page_views

pytestmark = pytest.mark.spark


def view(user, time, page="/"):
    return {"user": user, "page": page, "at": f"2024-03-{time}:00Z"}


FILES = {
    "1.json": [view("ann", "10T09:05"), view("bob", "10T09:59"), view("ann", "10T08:59"), view("ann", "10T10:00")],
    "2.json": [view("ann", "10T09:00"), view("ann", "07T09:30"), view("bob", "10T09:01")],
}


def recounted():
    """Views per user and hour, from the lines themselves."""
    return Counter((line["user"], line["at"][:13]) for lines in FILES.values() for line in lines)


def served(workspace):
    return {(user, hour[:13]): value["views"] for (user, hour), value in workspace.values("views_by_hour").items()}


def opaque(pipeline):
    pipeline.sources[0].spout = "opaque"
    return pipeline


def test_a_view_that_is_days_late_updates_its_hour_once_and_shows_in_the_figures(workspace):
    for name, lines in FILES.items():
        workspace.land(name, *lines)
    workspace.run(opaque(page_views(workspace.input, 1)))
    workspace.forget_last_commit()

    replayed = workspace.run(opaque(page_views(workspace.input, 1)))

    assert replayed == [(2, 2)]
    assert served(workspace) == recounted()
    assert workspace.rows("SELECT late, dropped FROM tidemark.batch ORDER BY txid") == [(0, 0), (1, 0)]


def test_late_views_are_dropped_if_asked(workspace):
    for name, lines in FILES.items():
        workspace.land(name, *lines)

    workspace.run(page_views(workspace.input, 1, drop_late=True))

    assert served(workspace) == recounted() - Counter({("ann", "2024-03-07T09"): 1})
    assert workspace.rows("SELECT late, dropped FROM tidemark.batch ORDER BY txid") == [(0, 0), (1, 1)]

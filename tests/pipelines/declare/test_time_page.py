"""The program of docs/time.md, run on views of a morning."""

import pytest

from tests.pipelines.test_docs import run
from tidegauge.pipelines.declare.pipeline import Pipeline

pytestmark = pytest.mark.spark


def view(at, user="ann"):
    return {"page": "/home", "user": user, "at": f"2024-03-31T{at}:00Z"}


def test_the_windows_and_sessions_of_the_page_hold_what_it_says(workspace):
    names = run("time.md", {"folder": workspace.input})
    workspace.land("1.json", view("10:05"), view("10:50"))
    workspace.land("2.json", view("11:39"))
    workspace.land("3.json", view("10:59"))
    workspace.land("4.json", view("11:40"))
    workspace.land("5.json", view("10:58"))

    workspace.run(names["closing"])

    assert workspace.values("best_hours") == {"/home": {"best": 3, "hours": 1}}
    assert workspace.rows("SELECT reason FROM tidegauge.dead_letter") == [
        ("late: its window has closed, 0:30:00 after its end",)
    ]
    assert hours(workspace, "by_hour") == {"10:00": 4, "11:00": 2}
    assert hours(workspace, "by_month") == {"23:00": 6}
    assert hours(workspace, "by_week") == {"04:00": 6}
    assert len(workspace.values("last_hour")) == 10


def test_the_late_stream_and_the_sessions_of_the_page_feed_their_states(workspace):
    names = run("time.md", {"folder": workspace.input})
    workspace.land("1.json", view("10:00"), view("10:40", "bob"))
    workspace.land("2.json", view("10:20"), view("10:35"))
    workspace.land("3.json", view("13:00", "cid"))
    workspace.land("4.json", view("10:50"))

    workspace.run(Pipeline("page_times", [names["by_user"], names["too_late"]]))

    assert workspace.values("visits") == {"ann": {"visits": 1, "events": 3}, "bob": {"visits": 1, "events": 1}}
    assert workspace.values("too_late") == {"/home": {"views": 1}}


def hours(workspace, state):
    return {start[11:16]: value["views"] for (_, start), value in workspace.values(state).items()}

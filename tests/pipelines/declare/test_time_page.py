"""The program of docs/time.md, run on views of a morning."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.docs.blocks import blocks
from tests.pipelines.test_docs import run
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.errors import RecountError
from tidegauge.pipelines.repair.recount import Recount
from tidegauge.state_backends import StateReader
from tidegauge.state_backends.maintenance import compact

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


def test_the_trailing_windows_of_the_page_can_be_read_and_asked_in_sql(workspace):
    names = run("time.md", {"folder": workspace.input})
    workspace.land("1.json", view("10:05"), view("10:50"), view("13:30"))
    workspace.land("2.json", view("10:59"))
    workspace.land("3.json", view("13:31"))
    pipeline = Pipeline("page_times", [names["recent"]])
    workspace.run(pipeline)

    assert [step.removed for step in compact(workspace.conn, names["RECENT"], keep=timedelta()) if step.removed] == [3]
    to = datetime(2024, 3, 31, 13, 32, tzinfo=UTC)
    snapshot, windows = StateReader(workspace.conn, names["RECENT"]).windows(
        [("/home",)], [timedelta(hours=1), timedelta(hours=4)], to=to
    )
    assert snapshot.parsed() == [{"key": ["/home"], "values": [{"views": 2}, {"views": 5}]}]
    assert [window.granularity for window in windows] == ["minute", "hour"]
    with pytest.raises(RecountError, match="compaction folds its tiles"):
        Recount(pipeline, "recent_views", workspace.conn, lambda: workspace.spark, workspace.checkpoint).audit(9)
    # Its events are older than the clock.
    snapshot, _ = names["last_hour_and_week"](workspace.conn, [("/home",)])
    assert snapshot.parsed()[0]["values"] == [{"views": 0}, {"views": 0}]
    [asked] = [block.text for block in blocks("sql") if block.page == "time.md"]
    assert workspace.rows(asked) == []
    assert workspace.rows(asked.replace("now()", "timestamptz '2024-03-31 13:32Z'")) == [("/home", 5)]


def hours(workspace, state):
    return {start[11:16]: value["views"] for (_, start), value in workspace.values(state).items()}

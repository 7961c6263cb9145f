"""Idle input: timers fire without it, in as few batches as there are timers."""

import threading
from datetime import timedelta

import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.declare.windows import tumbling
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.operators.sessions import closed_sessions
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec, Sum

pytestmark = pytest.mark.spark

OPEN = StateSpec("open", key={"user": "text"}, value="jsonb")
CLOSED = StateSpec("closed", key={"user": "text"}, measures={"events": Sum("events", type="bigint")})

BY_SECOND = StateSpec("by_second", key={"user": "text", "start": "timestamptz"}, measures={"n": Count()})
SECONDS = StateSpec("seconds", key={"user": "text"}, measures={"n": Count()})


def sessions(folder, idle_after="1 second"):
    actions = Stream.read(JsonFiles(folder, schema="user string, at timestamp"))
    marked = actions.with_watermark("at", "0 seconds", idle_after=idle_after)
    closed = closed_sessions(marked, OPEN, "at", timedelta(seconds=3))
    seconds = marked.group_by("user", start=tumbling("at", "1 second"))
    windows = seconds.persistent_aggregate(BY_SECOND, allowed_lateness="0 seconds").closed_windows()
    return Pipeline(
        "idle",
        [
            closed.group_by("user").persistent_aggregate(CLOSED),
            windows.group_by("user").persistent_aggregate(SECONDS),
        ],
    )


def run_until(workspace, pipeline, done):
    """Run a driver until `done` holds after a batch, or for a minute."""
    stopping = threading.Event()
    given_up = threading.Timer(60, stopping.set)
    given_up.start()
    options = RunOptions(workspace.checkpoint)
    check = lambda batch: stopping.set() if done() else None  # noqa: E731
    try:
        Driver(pipeline, workspace.spark, workspace.dsn, options, check, stopping).run()
    finally:
        given_up.cancel()


def test_a_pipeline_that_has_run_may_get_idle_after_and_lose_it(workspace):
    for number, idle_after in enumerate([None, "1 hour", None]):
        workspace.land(f"{number}.json", {"user": "ann", "at": f"2024-01-01T00:00:0{number}Z"})

        workspace.run(sessions(workspace.input, idle_after))

    assert len(workspace.values("open")["ann"]["sessions"]) == 1
    assert workspace.values("open")["ann"]["sessions"][0]["events"] == 3
    assert workspace.rows("SELECT rows_in FROM tidegauge.batch ORDER BY txid") == [(1,), (1,), (1,)]


def test_no_tick_is_added_to_a_query_of_an_application():
    given = Stream.given("at timestamp").with_watermark("at", "0 seconds", idle_after="1 hour")
    pipeline = Pipeline("given", [given.persistent_aggregate(StateSpec("n", measures={"n": Count()}))])

    assert len(pipeline.sources) == 1


def test_the_last_window_and_session_close_without_input_in_two_batches_at_most(workspace):
    workspace.land("1.json", {"user": "ann", "at": "2024-01-01T00:00:00Z"})
    workspace.land("2.json", {"user": "ann", "at": "2024-01-01T00:00:01Z"})

    run_until(workspace, sessions(workspace.input), lambda: workspace.values("closed") != {})

    assert workspace.values("closed") == {"ann": {"events": 2}}
    assert workspace.values("open") == {}
    assert workspace.values("seconds") == {"ann": {"n": 2}}
    rows = workspace.rows("SELECT rows_in FROM tidegauge.batch WHERE committed_at IS NOT NULL ORDER BY txid")
    assert [row for row in rows if row != (0,)] == [(2,)]
    # One before the input may be the first of a query that has ticks.
    assert len(rows) - rows.index((2,)) <= 3

"""The Yahoo Streaming Benchmark: each job counts what was sent through Kafka, and the check notices what it did not."""

import subprocess
import time
from uuid import uuid4

import numpy as np
import pytest

from benchmarks.kafka_broker import Topic
from benchmarks.servers import redis_client
from benchmarks.yahoo.engines import Place, Window, published_views, read_views, stored_views, write_campaigns
from benchmarks.yahoo.events import Events, counted
from benchmarks.yahoo.jobs import Job, by_hand, pipeline, views_state
from benchmarks.yahoo.load import Load
from benchmarks.yahoo.runs import Check, checked, final_latencies
from tidegauge.pipelines.driver.driver import Driver
from tidegauge.pipelines.driver.run_options import RunOptions
from tidegauge.state_backends.protocols import BACKENDS

STEP_MS, START_MS = 10, 1_700_000_000_000  # of the benchmark's catch-up mode


@pytest.fixture
def sent(tmp_path):
    """The input of a sender that keeps what it gets, and a function that returns it once it is closed."""
    file = tmp_path / "sent"
    with file.open("wb") as kept, subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=kept) as process:

        def lines():
            process.stdin.close()
            process.wait()
            return file.read_bytes().splitlines()

        yield process, lines


def seen(windows):
    return [window.seen for window in windows.values()]


@pytest.mark.parametrize(
    "events",
    [Events(1), Events(1, skew=True), Events(1, campaigns=5_000, joined=False)],
    ids=["as published", "with skew", "many campaigns"],
)
def test_the_expected_counts_are_those_of_the_lines(events):
    times = START_MS + STEP_MS * np.arange(20_000)
    lines = [line for some in np.split(times, 4) for line in events.lines(some).splitlines()]

    assert len(lines) == events.made == 20_000
    assert events.views() == counted(lines, events.ads)


def test_events_are_sent_at_the_rate_with_the_times_at_which_they_are_due(sent):
    process, lines = sent
    events = Events(1)
    started = time.time()
    load = Load(events, process)

    load.at_rate(2_000, 0.5)

    assert time.time() - started >= 0.49
    assert len(lines()) == events.made == 1_000
    assert load.behind >= 0
    assert {start for _, start in events.views()} <= {int(1000 * started) // 10_000 * 10_000 + n for n in (0, 10_000)}


def test_the_check_counts_wrong_windows_in_both_directions_and_those_that_should_not_exist():
    expected = {("a", 0): 5, ("b", 0): 3, ("c", 0): 1}
    found = {("a", 0): Window(5, 1), ("b", 0): Window(7, 1), ("d", 10_000): Window(2, 1)}

    assert checked(expected, found) == Check(windows=4, wrong=3, counted_twice=6, lost=1)
    assert checked(expected, {key: Window(seen, 1) for key, seen in expected.items()}).wrong == 0


def test_a_final_latency_is_the_last_update_less_the_end_of_a_window_within_the_measurement():
    windows = {("a", 0): Window(1, 10_700), ("a", 10_000): Window(1, 21_500), ("a", 20_000): Window(1, 33_000)}

    assert final_latencies(windows, 10_000, start_ms=0, end_ms=20_000) == [700, 1_500]
    assert final_latencies(windows, 10_000, start_ms=5_000, end_ms=40_000) == [1_500, 3_000]


@pytest.mark.spark
def test_each_job_counts_the_views_of_all_events_that_went_through_kafka(
    tidegauge_spark, broker, conn, database_url, tmp_path
):
    spark, events = tidegauge_spark, Events(1, skew=True)
    topic = Topic(spark, broker, f"ad-events-{uuid4().hex[:8]}", partitions=2)
    lines = events.lines(START_MS + STEP_MS * np.arange(4_000)).splitlines()
    topic.send(*lines[::2])
    topic.send(*lines[1::2], partition=1)
    with redis_client() as client:
        write_campaigns(client, events.ads)
        place = Place(broker.address, topic.name, tmp_path, (), events, conn, client)
        found = {}
        for backend in ("postgres", "redis"):
            job = Job(broker.address, topic.name, str(tmp_path), (), joined=True, width="10 seconds")
            Driver(pipeline(job, spark, backend), spark, database_url, RunOptions(tmp_path / backend, once=True)).run()
            found[backend] = stored_views(place, backend)
            reader = BACKENDS[backend].reader(conn, views_state(backend), None)
            assert read_views(reader, [*found[backend], ("absent", START_MS)]) == [*seen(found[backend]), 0]
        by_hand(job, spark).trigger(availableNow=True).start().awaitTermination()
        found["by hand"] = published_views(place)

    expected = counted(lines, events.ads)
    assert len(expected) > 100
    assert {name: checked(expected, windows).wrong for name, windows in found.items()} == dict.fromkeys(found, 0)
    now = 1000 * time.time()
    assert all(now - 600_000 < window.updated_ms <= now for each in found.values() for window in each.values())

"""What the ledger keeps of each batch: what was pending once it was committed, and how old its newest event was."""

import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec

pytestmark = pytest.mark.spark

VISITS = StateSpec("visits", key={"page": "text"}, measures={"visits": Count()})


def test_input_that_came_during_a_batch_is_pending_after_it_since_it_came(workspace):
    workspace.land("1.txt", "dog")
    landed = []

    def land_another(batch):
        if not landed:
            landed.append(workspace.land("2.txt", "cat"))

    options = RunOptions(workspace.checkpoint, once=True)
    Driver(word_count(workspace.input), workspace.spark, workspace.dsn, options, land_another).run()
    [(pending, lag, at)] = workspace.rows(
        "SELECT metrics -> 'pending', (metrics ->> 'lag_seconds')::float8, extract(epoch FROM committed_at)::float8 "
        "FROM tidegauge.batch"
    )
    workspace.run(word_count(workspace.input))

    assert pending == {"count": 1, "unit": "files"}
    assert lag == pytest.approx(at - landed[0].stat().st_mtime, abs=0.001)
    [last] = workspace.rows("SELECT metrics -> 'pending', metrics -> 'lag_seconds' FROM tidegauge.batch WHERE txid = 2")
    assert last == ({"count": 0, "unit": "files"}, 0)


def test_a_batch_keeps_the_age_of_its_newest_event(workspace):
    events = Stream.read(JsonFiles(workspace.input, schema="page string, at timestamp", files_per_batch=1))
    visits = events.with_watermark("at", "1 hour").group_by("page").persistent_aggregate(VISITS)
    for n, at in enumerate(("10:00", "12:00", "11:00")):
        workspace.land(f"{n}.jsonl", {"page": "/", "at": f"2024-01-01T{at}:00Z"})

    workspace.run(Pipeline("visits", [visits]))

    ages = workspace.rows(
        "SELECT committed_at - (metrics ->> 'event_age_seconds')::float8 * interval '1 s' = at::timestamptz "
        "FROM tidegauge.batch JOIN (VALUES (1, '10:00'), (2, '12:00'), (3, '11:00')) event (txid, time) USING (txid), "
        "LATERAL (SELECT '2024-01-01T' || time || 'Z') day (at) ORDER BY txid"
    )

    assert ages == [(True,)] * 3


def test_without_event_time_the_newest_event_has_no_age(filled):
    assert filled.rows("SELECT metrics ? 'event_age_seconds', metrics ? 'lag_seconds' FROM tidegauge.batch") == [
        (False, True)
    ]

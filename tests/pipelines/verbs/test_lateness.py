"""with_watermark(allowed_lateness=..): what comes too late is kept, as a dead letter or in a stream of its own."""

import json

import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec

pytestmark = pytest.mark.spark

TOTALS = StateSpec("totals", measures={"n": Count()})
LATE = StateSpec("late_by_name", key={"name": "text"}, measures={"n": Count()})
FIGURES = "SELECT late, dropped, dead_letters FROM tidegauge.batch ORDER BY txid"


def at(minute, name="a"):
    return {"name": name, "at": f"2024-01-01T00:{minute:02}:00Z"}


def events(folder):
    read = Stream.read(JsonFiles(folder, schema="name string, at timestamp", files_per_batch=1))
    return read.with_watermark("at", "10 minutes", allowed_lateness="5 minutes")


def test_late_tuples_within_the_bound_count_and_later_ones_are_dead_letters_also_after_a_restart(workspace):
    pipeline = Pipeline("late", [events(workspace.input).persistent_aggregate(TOTALS)])
    workspace.land("1.json", at(30))
    workspace.run(pipeline)
    workspace.land("2.json", at(15), at(14, "too late"), {"name": "no time"})

    workspace.run(pipeline)

    assert workspace.values("totals") == {(): {"n": 3}}
    assert workspace.rows(FIGURES) == [(0, 0, 0), (2, 1, 1)]
    [(source, line, reason)] = workspace.rows("SELECT source, line, reason FROM tidegauge.dead_letter")
    assert (source, reason) == ("late", "late: at is more than 0:05:00 before the watermark")
    assert json.loads(line) == {"name": "too late", "at": "2024-01-01T00:14:00.000000Z"}


@pytest.mark.core
def test_a_stream_of_the_late_tuples_feeds_a_state_instead_of_dead_letters(workspace):
    in_time = events(workspace.input)
    feeds = [in_time.persistent_aggregate(TOTALS), in_time.late().group_by("name").persistent_aggregate(LATE)]
    workspace.land("1.json", at(30))
    workspace.land("2.json", at(14, "too late"))

    workspace.run(Pipeline("late", feeds))

    assert workspace.values("late_by_name") == {"too late": {"n": 1}}
    assert workspace.values("totals") == {(): {"n": 1}}
    assert workspace.rows(FIGURES) == [(0, 0, 0), (1, 1, 0)]

"""with_watermark: late tuples are counted, dropped on request, and the watermark goes from batch to batch."""

import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import BadInputError, PipelineError
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, PostgresBackingMap, StateSpec

pytestmark = pytest.mark.spark

TOTALS = StateSpec("totals", measures={"n": Count()})
EVENT = "name string, at timestamp"


def at(minute, name="a"):
    return {"name": name, "at": f"2024-01-01T00:{minute:02}:00Z"}


def counted(folder, delay="10 minutes", drop_late=False):
    events = Stream.read(JsonFiles(folder, schema=EVENT, files_per_batch=1))
    return Pipeline("late", [events.with_watermark("at", delay, drop_late=drop_late).persistent_aggregate(TOTALS)])


def figures(workspace):
    return workspace.rows(
        "SELECT late, dropped, to_char(watermark AT TIME ZONE 'UTC', 'HH24:MI') FROM tidegauge.batch ORDER BY txid"
    )


def test_a_late_tuple_is_an_ordinary_update_and_is_counted_as_late(workspace):
    workspace.land("1.json", at(30), at(5))
    workspace.land("2.json", at(19), at(20), {"name": "no time"})
    before = workspace.jobs_begun()

    workspace.run(counted(workspace.input))

    assert workspace.values("totals") == {(): {"n": 5}}
    assert figures(workspace) == [(0, 0, "00:20"), (1, 0, "00:20")]
    # The job that finds a batch's watermark counts its rows as well, and one writes.
    assert workspace.jobs_begun() == before + 2 * 2


def test_too_many_bad_lines_are_found_before_anything_is_written(workspace):
    workspace.land("1.json", at(30), *["oops"] * 11)

    with pytest.raises(BadInputError, match="11 of 12 lines of batch 1 cannot be read"):
        workspace.run(counted(workspace.input))

    assert list(PostgresBackingMap(workspace.conn, TOTALS).scan()) == []


@pytest.mark.core
def test_late_tuples_are_dropped_on_request(workspace):
    workspace.land("1.json", at(30))
    workspace.land("2.json", at(19), at(20), {"name": "no time"}, at(45))
    workspace.land("3.json", at(34))

    workspace.run(counted(workspace.input, drop_late=True))

    assert workspace.values("totals") == {(): {"n": 4}}
    assert figures(workspace) == [(0, 0, "00:20"), (1, 1, "00:35"), (1, 1, "00:35")]


def test_the_stream_furthest_behind_sets_the_watermark(workspace):
    one = Stream.read(JsonFiles(workspace.input, schema=EVENT, files_per_batch=1))
    fast = one.where("name = 'fast'").with_watermark("at", "0 seconds")
    slow = one.where("name = 'slow'").with_watermark("at", "0 seconds")
    workspace.land("1.json", at(30, "fast"))
    workspace.land("2.json", at(10, "slow"))
    workspace.land("3.json", at(40, "slow"))

    workspace.run(Pipeline("late", [fast.merge(slow).persistent_aggregate(TOTALS)]))

    assert [row[2] for row in figures(workspace)] == [None, "00:10", "00:30"]


def test_a_time_far_in_the_future_makes_nothing_late(workspace):
    workspace.land("1.json", at(30), {"name": "a", "at": "2999-01-01T00:00:00Z"}, {"name": "b", "at": "+12345-01-01"})
    workspace.land("2.json", at(25))

    workspace.run(counted(workspace.input))

    assert figures(workspace) == [(0, 0, "00:20"), (0, 0, "00:20")]


def test_a_watermark_that_is_not_a_timestamp_or_not_an_interval_is_refused(workspace):
    events = Stream.read(JsonFiles(workspace.input, schema=EVENT))

    with pytest.raises(PipelineError, match="watermark on 'name', which is string; it needs a timestamp"):
        workspace.run(Pipeline("late", [events.with_watermark("name", "1 hour").persistent_aggregate(TOTALS)]))
    with pytest.raises(PipelineError, match="watermark delay 'soon' is not an interval"):
        workspace.run(Pipeline("late", [events.with_watermark("at", "soon").persistent_aggregate(TOTALS)]))

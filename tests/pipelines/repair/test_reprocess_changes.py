"""A reprocess that would give other results than the batches did says so, and waits for them to be accepted."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.recovery_page import message_of
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.repair.partial_reprocess import PartialReprocess
from tidegauge.pipelines.repair.reprocess import Reprocess
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.errors import ChangedResultError
from tidegauge.state_backends.schema.swap import ROOM

pytestmark = pytest.mark.spark

BY_USER = StateSpec("by_user", key={"user": "text"}, measures={"visits": Count()})
BY_PAGE = StateSpec("by_page", key={"page": "text"}, measures={"visits": Count()})
SCHEMA = "user string, page string, at timestamp"


def visits(folder, files_per_batch=1, spec=BY_USER):
    events = Stream.read(JsonFiles(folder, schema=SCHEMA, files_per_batch=files_per_batch))
    timely = events.with_watermark("at", "1 hour", allowed_lateness="0 seconds")
    return Pipeline("visits", [timely.group_by(*each.key).persistent_aggregate(each) for each in (spec, BY_PAGE)])


def visit(hour):
    return {"user": "ann", "page": "/", "at": f"2026-01-01T{hour:02}:00:00Z"}


@pytest.fixture
def counted(workspace):
    """Three batches, of which the second came too late."""
    for number, hour in enumerate([12, 9, 13], 1):
        workspace.land(f"{number}.json", visit(hour))
    workspace.run(visits(workspace.input))
    assert workspace.values("by_user") == {"ann": {"visits": 2}}
    return workspace


def place(workspace):
    return {"spark": workspace.spark, "dsn": workspace.dsn, "checkpoint": workspace.checkpoint}


def late(workspace):
    return workspace.rows("SELECT txid, source FROM tidegauge.dead_letter WHERE pipeline = 'visits' ORDER BY id")


class TestLateEvents:
    def test_a_reprocess_in_the_same_batches_needs_nothing_and_one_in_others_is_accepted_first(self, counted):
        assert Reprocess(visits(counted.input), **place(counted)).run()
        same = counted.values("by_user")
        with pytest.raises(ChangedResultError, match=message_of("A reprocess gives other results", 2)):
            Reprocess(visits(counted.input, files_per_batch=3), **place(counted)).run()
        refused = counted.values("by_user"), late(counted)
        assert Reprocess(visits(counted.input, files_per_batch=3), **place(counted), accept_changes=True).run()

        assert same == {"ann": {"visits": 2}}
        assert refused == (same, [(ROOM + 2, "late")])
        assert counted.values("by_user") == {"ann": {"visits": 3}}
        assert late(counted) == []

    def test_a_state_alone_leaves_out_the_same_ones_and_is_refused_if_it_cannot_have_the_same_watermark(self, counted):
        others = Stream.read(JsonFiles(counted.input.parent / "others", schema=SCHEMA)).with_watermark("at", "1 day")
        total = others.persistent_aggregate(StateSpec("total", measures={"n": Count()}))
        more = Pipeline("visits", [*visits(counted.input).feeds, total])

        with pytest.raises(ChangedResultError, match="left out because of a watermark that other streams"):
            PartialReprocess(more, ["by_user"], **place(counted)).run()
        assert PartialReprocess(visits(counted.input), ["by_user"], **place(counted)).run()

        assert counted.values("by_user") == {"ann": {"visits": 2}}
        assert late(counted) == [(2, "late")]


class TestKeysThatEnd:
    SPEC = replace(BY_USER, ttl=timedelta(days=1))

    def test_a_state_that_is_older_than_its_ttl_is_named_before_anything_is_begun(self, workspace):
        workspace.land("1.json", visit(12))
        workspace.run(visits(workspace.input, spec=self.SPEC))
        assert Reprocess(visits(workspace.input, spec=self.SPEC), **place(workspace)).run()  # within its ttl
        workspace.conn.execute("UPDATE tidegauge.batch SET batch_time = batch_time - interval '2 days'")
        workspace.conn.execute("UPDATE tidegauge_state.by_user SET updated_at = updated_at - interval '2 days'")

        for kind, states in ((Reprocess, {}), (PartialReprocess, {"states": ["by_user"]})):
            with pytest.raises(ChangedResultError, match=message_of("A reprocess gives other results", 1)):
                kind(visits(workspace.input, spec=self.SPEC), **states, **place(workspace)).run()
        begun = workspace.rows("SELECT name FROM tidegauge.pipeline WHERE name = 'visits@reprocess'")
        assert Reprocess(visits(workspace.input, spec=self.SPEC), **place(workspace), accept_changes=True).run()

        assert begun == []
        assert workspace.values("by_user") == {"ann": {"visits": 1}}

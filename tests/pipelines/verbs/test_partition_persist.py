"""partition_persist: an updater in Python, over a Tidegauge state or a store of the user's own."""

import json
from pathlib import Path

import pytest

from tests.pipelines.basket_updater import FillBaskets
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, Replace, StateSpec

pytestmark = pytest.mark.spark

BASKETS = StateSpec("baskets", key={"user": "text"}, value="jsonb", changelog=True)
EVENT = "user string, item string, at timestamp"
CHECKOUTS = StateSpec("checkouts", key={"user": "text"}, measures={"n": Count()})


def baskets(folder, updater=None, spec=BASKETS):
    events = Stream.read(JsonFiles(folder, schema=EVENT, files_per_batch=1))
    emits = {"user": "string", "items": "bigint"}
    filled = events.partition_persist(spec, updater or FillBaskets(), order_by=["at"], emits=emits)
    checkouts = filled.new_values_stream().where("items > 0").group_by("user").persistent_aggregate(CHECKOUTS)
    return Pipeline("baskets", [checkouts])


def event(user, item, minute):
    return {"user": user, "item": item, "at": f"2024-01-01T00:{minute:02}:00Z"}


@pytest.mark.core
def test_an_updater_sees_a_key_s_tuples_in_order_and_what_it_wrote_before(workspace):
    workspace.land("1.json", event("ann", "pear", 2), event("ann", "apple", 1), event("bob", "fig", 1))
    workspace.land("2.json", event("ann", "done", 4), event("ann", "plum", 3), event("bob", "done", 2))

    workspace.run(baskets(workspace.input))

    assert workspace.values("baskets") == {}
    assert workspace.values("checkouts") == {"ann": {"n": 1}, "bob": {"n": 1}}
    history = workspace.rows("SELECT value FROM tidegauge_changelog.baskets WHERE \"user\" = 'ann' ORDER BY txid")
    assert history[0] == (["apple", "pear"],)


def test_a_replayed_batch_updates_the_version_before_it(workspace):
    def opaque():
        pipeline = baskets(workspace.input)
        pipeline.sources[0].spout = "opaque"
        return pipeline

    workspace.land("1.json", event("ann", "pear", 1))
    second = workspace.land("2.json", event("ann", "apple", 2), event("bob", "fig", 1))
    workspace.run(opaque())
    workspace.forget_last_commit()
    second.write_text(json.dumps(event("ann", "plum", 2)) + "\n")

    batches = workspace.run(opaque())

    assert batches == [(2, 2)]
    assert workspace.values("baskets") == {"ann": ["pear", "plum"]}


class WritesElsewhere:
    def update_state(self, state, tuples, collector):
        state.multi_update([("bob",)], [Replace(["x"])])


def test_a_write_to_a_key_that_no_tuple_has_is_refused(workspace):
    workspace.land("1.json", event("ann", "pear", 1))

    with pytest.raises(Exception, match=r"state 'baskets': the updater wrote key \('bob',\), which none of its"):
        workspace.run(baskets(workspace.input, WritesElsewhere()))

    assert workspace.rows("SELECT open_txid, committed_txid FROM tidegauge.pipeline") == [(1, 0)]


def test_a_tuple_with_an_invalid_key_is_a_dead_letter(workspace):
    workspace.land("1.json", event(None, "pear", 1), event("ann", "apple", 1))

    workspace.run(baskets(workspace.input))

    assert workspace.values("baskets") == {"ann": ["apple"]}
    assert workspace.rows("SELECT state, reason FROM tidegauge.dead_letter") == [("baskets", "key column user is null")]


def test_an_emitted_column_of_another_type_is_refused_by_name(workspace):
    class EmitsText:
        def update_state(self, state, tuples, collector):
            collector.emit("ann", "many")

    workspace.land("1.json", event("ann", "pear", 1))

    with pytest.raises(Exception, match="emitted column 'items': not int64"):
        workspace.run(baskets(workspace.input, EmitsText()))


class Ledgered:
    """A store of the user's own: a file per task and batch, which a replay of the batch writes again."""

    def __init__(self, folder):
        self.folder = str(folder)

    def make_state(self, partition):
        return LedgeredState(Path(self.folder), partition)


class LedgeredState:
    def __init__(self, folder, partition):
        self.folder, self.partition, self.lines = folder, partition, []

    def begin_commit(self, txid):
        self.lines = []

    def commit(self, txid):
        (self.folder / f"{txid}-{self.partition}").write_text("\n".join(self.lines))


class Note:
    def update_state(self, state, tuples, collector):
        state.lines += [row["user"] for row in tuples]


def test_a_store_of_the_user_s_own_gets_the_txid_and_every_tuple_once(workspace, tmp_path):
    folder = tmp_path / "noted"
    folder.mkdir()
    events = Stream.read(JsonFiles(workspace.input, schema=EVENT, files_per_batch=1)).partition_by("user")
    pipeline = Pipeline("noted", [events.partition_persist(Ledgered(folder), Note(), name="notes")])
    workspace.land("1.json", event("ann", "pear", 1), event("bob", "fig", 1))
    workspace.land("2.json", event("cat", "fig", 1))

    batches = workspace.run(pipeline)

    written = {path.name.partition("-")[0]: [] for path in folder.iterdir()}
    for path in folder.iterdir():
        written[path.name.partition("-")[0]] += path.read_text().split()
    assert batches == [(1, 1), (2, 1)]
    assert {txid: sorted(users) for txid, users in written.items()} == {"1": ["ann", "bob"], "2": ["cat"]}
    assert workspace.rows("SELECT keys_written FROM tidegauge.batch ORDER BY txid") == [
        ({"notes": 2},),
        ({"notes": 1},),
    ]


class WakeUp:
    """Keeps the last item of a user for ten minutes, then removes and emits it."""

    def update_state(self, state, tuples, collector):
        for row in tuples:
            key = (row["user"],)
            if row["woken"]:
                [kept] = state.multi_get([key])
                collector.emit(row["user"], kept["item"])
                state.multi_remove([key])
            else:
                due = row["at"].replace(minute=row["at"].minute + 10)
                state.multi_put([key], [{"item": row["item"], "due": due.isoformat()}])


def waiting(folder):
    events = Stream.read(JsonFiles(folder, schema=EVENT, files_per_batch=1)).with_watermark("at", "0 seconds")
    kept = StateSpec("kept", key={"user": "text"}, value="jsonb")
    emits = {"user": "string", "item": "string"}
    held = events.partition_persist(kept, WakeUp(), order_by=["at"], emits=emits, due="due")
    gone = StateSpec("gone", key={"user": "text", "item": "text"}, measures={"n": Count()})
    return Pipeline("waiting", [held.new_values_stream().group_by("user", "item").persistent_aggregate(gone)])


def test_a_timer_wakes_its_key_when_any_tuple_moves_the_watermark_past_it(workspace):
    workspace.land("1.json", event("ann", "pear", 1), event("bob", "fig", 5))
    workspace.land("2.json", event("cat", "plum", 12))

    workspace.run(waiting(workspace.input))

    assert set(workspace.values("kept")) == {"bob", "cat"}
    assert workspace.values("gone") == {("ann", "pear"): {"n": 1}}


def test_a_timer_on_a_time_that_is_not_stored_is_refused(workspace):
    with pytest.raises(PipelineError, match="state 'checkouts': due 'at' is not a time that it stores"):
        Stream.read(JsonFiles(workspace.input, schema=EVENT)).partition_persist(CHECKOUTS, WakeUp(), due="at")

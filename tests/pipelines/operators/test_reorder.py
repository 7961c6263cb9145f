"""Reorder: what needs its events in order gets the same result in whatever order they come, within the bound."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.keyed import fold_by_key
from pipelines.operators.reorder import Reorder, in_order
from pipelines.pipeline import Pipeline
from pipelines.sources.files import JsonFiles
from pipelines.stream import Stream
from state_backends import StateSpec
from tests.pipelines.operators.event_strategies import DELAY, arriving, batched, run_all
from tests.pipelines.operators.updater_harness import Batches, minute

HELD = StateSpec("held", key={"door": "text"}, value="jsonb")
FAR = {"door": "last", "time": minute(10_000), "payload": "last"}

numbers = count()


def tuple_of(door, at):
    return {"door": door, "time": minute(at), "payload": f"{door} {at:03} {next(numbers)}"}


openings = st.builds(tuple_of, st.sampled_from("ab"), st.integers(0, 100))


def passed_on(batches):
    """What came out of each batch, late ones apart: door and minute."""
    in_time = [sorted(payload for payload, late in emitted if not late) for emitted in batches.emitted]
    return [payload for emitted in in_time for payload in emitted]


@given(arriving(openings, lambda row: (row["time"] - minute(0)).seconds // 60).flatmap(batched))
def test_within_the_bound_each_key_s_events_come_in_order_and_each_once_whatever_fails_meanwhile(drawn):
    batches = Batches(HELD, Reorder(("door",)), "time", DELAY)

    run_all(batches, drawn, FAR)

    everything = [row["payload"] for rows, _ in drawn for row in rows]
    for door in "ab":
        minutes = [payload[:5] for payload in passed_on(batches) if payload[0] == door]
        assert minutes == sorted(minutes)
    assert Counter(batches.all_emitted()) == Counter((payload, False) for payload in everything)
    assert set(batches.values()) == {"last"}


@given(st.lists(openings, max_size=25).flatmap(batched))
def test_those_beyond_the_bound_are_passed_on_once_too_and_say_so(drawn):
    batches = Batches(HELD, Reorder(("door",)), "time", DELAY)

    run_all(batches, drawn, FAR)

    everything = [row["payload"] for rows, _ in drawn for row in rows]
    assert Counter(payload for payload, _ in batches.all_emitted()) == Counter(everything)
    for door in "ab":
        minutes = [payload[:5] for payload in passed_on(batches) if payload[0] == door]
        assert minutes == sorted(minutes)


def test_events_of_one_time_go_on_together_for_the_next_state_to_order():
    batches = Batches(HELD, Reorder(("door",)), "time", DELAY)
    batches.run([tuple_of("a", 0)])

    reached = batches.run([tuple_of("a", 0), tuple_of("b", 10)])
    passed = batches.run([tuple_of("a", 0), tuple_of("b", 11)])

    assert reached == []
    assert [(payload[:5], late) for payload, late in passed] == [("a 000", False)] * 3


class StatusChanges:
    """Counts how often a door's status changed: wrong in any order but that of time."""

    def update_state(self, state, tuples, collector):
        fold_by_key(state, tuples, ("door",), follow)


def follow(kept, rows):
    status, changes = kept or (None, 0)
    for row in rows:
        changes += row["status"] != status
        status = row["status"]
    return [status, changes]


def door_changes(folder):
    events = Stream.read(JsonFiles(folder, schema="door string, status string, at timestamp", files_per_batch=1))
    events = in_order(events.with_watermark("at", "10 minutes"), HELD, "at")
    changes = StateSpec("changes", key={"door": "text"}, value="jsonb")
    pipeline = Pipeline(
        "doors", [events.where("not late").partition_persist(changes, StatusChanges(), order_by=["at"])]
    )
    pipeline.sources[0].spout = "opaque"
    return pipeline


def plainly(lines):
    found = {}
    for line in sorted(lines, key=lambda line: line["at"]):
        found[line["door"]] = follow(found.get(line["door"]), [line])
    return found


@pytest.mark.spark
def test_a_state_that_needs_order_is_exact_though_files_mix_it_up_and_one_comes_again(workspace):
    chance = random.Random(11)
    start = datetime(2024, 3, 10, tzinfo=UTC)
    seconds = chance.sample(range(3600), 90)
    lines = [
        {"door": chance.choice("ab"), "status": chance.choice(["open", "shut"]), "second": second} for second in seconds
    ]
    lines.sort(key=lambda line: line["second"] + chance.random() * 590)
    for line in lines:
        line["at"] = (start + timedelta(seconds=line.pop("second"), microseconds=chance.randrange(10**6))).isoformat()
    for number in range(3):
        workspace.land(f"{number}.json", *lines[number * 30 : number * 30 + 30])
    workspace.run(door_changes(workspace.input))
    workspace.forget_last_commit()
    workspace.land("9.json", {"door": "last", "status": "open", "at": "2024-03-11T00:00:00Z"})

    batches = workspace.run(door_changes(workspace.input))

    assert batches == [(3, 2), (4, 1)]
    assert workspace.values("changes") == plainly(lines)
    assert set(workspace.values("held")) == {"last"}

"""Reorder: a state that needs its events in order gets the same result for any order within the watermark's bound."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.operators.event_strategies import DELAY, arriving, batched, run_all
from tests.pipelines.operators.updater_harness import Batches, minute
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.operators.keyed import fold_by_key
from tidegauge.pipelines.operators.reorder import Reorder, in_order
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import StateSpec

HELD = StateSpec("held", key={"gate": "text"}, value="jsonb")
FAR = {"gate": "last", "time": minute(10_000), "payload": "last"}

numbers = count()


def tuple_of(gate, at):
    return {"gate": gate, "time": minute(at), "payload": f"{gate} {at:03} {next(numbers)}"}


openings = st.builds(tuple_of, st.sampled_from("ab"), st.integers(0, 100))


def emitted_in_time(batches):
    """What each batch emitted, without late events: gate and minute."""
    in_time = [sorted(payload for payload, late in emitted if not late) for emitted in batches.emitted]
    return [payload for emitted in in_time for payload in emitted]


@given(arriving(openings, lambda row: (row["time"] - minute(0)).seconds // 60).flatmap(batched))
def test_within_the_bound_each_key_s_events_are_emitted_in_order_and_once_also_after_failures(drawn):
    batches = Batches(HELD, Reorder(("gate",)), "time", DELAY)

    run_all(batches, drawn, FAR)

    everything = [row["payload"] for rows, _ in drawn for row in rows]
    for gate in "ab":
        minutes = [payload[:5] for payload in emitted_in_time(batches) if payload[0] == gate]
        assert minutes == sorted(minutes)
    assert Counter(batches.all_emitted()) == Counter((payload, False) for payload in everything)
    assert set(batches.values()) == {"last"}


@given(st.lists(openings, max_size=25).flatmap(batched))
def test_events_beyond_the_bound_are_emitted_once_too_and_marked_late(drawn):
    batches = Batches(HELD, Reorder(("gate",)), "time", DELAY)

    run_all(batches, drawn, FAR)

    everything = [row["payload"] for rows, _ in drawn for row in rows]
    assert Counter(payload for payload, _ in batches.all_emitted()) == Counter(everything)
    for gate in "ab":
        minutes = [payload[:5] for payload in emitted_in_time(batches) if payload[0] == gate]
        assert minutes == sorted(minutes)


def test_events_of_one_time_are_emitted_together():
    batches = Batches(HELD, Reorder(("gate",)), "time", DELAY)
    batches.run([tuple_of("a", 0)])

    reached = batches.run([tuple_of("a", 0), tuple_of("b", 10)])
    passed = batches.run([tuple_of("a", 0), tuple_of("b", 11)])

    assert reached == []
    assert [(payload[:5], late) for payload, late in passed] == [("a 000", False)] * 3


class StatusChanges:
    """Counts how often a gate's status changed: wrong in any other order."""

    def update_state(self, state, tuples, collector):
        fold_by_key(state, tuples, ("gate",), follow)


def follow(stored, rows):
    status, changes = stored or (None, 0)
    for row in rows:
        changes += row["status"] != status
        status = row["status"]
    return [status, changes]


def gate_changes(folder):
    events = Stream.read(JsonFiles(folder, schema="gate string, status string, at timestamp", files_per_batch=1))
    events = in_order(events.with_watermark("at", "10 minutes"), HELD, "at")
    changes = StateSpec("changes", key={"gate": "text"}, value="jsonb")
    pipeline = Pipeline(
        "gates", [events.where("not late").partition_persist(changes, StatusChanges(), order_by=["at"])]
    )
    pipeline.sources[0].spout = "opaque"
    return pipeline


def plainly(lines):
    found = {}
    for line in sorted(lines, key=lambda line: line["at"]):
        found[line["gate"]] = follow(found.get(line["gate"]), [line])
    return found


@pytest.mark.spark
def test_a_state_that_needs_order_is_exact_although_files_are_out_of_order_and_one_is_replayed(workspace):
    chance = random.Random(11)
    start = datetime(2024, 3, 10, tzinfo=UTC)
    seconds = chance.sample(range(3600), 90)
    lines = [
        {"gate": chance.choice("ab"), "status": chance.choice(["open", "shut"]), "second": second} for second in seconds
    ]
    lines.sort(key=lambda line: line["second"] + chance.random() * 590)
    for line in lines:
        line["at"] = (start + timedelta(seconds=line.pop("second"), microseconds=chance.randrange(10**6))).isoformat()
    for number in range(3):
        workspace.land(f"{number}.json", *lines[number * 30 : number * 30 + 30])
    workspace.run(gate_changes(workspace.input))
    workspace.forget_last_commit()
    workspace.land("9.json", {"gate": "last", "status": "open", "at": "2024-03-11T00:00:00Z"})

    batches = workspace.run(gate_changes(workspace.input))

    assert batches == [(3, 2), (4, 1)]
    assert workspace.values("changes") == plainly(lines)
    assert set(workspace.values("held")) == {"last"}

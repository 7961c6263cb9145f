"""Join: every pair is emitted once and every tuple without a partner once, in any order, batches and attempts."""

from collections import Counter
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.operators.event_strategies import DELAY, arriving, batched, run_all
from tests.pipelines.operators.updater_harness import Batches, minute
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.operators.join import ALONE, Join, join
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec

WITHIN_MINUTES = 60
WITHIN = timedelta(minutes=WITHIN_MINUTES)
WAITING = StateSpec("waiting", key={"ad": "text"}, value="jsonb")
FAR = {"ad": "last", "time": minute(10_000), "left": "last", "right": None}

numbers = count()


def tuple_of(ad, at, side):
    payload = f"{side}{next(numbers)}"
    sides = {"left": None, "right": None} | {side: payload}
    return {"ad": ad, "time": minute(at), **sides}


sides = st.builds(tuple_of, st.sampled_from(["x", "y"]), st.integers(0, 150), st.sampled_from(["left", "right"]))


def shown(ad, at):
    return {"ad": ad, "time": minute(at), "left": f"shown {at}", "right": None}


def clicked(ad, at):
    return {"ad": ad, "time": minute(at), "left": None, "right": f"clicked {at}"}


def plainly(rows, alone):
    """The join by comparing every left with every right tuple."""
    lefts = [row for row in rows if row["left"]]
    rights = [row for row in rows if row["right"]]
    pairs = [
        (left["left"], right["right"])
        for left in lefts
        for right in rights
        if left["ad"] == right["ad"] and left["time"] <= right["time"] <= left["time"] + WITHIN
    ]
    paired = {payload for pair in pairs for payload in pair}
    alone_tuples = [(left["left"], None) for left in lefts if left["left"] not in paired and "left" in alone]
    alone_tuples += [(None, right["right"]) for right in rights if right["right"] not in paired and "right" in alone]
    return Counter(pairs + alone_tuples)


def joining(how="left"):
    return Batches(WAITING, Join(("ad",), WITHIN, ALONE[how]), "time", DELAY)


@given(arriving(sides, lambda row: (row["time"] - minute(0)).seconds // 60).flatmap(batched), st.sampled_from([*ALONE]))
def test_every_pair_and_every_tuple_without_a_partner_is_emitted_once_also_after_failures(drawn, how):
    batches = joining(how)

    run_all(batches, drawn, FAR)

    assert Counter(batches.all_emitted()) == plainly([row for rows, _ in drawn for row in rows], ALONE[how])
    assert set(batches.values()) == {"last"}


def test_a_pair_is_emitted_in_the_batch_of_its_second_tuple():
    batches = joining()

    nothing = batches.run([clicked("x", 5)])
    click_first = batches.run([shown("x", 0)])
    again = batches.run([clicked("x", 7)])

    assert nothing == []
    assert click_first == [("shown 0", "clicked 5")]
    assert again == [("shown 0", "clicked 7")]


def test_a_tuple_without_a_partner_is_emitted_once_when_other_keys_move_the_watermark():
    batches = joining()
    batches.run([shown("x", 0)])

    in_time_still = batches.run([shown("y", 70)])
    alone = batches.run([shown("y", 71)])
    after = batches.run([shown("y", 90)])

    assert (in_time_still, alone, after) == ([], [("shown 0", None)], [])
    assert set(batches.values()) == {"y"}


def test_each_tuple_is_removed_at_its_own_time_while_others_of_its_key_wait():
    batches = joining()
    batches.run([shown("x", 0), shown("x", 50)])

    first = batches.run([shown("y", 71)])
    second = batches.run([shown("y", 121)])

    assert (first, second) == ([("shown 0", None)], [("shown 50", None)])


def test_a_click_that_comes_after_its_impression_was_removed_is_alone_too():
    batches = joining("full")
    batches.run([shown("x", 0)])
    batches.run([shown("y", 80)])

    late = batches.run([clicked("x", 30)])

    assert batches.emitted[1] == [("shown 0", None)]
    assert late == [(None, "clicked 30")]


def test_a_click_waits_no_longer_than_its_impression_may_come_late():
    batches = joining()

    batches.run([clicked("x", 0), shown("y", 10)])
    waiting = set(batches.values())
    batches.run([shown("y", 11)])

    assert waiting == {"x", "y"}
    assert set(batches.values()) == {"y"}


def test_an_invalid_join_is_refused_where_it_is_declared(tmp_path):
    stream = Stream.read(JsonFiles(tmp_path, schema="ad string, at timestamp"))
    with pytest.raises(PipelineError, match="join by ad: how is 'outer', not one of inner, left, right, full"):
        join(stream, stream, WAITING, times=("at", "at"), within=WITHIN, how="outer")
    for spec in (
        StateSpec("waiting", key={"ad": "text"}, measures={"n": Count()}),
        StateSpec("waiting", key={"ad": "text"}, value="jsonb", kind="transactional"),
        StateSpec("waiting", key={"ad": "text"}, value="jsonb", ttl=WITHIN),
    ):
        with pytest.raises(PipelineError, match="state 'waiting': cannot hold tuples; declare it opaque, with"):
            join(stream, stream, spec, times=("at", "at"), within=WITHIN)

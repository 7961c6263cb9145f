"""Sessions: those of the sorted events, in any order, batches and attempts."""

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.operators.event_strategies import DELAY, arriving, batched, run_all
from tests.pipelines.operators.updater_harness import Batches, minute
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.operators.sessions import Session, Sessions, closed_sessions, merged
from tidegauge.state_backends import StateSpec

GAP_MINUTES = 30
GAP = timedelta(minutes=GAP_MINUTES)
OPEN = StateSpec("open", key={"user": "text"}, value="jsonb")


def run_of_one(user, at):
    """An event as Spark hands it to the updater, in no company; `at` moves the watermark."""
    return {"user": user, "at": at, "started": at, "ended": at, "events": 1}


def session(first, last, events=1, late=0):
    return Session(minute(first), minute(last), events, late)


FAR = run_of_one("last", minute(10_000))

minutes = st.integers(0, 200)
actions = st.builds(lambda user, at: run_of_one(user, minute(at)), st.sampled_from(["ann", "bob"]), minutes)


def plainly(minutes):
    """The sessions of events by one pass over them, sorted: first, last, how many."""
    sessions = []
    for at in sorted(minutes):
        if sessions and at - sessions[-1][1] < GAP_MINUTES:
            sessions[-1] = (sessions[-1][0], at, sessions[-1][2] + 1)
        else:
            sessions.append((at, at, 1))
    return sessions


def of(events):
    return [(each.start, each.end, each.events) for each in events]


@given(st.lists(minutes).flatmap(batched))
def test_merging_in_any_order_and_pieces_gives_the_sessions_of_the_sorted_events(pieces):
    sessions = []
    for piece, _ in pieces:
        sessions = merged([*sessions, *(session(at, at) for at in piece)], GAP)

    expected = plainly([at for piece, _ in pieces for at in piece])
    assert of(sessions) == [(minute(start), minute(end), events) for start, end, events in expected]


def test_an_event_between_two_sessions_makes_them_one():
    two = merged([session(at, at) for at in (0, 40)], GAP)

    one = merged([*two, session(20, 20, late=1)], GAP)

    assert len(two) == 2
    assert one == [session(0, 40, events=3, late=1)]


def test_a_pause_as_long_as_the_gap_ends_a_session():
    assert len(merged([session(0, 0), session(30, 30)], GAP)) == 2


@given(arriving(actions, lambda event: (event["at"] - minute(0)).seconds // 60).flatmap(batched))
def test_sessions_close_once_and_as_those_of_the_sorted_events_also_after_failures(drawn):
    batches = Batches(OPEN, Sessions(("user",), GAP), "at", DELAY)

    run_all(batches, drawn, FAR)

    events = [event for rows, _ in drawn for event in rows]
    expected = []
    for user in ("ann", "bob"):
        mine = [(event["at"] - minute(0)).total_seconds() / 60 for event in events if event["user"] == user]
        expected += [(user, minute(start), minute(end), number, 0) for start, end, number in plainly(mine)]
    assert sorted(batches.all_emitted()) == sorted(expected)
    assert set(batches.values()) == {"last"}


@given(st.lists(actions, max_size=25).flatmap(batched))
def test_late_events_count_once_and_sessions_without_late_ones_do_not_overlap(drawn):
    batches = Batches(OPEN, Sessions(("user",), GAP), "at", DELAY)

    run_all(batches, drawn, FAR)

    closed = batches.all_emitted()
    assert sum(events for *_, events, _ in closed) == sum(len(rows) for rows, _ in drawn)
    exact = sorted(session for session in closed if session[-1] == 0)
    for one, other in pairwise(exact):
        assert one[0] != other[0] or other[1] - one[2] >= GAP


@given(arriving(actions, lambda event: (event["at"] - minute(0)).seconds // 60).flatmap(batched))
def test_sessions_with_allowed_lateness_are_exact_for_events_that_come_so_late(drawn):
    # Every event that comes less than DELAY after a later one is behind this watermark, and allowed.
    batches = Batches(OPEN, Sessions(("user",), GAP, DELAY), "at", timedelta())

    run_all(batches, drawn, FAR)

    expected = []
    for user in ("ann", "bob"):
        mine = [event["at"] for rows, _ in drawn for event in rows if event["user"] == user]
        expected += [
            (user, minute(start), minute(end), number)
            for start, end, number in plainly([(at - minute(0)).total_seconds() / 60 for at in mine])
        ]
    assert sorted(each[:4] for each in batches.all_emitted()) == sorted(expected)


def test_a_late_event_that_is_allowed_makes_one_session_of_two():
    batches = Batches(OPEN, Sessions(("user",), GAP, timedelta(hours=1)), "at", timedelta())
    batches.run([run_of_one("ann", minute(0)), run_of_one("ann", minute(40))])

    batches.run([run_of_one("ann", minute(20))], failed=[run_of_one("ann", minute(25))])

    assert batches.run([FAR]) == [("ann", minute(0), minute(40), 3, 1)]


def test_a_closed_session_does_not_change_and_a_late_event_starts_its_own():
    batches = Batches(OPEN, Sessions(("user",), GAP), "at", DELAY)
    batches.run([run_of_one("ann", minute(0))])
    closed = batches.run([run_of_one("bob", minute(100))])

    late = batches.run([run_of_one("ann", minute(5))])

    assert closed == [("ann", minute(0), minute(0), 1, 0)]
    assert late == [("ann", minute(5), minute(5), 1, 1)]


def test_the_first_of_several_open_sessions_closes_at_its_own_time():
    batches = Batches(OPEN, Sessions(("user",), GAP), "at", DELAY)
    batches.run([run_of_one("ann", minute(0)), run_of_one("ann", minute(35))])

    closed = batches.run([run_of_one("bob", minute(40))])

    assert closed == [("ann", minute(0), minute(0), 1, 0)]


def test_an_open_session_can_be_looked_up():
    batches = Batches(OPEN, Sessions(("user",), GAP), "at", DELAY)

    batches.run([run_of_one("ann", minute(5)), run_of_one("ann", minute(0))])

    assert batches.values()["ann"] == {
        "sessions": [
            {"start": "2024-01-01T00:00:00.000000+00:00", "end": "2024-01-01T00:05:00.000000+00:00"}
            | {"events": 2, "late": 0}
        ],
        "due": "2024-01-01T00:35:00.000000+00:00",
    }


def test_a_session_at_the_end_of_the_calendar_does_not_stop_the_pipeline():
    batches = Batches(OPEN, Sessions(("user",), GAP), "at", DELAY)
    end = minute(0).replace(year=9999, month=12, day=31, hour=23, minute=59)

    batches.run([run_of_one("ann", end)])

    assert batches.values()["ann"]["due"] == "9999-12-31T23:59:59.999999+00:00"


def test_a_gap_of_nothing_is_refused():
    with pytest.raises(PipelineError, match="state 'open': the gap of its sessions is 0:00:00; give one above 0"):
        closed_sessions(None, OPEN, "at", timedelta())

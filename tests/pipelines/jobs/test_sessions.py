"""sessions: open ones can be looked up, closed ones are those of the sorted events, and no event counts twice."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from pipelines.jobs.sessions import GAP, sessions

pytestmark = pytest.mark.spark

START = datetime(2024, 3, 10, 9, tzinfo=UTC)


def minute(number):
    return START + timedelta(minutes=number)


def action(user, at):
    return {"user": user, "at": minute(at).isoformat()}


def plainly(actions):
    """Sessions by one pass over each user's sorted events: (user, start) to end and number of events."""
    found = {}
    last = {}
    for line in sorted(actions, key=lambda line: (line["user"], line["at"])):
        user, at = line["user"], datetime.fromisoformat(line["at"])
        start, end = last.get(user, (None, None))
        if end is None or at - end >= GAP:
            start = at
        last[user] = (start, at)
        found[user, start] = (at, found.get((user, start), (None, 0))[1] + 1)
    return found


def closed(workspace):
    rows = workspace.rows('SELECT "user", started, ended, events, late FROM tidemark_live.closed_sessions')
    return {(user, started): (ended, events, late) for user, started, ended, events, late in rows}


def opaque(folder):
    pipeline = sessions(folder, 1)
    pipeline.sources[0].spout = "opaque"
    return pipeline


def test_out_of_order_in_pieces_and_with_a_crash_sessions_are_those_of_the_sorted_events(workspace):
    chance = random.Random(7)
    actions = [action(chance.choice("abcd"), chance.randrange(400)) for _ in range(120)]
    # Each comes up to nine minutes after its time.
    arriving = sorted(
        actions, key=lambda line: datetime.fromisoformat(line["at"]) + timedelta(minutes=chance.random() * 9)
    )
    for number in range(3):
        workspace.land(f"{number}.json", *arriving[number * 40 : number * 40 + 40])
    workspace.run(opaque(workspace.input))
    workspace.forget_last_commit()
    workspace.land("9.json", action("last", 1000))

    batches = workspace.run(opaque(workspace.input))

    expected = {key: (end, events, 0) for key, (end, events) in plainly(actions).items()}
    assert batches == [(3, 2), (4, 1)]
    assert closed(workspace) == expected
    assert set(workspace.values("open_sessions")) == {"last"}
    assert workspace.rows("SELECT sum(late) FROM tidemark.batch") == [(0,)]


def test_an_event_joins_two_open_sessions_and_one_that_is_late_is_counted_as_such(workspace):
    workspace.land("1.json", action("ann", 0), action("ann", 35), action("bob", 0))
    workspace.run(sessions(workspace.input, 1))
    two = workspace.values("open_sessions")["ann"]["sessions"]
    workspace.land("2.json", action("ann", 28), {"user": "bob", "at": "+12345-01-01T00:00:00Z"})
    workspace.run(sessions(workspace.input, 1))
    one = workspace.values("open_sessions")["ann"]["sessions"]
    workspace.land("3.json", action("bob", 80))
    workspace.land("4.json", action("ann", 36))

    workspace.run(sessions(workspace.input, 1))

    assert [each["events"] for each in two] == [1, 1]
    assert [(each["start"][11:16], each["end"][11:16], each["events"]) for each in one] == [("09:00", "09:35", 3)]
    assert closed(workspace) == {
        ("ann", minute(0)): (minute(35), 3, 0),
        ("bob", minute(0)): (minute(0), 1, 0),
        ("ann", minute(36)): (minute(36), 1, 1),
    }

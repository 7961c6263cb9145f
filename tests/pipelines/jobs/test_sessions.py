"""sessions: open ones can be looked up, closed ones are those of the sorted events, and no event counts twice."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidegauge.pipelines.jobs.sessions import GAP, sessions
from tidegauge.testing import Crash

pytestmark = pytest.mark.spark

# So that events are on both sides of 1970, from which the slots of runs are counted.
START = datetime(1969, 12, 31, 21, tzinfo=UTC)


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


def test_out_of_order_in_pieces_and_with_a_crash_sessions_are_those_of_the_sorted_events(tidegauge_run):
    chance = random.Random(7)
    actions = [action(chance.choice("abcd"), chance.randrange(400)) for _ in range(120)]
    # Each comes up to nine minutes after its time.
    arriving = sorted(
        actions, key=lambda line: datetime.fromisoformat(line["at"]) + timedelta(minutes=chance.random() * 9)
    )
    batches = [arriving[first : first + 40] for first in (0, 40, 80)]
    expected = {key: closed(end, events) for key, (end, events) in plainly(actions).items()}

    result = tidegauge_run(
        sessions(Path("actions")),
        [*batches, Crash(), [action("last", 1000)]],
        expected={"closed_sessions": expected},
    )

    assert set(result["open_sessions"]) == {("last",)}
    assert [(each.attempts, each.late) for each in result.batches] == [(1, 0), (1, 0), (2, 0), (1, 0)]


def test_an_event_joins_two_open_sessions_and_one_that_is_late_is_counted_as_such(tidegauge_run):
    begun = [[action("ann", 0), action("ann", 35), action("bob", 0)]]
    joined = [*begun, [action("ann", 28), {"user": "bob", "at": "+12345-01-01T00:00:00Z"}]]

    two = tidegauge_run(sessions(Path("actions")), begun)["open_sessions"]["ann"]["sessions"]
    one = tidegauge_run(sessions(Path("actions")), joined)["open_sessions"]["ann"]["sessions"]
    result = tidegauge_run(sessions(Path("actions")), [*joined, [action("bob", 80)], [action("ann", 36)]])

    assert [each["events"] for each in two] == [1, 1]
    assert [(each["start"][11:16], each["end"][11:16], each["events"]) for each in one] == [("21:00", "21:35", 3)]
    assert result["closed_sessions"] == {
        ("ann", minute(0)): closed(minute(35), 3),
        ("bob", minute(0)): closed(minute(0), 1),
        ("ann", minute(36)): closed(minute(36), 1, 1),
    }


def closed(ended, events, late=0):
    return {"ended": ended, "events": events, "late": late}

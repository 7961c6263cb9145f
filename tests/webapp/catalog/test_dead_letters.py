"""Groups of dead letters: which reasons are one group, what is counted of each, and how much is looked at."""

import pytest

from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.webapp.catalog import dead_letters
from tidegauge.webapp.catalog.dead_letters import SOURCE, LetterFilter, letter_groups


def grouped(flights, *reasons: str) -> list[tuple[str, int]]:
    flights.commit({("JFK", "C00"): 1}, [DeadLetter("/in/a.jsonl", "{", reason) for reason in reasons])
    return [(group.reason, group.letters) for group in letter_groups("flights", LetterFilter()).groups]


@pytest.mark.parametrize(
    ("pattern", "reasons"),
    [
        ("n: expected int, got …", ['n: expected int, got "x"', "n: expected int, got it's, \nand more"]),
        ("not JSON: Expecting value at column …", ["not JSON: Expecting value at column 1"] * 2),
        ("… fields, expected …", ["3 fields, expected 4", "12 fields, expected 4"]),
        ("key (…, …) is out of range", ["key ('a', 1) is out of range", "key ('b', -2.5e3) is out of range"]),
        ("a quote isn't closed, it doesn't end", ["a quote isn't closed, it doesn't end"]),
        ("late: … … is behind v2_x", ["late: 2013-01-01 10:00:00+00:00 is behind v2_x"]),
        ("schema … is unknown", ['schema "order" is unknown', 'schema "customer" is unknown']),
    ],
)
def test_what_differs_from_letter_to_letter_does_not_part_groups(flights, pattern, reasons):
    assert grouped(flights, *reasons) == [(pattern, len(reasons))]


def test_the_largest_group_is_first_and_shares_are_of_all(flights):
    assert grouped(flights, "a", "b", "b", "c") == [("b", 2), ("a", 1), ("c", 1)]
    found = letter_groups("flights", LetterFilter(state=SOURCE))
    assert [group.share for group in found.groups] == [0.5, 0.25, 0.25]
    assert (found.letters, found.is_whole) == (4, True)


def test_only_the_newest_letters_are_looked_at_and_the_largest_groups_returned(flights, monkeypatch):
    monkeypatch.setattr(dead_letters, "GROUPED_LETTERS", 4)
    monkeypatch.setattr(dead_letters, "MOST_GROUPS", 2)

    assert grouped(flights, "old", "a", "b", "b", "c") == [("b", 2), ("a", 1)]
    found = letter_groups("flights", LetterFilter())
    assert (found.letters, found.is_whole) == (4, False)
    assert found.groups[0].share == 0.5


def test_those_of_an_open_batch_are_not_there(flights):
    flights.open({("JFK", "C00"): 1}, [DeadLetter("/in/a.jsonl", "{", "not JSON")])

    assert letter_groups("flights", LetterFilter()).groups == []


def test_a_group_counts_what_can_be_replayed_what_waits_and_what_was_replayed(flights):
    letters = [DeadLetter("/in/a.jsonl", "{", "not JSON", record={"n": n}) for n in range(4)]
    flights.commit({("JFK", "C00"): 1}, [*letters, DeadLetter("/in/a.jsonl", "{", "not JSON")])
    flights.commit({("JFK", "C00"): 1})
    mark = "UPDATE tidegauge.dead_letter SET replay_at = now(), replay_txid = %s WHERE record ->> 'n' = %s"
    for txid, n in ((2, "0"), (None, "1"), (3, "2")):
        flights.conn.execute(mark, [txid, n])

    [group] = letter_groups("flights", LetterFilter()).groups

    assert (group.letters, group.replayable, group.waiting, group.replayed) == (5, 1, 2, 1)


def test_the_trend_counts_each_letter_in_the_step_of_its_time(flights):
    flights.commit({("JFK", "C00"): 1}, [DeadLetter("/in/a.jsonl", "{", "not JSON", line) for line in range(3)])
    flights.conn.execute("UPDATE tidegauge.dead_letter SET at = now() - interval '2 days' WHERE line_number = 0")
    flights.conn.execute("UPDATE tidegauge.dead_letter SET at = now() - interval '25 hours' WHERE line_number = 1")

    [group] = letter_groups("flights", LetterFilter()).groups

    assert [(step, letters) for step, letters in enumerate(group.trend) if letters] == [(0, 1), (11, 1), (23, 1)]

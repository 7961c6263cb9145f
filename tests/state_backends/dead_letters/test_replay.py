"""Marks on dead letters: which are chosen, and which batch takes them."""

from datetime import timedelta

import pytest

from tests.docs.blocks import blocks
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.dead_letters import replay as dead_letter_replay
from tidegauge.state_backends.dead_letters.letters import (
    MAX_RECORD_BYTES,
    DeadLetter,
    record_bytes,
    record_value,
    write_dead_letters,
)
from tidegauge.state_backends.dead_letters.replay import Choice, are_waiting, find, put_back, request, take
from tidegauge.state_backends.ledger.batch import lock_fence

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})


@pytest.fixture
def feed(new_feed, fresh):
    return new_feed(fresh(VIEWS))


def write(conn, batch, *letters, state="", part=0):
    with conn.transaction():
        write_dead_letters(conn, batch, letters, state=state, part=part)


def letter(line, reason="no JSON"):
    return DeadLetter("a.json", line, reason, record={"line": line})


def taken(conn, batch):
    with conn.transaction():
        lock_fence(conn, batch)
        return [raw.record["line"] for raw in take(conn, batch)]


@pytest.fixture
def first(conn, feed):
    """A committed batch with three letters of the source, one of a state, and one without a record."""
    batch = feed.begin(0)
    write(conn, batch, letter("a"), letter("b", "100% wrong"), DeadLetter("a.json", "c", "lost"))
    write(conn, batch, letter("d"), part=1)
    write(conn, batch, DeadLetter("state views", "{}", "key is null"), state="views")
    feed.ledger.commit(batch)
    return batch


def test_letters_are_found_by_the_whole_reason_without_what_differs(conn, first):
    def letters(pattern):
        return find(conn, first.pipeline, Choice(pattern=pattern)).letters

    assert [letters(each) for each in ("…% wrong", "… wrong", "no JSON", "JSON", "no …")] == [1, 0, 2, 0, 0]


def test_letters_of_the_source_with_a_record_are_found_by_reason_time_and_number(conn, first):
    name = first.pipeline
    [(at, number)] = conn.execute(
        "SELECT at, id FROM tidegauge.dead_letter WHERE pipeline = %s AND line = 'a'", [name]
    ).fetchall()

    def letters(**choice):
        return find(conn, name, Choice(**choice)).letters

    assert find(conn, name, Choice()) == dead_letter_replay.Found(3, 1, 0)
    assert (letters(reason="% wrong"), letters(reason="%")) == (1, 1)
    assert (letters(since=at), letters(since=at + timedelta(hours=1))) == (3, 0)
    assert (letters(ids=[number]), letters(ids=[])) == (1, 0)


def test_letters_of_an_open_batch_cannot_be_marked(conn, feed, first):
    write(conn, feed.begin(1), letter("e"))

    assert request(conn, first.pipeline, Choice(reason="no JSON"), "ann") == 2


def test_a_batch_takes_what_is_marked_and_later_attempts_the_same(conn, feed, first):
    request(conn, first.pipeline, Choice(reason="wrong"), "ann")
    batch = feed.begin(1)
    once = taken(conn, batch)
    request(conn, first.pipeline, Choice(), "bob")
    retry = feed.begin(1)

    assert once == taken(conn, retry) == ["b"]
    assert are_waiting(conn, first.pipeline)
    feed.ledger.commit(retry)
    assert taken(conn, feed.begin(2)) == ["a", "d"]
    assert not are_waiting(conn, first.pipeline)


def test_what_fails_again_can_be_marked_again_and_the_rest_cannot(conn, feed, first):
    request(conn, first.pipeline, Choice(), "ann")
    batch = feed.begin(1)
    with conn.transaction():
        lock_fence(conn, batch)
        failed = [raw.id for raw in take(conn, batch) if raw.record["line"] == "b"]
        put_back(conn, [(number, "still\0wrong") for number in failed])
    feed.ledger.commit(batch)

    assert request(conn, first.pipeline, Choice(), "ann") == 1
    assert request(conn, first.pipeline, Choice(reason="still\N{REPLACEMENT CHARACTER}wrong"), "ann") == 1


def test_a_batch_takes_a_bounded_number_and_bounded_bytes(conn, feed, first, monkeypatch):
    request(conn, first.pipeline, Choice(), "ann")
    monkeypatch.setattr(dead_letter_replay, "MAX_LETTERS", 2)
    two = feed.begin(1)
    assert taken(conn, two) == ["a", "b"]
    feed.ledger.commit(two)
    monkeypatch.setattr(dead_letter_replay, "MAX_BYTES", 1)

    assert taken(conn, feed.begin(2)) == ["d"]  # one is taken whatever its size


@pytest.mark.parametrize("raw", [b"text", b"", b"\xff\xfe", b"nul \0", "\N{SNOWMAN}".encode(), None])
def test_a_record_gives_back_the_very_bytes(conn, feed, raw):
    batch = feed.begin(0)
    write(conn, batch, DeadLetter("t/0", "", "bad", record={"value": record_value(raw)}))

    [(stored,)] = conn.execute(
        "SELECT record FROM tidegauge.dead_letter WHERE pipeline = %s", [batch.pipeline]
    ).fetchall()

    assert record_bytes(stored["value"]) == raw


def test_of_a_record_that_is_too_large_none_is_kept(conn, feed):
    batch = feed.begin(0)
    write(conn, batch, DeadLetter("t/0", "", "bad", record={"value": "x" * MAX_RECORD_BYTES}))

    assert conn.execute(
        "SELECT record FROM tidegauge.dead_letter WHERE pipeline = %s", [batch.pipeline]
    ).fetchall() == [(None,)]


def test_the_queries_of_the_documentation_run(conn, first):
    look, delete = [block.text for block in blocks("sql") if block.page == "dead_letters.md"]
    everything = "SELECT count(*) FROM tidegauge.dead_letter WHERE pipeline = %s"
    conn.execute(
        "UPDATE tidegauge.dead_letter SET replay_txid = 1, replay_at = now() - interval '31 days' "
        "WHERE pipeline = %s AND line = 'a'",
        [first.pipeline],
    )

    assert len(conn.execute(look.replace("'orders'", f"'{first.pipeline}'")).fetchall()) == 5
    conn.execute(delete)

    assert conn.execute(everything, [first.pipeline]).fetchone() == (4,)

import threading

import pytest

from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.dead_letters.letters import (
    MAX_LINE_CHARACTERS,
    DeadLetter,
    delete_dead_letters,
    write_dead_letters,
)

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})


def letters(*lines):
    return [DeadLetter("a.json", line, "no JSON", number) for number, line in enumerate(lines, start=1)]


@pytest.fixture
def feed(new_feed, fresh):
    return new_feed(fresh(VIEWS))


@pytest.fixture
def batch(feed):
    return feed.begin(0)


def stored(conn, batch):
    return conn.execute(
        "SELECT state, part, source, line_number, line, reason FROM tidegauge.dead_letter WHERE pipeline = %s "
        "AND txid = %s ORDER BY id",
        [batch.pipeline, batch.txid],
    ).fetchall()


def test_letters_are_kept_with_their_place_and_reason(conn, batch):
    with conn.transaction():
        count = write_dead_letters(
            conn, batch, [*letters("{"), DeadLetter("state views", "{}", "key is null")], state="s", part=3
        )

    assert count == 2
    assert stored(conn, batch) == [
        ("s", 3, "a.json", 1, "{", "no JSON"),
        ("s", 3, "state views", None, "{}", "key is null"),
    ]


def test_a_task_run_again_replaces_its_own_letters_only(conn, batch):
    for part, lines in [(0, "ab"), (1, "c"), (0, "d")]:
        with conn.transaction():
            write_dead_letters(conn, batch, letters(*lines), part=part)

    assert [(part, line) for _, part, _, _, line, _ in stored(conn, batch)] == [(1, "c"), (0, "d")]


def test_two_runs_of_one_task_at_once_leave_its_letters_once(conn, batch, connect):
    one, two = connect(), connect()

    def run():
        with two.transaction():
            write_dead_letters(two, batch, letters("a", "b"))

    thread = threading.Thread(target=run)
    with one.transaction():
        write_dead_letters(one, batch, letters("a", "b"))
        thread.start()
        thread.join(0.2)
    thread.join()

    assert [row[4] for row in stored(conn, batch)] == ["a", "b"]


def test_two_tasks_do_not_wait_for_each_other(batch, connect):
    one, two = connect(), connect()
    two.execute("SET lock_timeout = '2s'")

    with one.transaction(), two.transaction():
        write_dead_letters(one, batch, letters("a"), part=0)

        assert write_dead_letters(two, batch, letters("a"), part=1) == 1


def test_a_retry_deletes_the_letters_of_its_batch_only(conn, feed, batch):
    write_dead_letters(conn, batch, letters("a"))
    feed.ledger.commit(batch)
    later = feed.begin(1)
    write_dead_letters(conn, later, letters("b", "c"))

    assert delete_dead_letters(conn, feed.ledger.begin(1)) == 2
    assert (len(stored(conn, batch)), stored(conn, later)) == (1, [])


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\t\\N\n\\.", "é" * (MAX_LINE_CHARACTERS + 5), ""])
def test_any_text_can_be_stored(conn, batch, text):
    write_dead_letters(conn, batch, [DeadLetter(text, text, text)])

    ((_, _, source, _, line, reason),) = stored(conn, batch)
    assert source == line == reason
    assert len(line) == min(len(text), MAX_LINE_CHARACTERS)

import threading
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql

from tests.state_backends.feed import let_time_pass, views
from tidegauge.state_backends import Count, StateSpec, maintenance
from tidegauge.state_backends.maintenance import clock, expire
from tidegauge.state_backends.spec.table import StateTable

HOUR = timedelta(hours=1)
VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, ttl=HOUR)


def keys(feed):
    return [key[0] for key, _ in feed.backing(feed.specs[0]).scan()]


def wait(feed, minutes):
    let_time_pass(feed.conn, feed.specs, feed.pipeline, timedelta(minutes=minutes))


def removed(steps):
    return max((step.removed for step in steps), default=0)


@pytest.fixture
def feed(new_feed, fresh):
    return new_feed(fresh(VIEWS))


@pytest.mark.parametrize("change", [{}, {"kind": "transactional"}, {"partitions": 4}])
def test_expired_rows_are_deleted_and_others_stay(new_feed, fresh, conn, change):
    feed = new_feed(fresh(replace(VIEWS, **change)))
    feed.run(views(("old", 1), ("kept", 1)))
    wait(feed, 40)
    feed.run(views(("kept", 1), ("new", 1)))
    wait(feed, 30)

    assert removed(expire(conn, feed.specs[0])) == 1
    assert keys(feed) == ["kept", "new"]
    assert feed.read(feed.specs[0], ("old",), ("kept",)) == ["missing", {"n": 2}]


def test_rows_without_a_txid_are_deleted_too(new_feed, fresh, conn):
    feed = new_feed(fresh(replace(VIEWS, kind="non_transactional")))
    feed.run(views(("old", 1)))
    wait(feed, 61)

    assert removed(expire(conn, feed.specs[0])) == 1


def test_without_a_ttl_nothing_is_deleted(new_feed, fresh, conn):
    feed = new_feed(fresh(replace(VIEWS, ttl=None)))
    feed.run(views(("a", 1)))
    wait(feed, 60 * 24 * 10_000)
    feed.run([])

    assert removed(expire(conn, feed.specs[0])) == 0
    assert keys(feed) == ["a"]


def test_reverting_the_committed_batch_is_exact_after_its_expired_rows_are_deleted(feed, conn):
    feed.run(views(("a", 10)))
    feed.run(views(("a", 1), ("b", 1)))
    wait(feed, 61)

    assert removed(expire(conn, feed.specs[0])) == 2

    feed.run(views(("b", 2)), batch_id=1)
    assert feed.read(feed.specs[0], ("a",), ("b",)) == ["missing", {"n": 2}]


def test_while_a_batch_is_open_its_time_decides_and_not_now(feed, conn):
    feed.run(views(("a", 10)))
    feed.run([])
    wait(feed, 59)
    feed.begin(2)
    wait(feed, 10)

    assert removed(expire(conn, feed.specs[0])) == 0  # the batch may still build on it

    batch = feed.begin(2)  # tried again, with the time it had
    feed.apply(batch, feed.specs[0], views(("a", 1)))
    feed.ledger.commit(batch)
    assert feed.read(feed.specs[0], ("a",)) == [{"n": 11}]


def test_a_row_that_an_open_batch_has_updated_stays_and_can_be_reverted(feed, conn):
    feed.run(views(("a", 10), ("b", 10)))
    feed.run([])
    wait(feed, 61)
    feed.apply(feed.begin(2), feed.specs[0], views(("a", 1)))

    assert removed(expire(conn, feed.specs[0])) == 1  # b, which the merge would count as absent

    feed.run(views(("b", 1)), batch_id=2)
    assert feed.read(feed.specs[0], ("a",), ("b",)) == ["expired", {"n": 1}]


def test_a_reverted_commit_counts_what_has_expired_since_and_was_not_deleted(feed):
    feed.run(views(("a", 10), ("b", 10)))
    wait(feed, 30)
    feed.run(views(("a", 1)))
    wait(feed, 31)

    feed.run(views(("a", 2), ("b", 2)), batch_id=1)

    wait(feed, -31)
    assert feed.read(feed.specs[0], ("a",), ("b",)) == [{"n": 12}, {"n": 12}]


def test_a_commit_reverted_after_an_expiry_run_is_exact(feed, conn):
    feed.run(views(("a", 10), ("b", 10)))
    wait(feed, 30)
    feed.run(views(("a", 1)))
    wait(feed, 31)
    assert removed(expire(conn, feed.specs[0])) == 1  # b; a was counted 31 minutes ago

    feed.run(views(("a", 2), ("b", 2)), batch_id=1)

    # The batch that comes again has the time of the expiry, by which both have expired before it.
    assert feed.read(feed.specs[0], ("a",), ("b",)) == [{"n": 2}, {"n": 2}]


class TestBesideWriters:
    @pytest.fixture
    def expired(self, feed):
        """Two rows that have expired, and an open batch."""
        feed.run(views(("a", 10), ("b", 10)))
        feed.run([])
        wait(feed, 61)
        return feed, feed.begin(2)

    def test_a_row_that_a_task_is_updating_is_skipped_without_waiting(self, expired, conn, connect):
        feed, batch = expired
        task = connect()
        conn.execute("SET lock_timeout = '2s'")

        with task.transaction():
            feed.apply(batch, feed.specs[0], views(("a", 1)), task)
            assert removed(expire(conn, feed.specs[0])) == 1
        feed.ledger.commit(batch)

        assert feed.read(feed.specs[0], ("a",), ("b",)) == [{"n": 1}, "missing"]

    def test_a_row_that_was_updated_between_select_and_lock_stays(self, expired, connect):
        """The page is selected under one snapshot; what counts is the row once its lock is held."""
        feed, batch = expired
        gate, walker, task = connect(), connect(), connect()
        gate.execute("SELECT pg_advisory_lock(1)")
        # A function in the condition delays the statement after it has taken its snapshot.
        gate.execute(
            "CREATE OR REPLACE FUNCTION tidegauge.pause() RETURNS boolean LANGUAGE plpgsql VOLATILE AS "
            "'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN true; END'"
        )
        walk = maintenance.Walk(
            "expired rows",
            StateTable(feed.specs[0]).name,
            ["page"],
            sql.SQL("t.txid < 2 AND tidegauge.pause()"),
        )
        steps = []
        thread = threading.Thread(target=lambda: steps.extend(walk.run(walker)))
        thread.start()
        until_waiting(gate, walker)
        feed.apply(batch, feed.specs[0], views(("a", 1), ("b", 1)), task)
        gate.execute("SELECT pg_advisory_unlock(1)")
        thread.join()
        feed.ledger.commit(batch)

        assert removed(steps) == 0
        assert [row.value for _, row in feed.backing(feed.specs[0]).scan()] == [{"n": 1}, {"n": 1}]

    def test_a_page_locks_the_ledger_so_that_no_batch_begins_meanwhile(self, feed, connect):
        feed.run(views(("a", 1)))
        walker = connect()
        feed.conn.execute("SET lock_timeout = '100ms'")

        with walker.transaction():
            clock(walker, feed.specs[0].name)
            with pytest.raises(psycopg.errors.LockNotAvailable):
                feed.ledger.begin(1)

        assert feed.ledger.begin(1).txid == 2

    def test_continuous_expiry_changes_no_result(self, feed, connect):
        pages = [f"{n:03}" for n in range(300)]
        errors, spec = [], feed.specs[0]
        walker = connect()
        stop = threading.Event()

        def walk():
            try:
                while not stop.is_set():
                    list(expire(walker, spec))
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=walk)
        thread.start()
        try:
            for number in range(8):
                order = pages if number % 2 else pages[::-1]
                feed.run(views(*((page, 1) for page in order)))
                feed.run([])
                wait(feed, 61)
        finally:
            stop.set()
            thread.join()
        feed.run(views(*((page, 1) for page in pages)))

        assert errors == []
        assert {answer["n"] for answer in feed.read(spec, *((page,) for page in pages))} == {1}


def test_a_run_goes_page_by_page_and_may_stop_between_them(feed, conn, monkeypatch):
    monkeypatch.setattr(maintenance, "PAGE_ROWS", 3)
    feed.run(views(*((f"{n}", 1) for n in range(10))))
    feed.run([])
    wait(feed, 61)

    run = expire(conn, feed.specs[0])
    assert [(step.seen, step.removed) for step in (next(run), next(run))] == [(3, 3), (6, 6)]
    run.close()
    assert keys(feed) == ["6", "7", "8", "9"]

    assert [(step.seen, step.removed) for step in expire(conn, feed.specs[0])] == [(3, 3), (4, 4)]
    assert keys(feed) == []


def until_waiting(conn, other):
    for _ in range(1000):
        (yes,) = conn.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [other.info.backend_pid]).fetchone()
        if yes:
            return
        threading.Event().wait(0.01)
    raise TimeoutError

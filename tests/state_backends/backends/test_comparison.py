"""The ledger and Redis, compared in both directions: each may go back without the other, and nothing goes unseen."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.recovery_page import message_of
from tests.state_backends.feed import views
from tests.state_backends.store_feed import StoreFeed, copy_of, keys_of, put_back, read_both_ways
from tidegauge.state_backends import BatchLedger, Count, RedisBackingMap, StateSpec, state_reader
from tidegauge.state_backends.backends.redis.keys import KeyNames
from tidegauge.state_backends.errors import (
    FencedError,
    FindingError,
    LostBatchesError,
    LostWritesError,
    MovedOnError,
    StoreAheadError,
)
from tidegauge.state_backends.maintenance import expire
from tidegauge.state_backends.reader.scanning import ScanningReader

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, backend="redis")
KINDS = ["opaque", "transactional"]

HUNDRED = views(*((f"{number:02}", 1) for number in range(100)))


@pytest.fixture
def new_feed(conn, fresh, client):
    def new_feed(spec=VIEWS, **options):
        spec = fresh(spec)
        put_back(client, spec, {})
        return StoreFeed(conn, spec, **options)

    return new_feed


@pytest.fixture
def feed(new_feed):
    feed = new_feed()
    feed.run(views(("a", 1), ("b", 1)))
    return feed


class TestBehind:
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_batch_without_its_merges_is_not_published_though_it_was_admitted(self, new_feed, client, kind):
        feed = new_feed(replace(VIEWS, kind=kind), spout="transactional")
        feed.run(views(("a", 1)))
        batch, _ = feed.begin()
        promoted = copy_of(client, feed.spec)
        feed.commit(batch, feed.write(batch, views(("a", 1), ("b", 100))))
        put_back(client, feed.spec, promoted)

        with pytest.raises(LostBatchesError) as caught:
            feed.restart()

        assert str(caught.value) == (
            f"state {feed.spec.name!r}: batch 2 wrote 2 keys, and Redis has 0 of them: it has lost writes that it had "
            "acknowledged; restore its newest copy, or feed it again under another name, because it has no changelog "
            "to be rebuilt from"
        )
        assert feed.finding() == str(caught.value)

    def test_a_batch_of_which_some_merges_are_lost_is_not_published(self, feed, client):
        batch, _ = feed.begin()
        keys = feed.write(batch, views(("c", 1)))
        promoted = copy_of(client, feed.spec)
        feed.commit(batch, keys + feed.write(batch, views(("d", 1))))
        put_back(client, feed.spec, promoted)

        with pytest.raises(LostBatchesError, match="batch 2 wrote 2 keys, and Redis has 1 of them"):
            feed.restart()

    @pytest.mark.parametrize("kind", [*KINDS, "non_transactional"])
    def test_a_complete_batch_that_was_not_published_is_published(self, new_feed, kind):
        feed = new_feed(replace(VIEWS, kind=kind))
        feed.run(views(("a", 1)))
        batch, _ = feed.begin()
        feed.commit(batch, feed.write(batch, views(("a", 1), ("b", 1))))

        feed.restart()

        assert feed.read("a", "b") == [2, 1]
        assert feed.finding() == ""

    def test_a_batch_that_was_not_even_admitted_is_lost(self, feed, client):
        older = copy_of(client, feed.spec)
        feed.run(views(("a", 1)))
        put_back(client, feed.spec, older)

        with pytest.raises(LostBatchesError, match="batch 2 was committed, and Redis is at batch 1"):
            feed.restart()

    def test_merges_that_are_lost_before_the_commit_make_the_batch_come_again(self, feed, client):
        batch, session = feed.begin()
        promoted = copy_of(client, feed.spec)
        keys = feed.write(batch, views(("a", 1), ("c", 1)))
        put_back(client, feed.spec, promoted)
        keys += feed.write(batch, views(("d", 1)))

        with pytest.raises(LostWritesError) as caught:
            session.check(keys)
        feed.restart()
        feed.run(views(("a", 1), ("c", 1), ("d", 1)))

        assert caught.value.retryable
        assert str(caught.value) == (
            f"state {feed.spec.name!r}: the tasks of batch 2 wrote 3 keys, and Redis has 1 of them: it has lost writes "
            "that it had acknowledged; the batch is tried again"
        )
        assert re.search(message_of("A store lacks keys of a batch", 2), str(caught.value))
        assert feed.read("a", "b", "c", "d") == [2, 1, 1, 1]

    def test_merges_that_are_lost_after_the_commit_are_not_published(self, feed, client):
        batch, session = feed.begin()
        promoted = copy_of(client, feed.spec)
        keys = feed.write(batch, views(("a", 1)))
        session.check(keys)
        feed.commit(batch, keys)
        put_back(client, feed.spec, promoted)

        with pytest.raises(LostBatchesError, match="batch 2 wrote 1 keys, and Redis has 0 of them"):
            session.publish(keys)

        assert "batch 2 wrote 1 keys" in feed.finding()

    @pytest.mark.parametrize("kind", KINDS)
    def test_merges_that_are_lost_after_they_were_published_are_found_at_the_next_start(self, new_feed, client, kind):
        feed = new_feed(replace(VIEWS, kind=kind))
        feed.run(views(("a", 1), ("b", 1)))
        client.hincrby(KeyNames(feed.spec).guard, "keys:1", -1)

        with pytest.raises(LostBatchesError, match="batch 1 wrote 2 keys, and Redis has 1 of them"):
            feed.restart()

    def test_a_server_that_forgot_that_the_attempt_was_admitted_refuses_its_tasks(self, feed, client):
        older = copy_of(client, feed.spec)
        batch, _ = feed.begin()
        put_back(client, feed.spec, older)

        with pytest.raises(LostWritesError, match="the store has gone back to before this one began"):
            feed.write(batch, views(("a", 1)))

        feed.restart()
        feed.run(views(("a", 1)))
        assert feed.read("a") == [2]

    def test_keys_of_the_attempt_before_are_not_taken_for_those_of_the_retry(self, feed, client):
        copy, batch, session = self.retry_of_a_batch_with_one_key(feed, client)
        keys = feed.write(batch, views(("b", 7)))
        put_back(client, feed.spec, copy)

        with pytest.raises(LostWritesError) as caught:
            session.check(keys)
        feed.restart()
        feed.run(views(("b", 7)))

        assert re.search(message_of("Redis has lost an attempt", 2), str(caught.value))
        assert feed.read("a", "b") == [1, 8]

    def test_they_are_found_at_the_next_start_if_the_retry_was_committed_meanwhile(self, feed, client):
        copy, batch, session = self.retry_of_a_batch_with_one_key(feed, client)
        keys = feed.write(batch, views(("b", 7)))
        session.check(keys)
        feed.commit(batch, keys)
        put_back(client, feed.spec, copy)

        with pytest.raises(LostWritesError):
            session.publish(keys)
        with pytest.raises(StoreAheadError, match="batch 2 in Redis is of another attempt"):
            feed.restart()

    def retry_of_a_batch_with_one_key(self, feed, client):
        """Return a copy of Redis from between the admission of a retry and its revert, and the retry."""
        batch, _ = feed.begin()
        feed.write(batch, views(("a", 1)))
        batch = feed.ledger.begin(1, spout="opaque")
        session = feed.backend.session(feed.conn, feed.spec, batch)
        session.admit()
        copy = copy_of(client, feed.spec)
        session.revert()
        return copy, batch, session

    def test_a_task_that_runs_twice_is_counted_once(self, feed):
        batch, session = feed.begin()
        for _ in range(2):
            keys = feed.write(batch, HUNDRED)

        session.check(keys)

    def test_a_retry_with_fewer_keys_is_counted_without_those_of_the_attempt_before(self, feed):
        batch, _ = feed.begin()
        feed.write(batch, HUNDRED)
        feed.restart()

        feed.run(views(("a", 1)))

        assert feed.read("a", "99") == [2, "missing"]

    def test_a_replay_of_a_transactional_state_is_counted_once(self, new_feed):
        feed = new_feed(replace(VIEWS, kind="transactional"), spout="transactional")
        batch, _ = feed.begin()
        feed.write(batch, HUNDRED[:50])
        feed.restart()

        feed.run(HUNDRED)

        assert feed.read("00", "99") == [1, 1]


class TestAhead:
    @pytest.fixture
    def ahead(self, feed):
        """Let the ledger go back by so many batches, after this one and two more."""

        def ahead(batches):
            copies = [feed.copy_of_ledger()]
            for _ in range(2):
                feed.run(views(("a", 10), ("c", 10)))
                copies.append(feed.copy_of_ledger())
            feed.restore_ledger(copies[-1 - batches])
            return feed

        return ahead

    def test_one_batch_that_the_ledger_has_not_is_reverted(self, ahead):
        feed = ahead(1)

        feed.restart()

        assert feed.read("a", "b", "c") == [11, 1, 10]
        feed.run(views(("a", 5)))
        assert feed.read("a", "c") == [16, 10]

    @pytest.mark.parametrize("starts", [1, 2, 3])
    def test_more_of_them_are_refused_however_often_a_driver_starts(self, ahead, starts):
        feed = ahead(2)

        for _ in range(starts):
            with pytest.raises(StoreAheadError) as caught:
                feed.restart()

        assert str(caught.value) == (
            f"state {feed.spec.name!r}: Redis has batch 3, and the ledger is at batch 1: the ledger was restored from "
            "an older copy; restore its newest copy, or feed it again under another name, because it has no changelog "
            "to be rebuilt from"
        )
        assert feed.finding() == str(caught.value)

    def test_what_is_left_of_a_batch_that_the_ledger_has_forgotten_is_reverted(self, feed):
        copy = feed.copy_of_ledger()
        batch, _ = feed.begin()
        feed.write(batch, views(("a", 100), ("new", 100)))
        feed.restore_ledger(copy)

        feed.restart()
        feed.run(views(("a", 1)))

        assert feed.read("a", "new") == [2, "missing"]

    def test_one_batch_ahead_is_refused_once_the_batch_after_it_was_written(self, feed):
        copy = feed.copy_of_ledger()
        feed.run(views(("a", 1)))
        batch, _ = feed.begin()
        feed.write(batch, views(("a", 1)))
        feed.restore_ledger(copy)

        with pytest.raises(StoreAheadError):
            feed.restart()

    @pytest.mark.parametrize("comes_again", [False, True])
    def test_it_is_refused_also_once_the_batch_after_it_was_reverted(self, feed, comes_again):
        copy = feed.copy_of_ledger()
        feed.run(views(("a", 10)))
        batch, _ = feed.begin()
        feed.write(batch, views(("a", 100)))
        feed.begin()
        feed.restore_ledger(copy)
        if comes_again:
            feed.ledger.begin(1)

        with pytest.raises(StoreAheadError, match="Redis has batch 2, and the ledger is at batch 1"):
            feed.restart()

    def test_what_an_earlier_release_wrote_of_the_batch_after_it_is_known_by_its_keys(self, feed, client):
        copy = feed.copy_of_ledger()
        feed.run(views(("a", 10)))
        batch, _ = feed.begin()
        feed.write(batch, views(("a", 100)))
        client.hdel(KeyNames(feed.spec).guard, "written")
        feed.restore_ledger(copy)

        with pytest.raises(StoreAheadError):
            feed.restart()

    def test_it_is_refused_if_the_batch_before_it_came_again_since(self, feed):
        copy = feed.copy_of_ledger()
        feed.run(views(("a", 5)), batch_id=0)
        feed.run(views(("a", 10)))
        feed.restore_ledger(copy)
        feed.conn.execute("UPDATE tidegauge.batch SET attempt = 1 WHERE pipeline = %s", [feed.pipeline])

        with pytest.raises(StoreAheadError, match="batch 1 in Redis is of another attempt"):
            feed.restart()

    def test_one_that_was_admitted_only_and_not_written_does_not_matter(self, feed):
        copy = feed.copy_of_ledger()
        feed.run(views(("a", 1)))
        feed.begin()
        feed.restore_ledger(copy)

        feed.restart()

        assert feed.read("a") == [1]

    def test_a_kind_that_cannot_go_back_is_refused(self, new_feed):
        feed = new_feed(replace(VIEWS, kind="transactional"), spout="transactional")
        feed.run(views(("a", 1)))
        copy = feed.copy_of_ledger()
        feed.run(views(("a", 1)))
        feed.restore_ledger(copy)

        with pytest.raises(StoreAheadError):
            feed.restart()

    def test_a_committed_batch_that_comes_again_is_no_finding(self, feed):
        feed.run(views(("a", 1), ("c", 1)))
        batch, _ = feed.begin(batch_id=1)
        feed.write(batch, views(("a", 5)))
        feed.restart()

        feed.run(views(("a", 7)), batch_id=1)

        assert feed.read("a", "b", "c") == [8, 1, "missing"]

    def test_a_batch_that_comes_again_is_shown_as_the_attempt_that_was_committed_until_it_is_reverted(self, feed):
        reader = state_reader(feed.conn, feed.spec)
        feed.run(views(("a", 1)))
        feed.ledger.begin(1, spout="opaque")

        with reader.export() as export:
            rows = list(export.rows)

        assert (export.txid, export.attempt, rows) == (2, 1, [("a", 2), ("b", 1)])
        assert (reader.committed().attempt, reader.multi_get([("a",)]).attempt) == (1, 1)

    def test_a_batch_of_an_equal_number_and_another_attempt_is_not_taken_for_the_committed_one(self, feed, client):
        feed.run(views(("a", 100)))
        older = copy_of(client, feed.spec)
        feed.run(views(("a", 1)), batch_id=1)
        put_back(client, feed.spec, older)

        with pytest.raises(StoreAheadError) as caught:
            feed.restart()

        assert re.search(message_of("A store is ahead of the ledger", 2), str(caught.value))


class TestFence:
    def test_a_zombie_with_equal_numbers_does_not_write_after_a_restore(self, feed):
        copy = feed.copy_of_ledger()
        feed.restart()
        old, _ = feed.begin()
        zombie = feed.backend.session(feed.conn, feed.spec, old)
        feed.restore_ledger(copy)
        feed.conn.execute("UPDATE tidegauge.pipeline SET fence = fence - 1 WHERE name = %s", [feed.pipeline])
        feed.restart()
        new, _ = feed.begin()
        assert (old.fence, old.txid, old.attempt) == (new.fence, new.txid, new.attempt)

        with pytest.raises(FencedError, match=r"by another acquisition of the same fence|of epoch"):
            zombie.rows.multi_remove([("a",)])
        assert feed.read("a") == [1]

    def test_a_driver_of_an_older_copy_of_the_ledger_does_not_stop_the_right_one(self, feed):
        copy = feed.copy_of_ledger()
        for _ in range(2):
            feed.run(views(("a", 1)))
        now = feed.copy_of_ledger()
        batch, _ = feed.begin()
        rows = RedisBackingMap(feed.backend.guarded(feed.spec)._client, feed.spec)
        other = BatchLedger(feed.conn, feed.pipeline)
        other.fence, other.token, other.epoch = 90, "other", "other"

        with pytest.raises(StoreAheadError):
            feed.backend.catch_up(feed.conn, feed.spec, other.start(copy[0]), is_new=False)

        assert now[0] == rows.status().published
        assert feed.write(batch, views(("a", 1))) == 1


class TestReaders:
    def test_a_store_that_is_two_batches_behind_is_not_served(self, feed, client):
        older = copy_of(client, feed.spec)
        for _ in range(2):
            feed.run(views(("a", 1)))
        put_back(client, feed.spec, older)
        reader = state_reader(feed.conn, feed.spec)

        asks = [
            lambda: read_both_ways(feed.conn, feed.spec, [("a",)]),
            lambda: reader.page(),
            lambda: reader.combine([("a",)]),
            lambda: reader.committed(),
            lambda: reader.history(("a",)),
            lambda: reader.export(),
        ]
        assert isinstance(reader, ScanningReader)
        for ask in asks:
            with pytest.raises(LostBatchesError, match="batch 3 was committed, and Redis is at batch 1"):
                ask()

    def test_a_store_that_is_ahead_is_not_served(self, feed):
        copy = feed.copy_of_ledger()
        feed.run(views(("a", 1)))
        feed.restore_ledger(copy)

        with pytest.raises(StoreAheadError, match="Redis has batch 2, and the ledger is at batch 1"):
            feed.read("a")

    def test_another_attempt_than_the_committed_one_is_not_served(self, feed, client):
        feed.run(views(("a", 1)))
        older = copy_of(client, feed.spec)
        feed.run(views(("a", 5)), batch_id=1)
        put_back(client, feed.spec, older)
        reader = state_reader(feed.conn, feed.spec)

        get = lambda: read_both_ways(feed.conn, feed.spec, [("a",)])  # noqa: E731
        for ask in (get, reader.page, reader.committed, reader.export):
            with pytest.raises(StoreAheadError, match="batch 2 in Redis is of another attempt"):
                ask()

    def test_a_batch_that_comes_again_during_a_read_is_not_shown_as_the_other_attempt(self, feed, monkeypatch):
        feed.run(views(("a", 1)))
        reader, get = state_reader(feed.conn, feed.spec), RedisBackingMap.multi_get_committed

        def overtaken(rows, keys):
            answer = get(rows, keys)
            if keys:
                feed.run(views(("a", 5)), batch_id=1)
            return answer

        monkeypatch.setattr(RedisBackingMap, "multi_get_committed", overtaken)

        with pytest.raises(MovedOnError, match="batch 2 came again while it was read; read again"):
            reader.multi_get([("a",)])
        monkeypatch.undo()
        assert feed.read("a") == [6]

    def test_the_batch_before_is_served_between_commit_and_publish_and_while_one_comes_again(self, feed):
        batch, session = feed.begin()
        feed.commit(batch, keys := feed.write(batch, views(("a", 1))))
        assert feed.read("a") == [1]
        session.publish(keys)

        feed.ledger.begin(1)
        assert feed.read("a") == [2]


class TestRows:
    def test_rows_that_vanish_are_found_by_the_next_driver(self, feed, client):
        feed.run(HUNDRED)
        client.config_resetstat()
        client.delete(*[key for key in keys_of(client, feed.spec) if b"row:9" in key])
        client.hdel(f"tidegauge:{{{feed.spec.name}}}:guard", "counted")

        with pytest.raises(LostBatchesError) as caught:
            feed.restart()

        assert str(caught.value).partition(": ")[2] == (
            "10 rows are gone that Redis had stored: it has evicted them, or somebody deleted them; feed it again "
            "under another name, because it has no changelog to be rebuilt from"
        )
        with pytest.raises(FindingError, match="some rows are gone"):
            feed.read("00")

    @pytest.mark.parametrize("generic", [False, True], ids=["folded in Lua", "put"])
    def test_a_merge_does_not_restart_a_row_that_has_vanished(self, new_feed, client, generic):
        feed = new_feed(replace(VIEWS, changelog=generic))
        feed.run(HUNDRED)
        batch, _ = feed.begin()
        client.delete(*[key for key in keys_of(client, feed.spec) if b"row:9" in key])

        with pytest.raises(LostBatchesError, match="10 rows are gone"):
            feed.write(batch, HUNDRED)
        with pytest.raises(FindingError):
            feed.restart()

    def test_a_lost_order_of_keys_is_found(self, feed, client):
        client.delete(f"tidegauge:{{{feed.spec.name}}}:keys")

        with pytest.raises(LostBatchesError, match="2 rows are gone"):
            feed.restart()

    def test_the_rows_are_counted_as_they_come_and_go(self, feed, client):
        feed.run(HUNDRED)
        batch, session = feed.begin()
        feed.write(batch, views(("x", 1), ("00", 1)))
        session.revert()
        rows = feed.backend.guarded(feed.spec)
        rows.multi_remove([("a",), ("nothing",)])
        list(feed.backend.compact(feed.conn, feed.spec, None))

        assert rows.status().missing_rows == 0
        assert client.hget(f"tidegauge:{{{feed.spec.name}}}:guard", "rows") == b"101"


def test_a_batch_that_comes_again_is_no_earlier_than_what_expiry_freed(new_feed, conn):
    feed = new_feed(replace(VIEWS, ttl=timedelta(hours=1)))
    first, session = feed.begin()
    feed.commit(first, feed.write(first, views(("a", 1))))
    session.publish(1)
    list(expire(conn, feed.spec))

    again, _ = feed.begin(0)

    assert again.batch_time > first.batch_time

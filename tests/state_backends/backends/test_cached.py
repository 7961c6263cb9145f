"""CachedMap, beyond the contract that it shares: what it asks of the store, and when it stops believing itself."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tidegauge.state_backends import MemoryBackingMap, PostgresBackingMap, StateSpec, Versioned
from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.backends.wrappers import CachedMap
from tidegauge.state_backends.errors import DuplicateKeyError, FencedError, KeyShapeError, SpecError, StaleBatchError
from tidegauge.state_backends.spec.table import StateTable

VIEWS = StateSpec("views", key={"page": "text"}, value="jsonb")
AT = datetime(2013, 1, 1, tzinfo=UTC)
A, B, C = ("a",), ("b",), ("c",)


def row(value, txid=1):
    return Versioned(value, txid, at=AT)


class Watched(MemoryBackingMap):
    """A store that says which keys it was asked for, and fails when told to."""

    def __init__(self, spec):
        super().__init__(spec)
        self.asked = []
        self.failure = None

    def multi_get(self, keys):
        self.asked.append(list(keys))
        self.fail()
        return super().multi_get(keys)

    def multi_put(self, keys, rows):
        self.fail()
        super().multi_put(keys, rows)

    def multi_remove(self, keys):
        self.fail()
        super().multi_remove(keys)

    def fail(self):
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def store():
    return Watched(VIEWS)


@pytest.fixture
def cached(store):
    return CachedMap(store, cache_keys=2)


class TestReads:
    def test_only_what_is_not_remembered_is_asked_of_the_store_and_once(self, cached, store):
        cached.multi_put([A], [row(1)])
        store.multi_put([B, C], [row(2), row(3)])

        rows = cached.multi_get([B, A, C, B, A])

        assert rows == [row(2), row(1), row(3), row(2), row(1)]
        assert store.asked == [[B, C]]

    def test_where_all_is_remembered_the_store_is_not_asked(self, cached, store):
        cached.multi_put([A], [row(1)])

        assert cached.multi_get([A, A]) == [row(1), row(1)]
        assert cached.multi_get([]) == []
        assert store.asked == []

    def test_an_absent_key_is_asked_for_every_time_so_that_it_is_seen_once_it_is_there(self, cached, store):
        assert cached.multi_get([A]) == [None]

        store.multi_put([A], [row(1)])

        assert cached.multi_get([A]) == [row(1)]

    def test_a_read_keeps_a_row_and_the_one_used_longest_ago_goes(self, cached, store):
        cached.multi_put([A, B], [row(1), row(2)])
        cached.multi_get([A])
        cached.multi_put([C], [row(3)])

        cached.multi_get([A, C, B])

        assert store.asked == [[B]]

    def test_more_keys_than_it_remembers_are_all_answered(self, cached, store):
        keys = [(str(number),) for number in range(9)]
        store.multi_put(keys, [row(number) for number in range(9)])

        answers = [[found.value for found in cached.multi_get(keys)] for _ in range(2)]

        assert answers == [[*range(9)]] * 2
        assert store.asked == [keys, keys[:-2]]

    def test_one_key_in_two_spellings_is_one(self):
        store = Watched(StateSpec("days", key={"day": "date"}, value="jsonb"))
        cached = CachedMap(store)
        cached.multi_put([("2013-01-01",)], [row(1)])

        assert cached.multi_get([(AT.date(),), ("2013-01-01",)]) == [row(1), row(1)]
        assert store.asked == []

    def test_a_row_without_its_time_is_asked_of_the_store_that_gave_it_one(self, cached, store):
        cached.multi_put([A, B], [Versioned(1, 2), Versioned(1, 2, 0, 1, at=AT)])

        rows = cached.multi_get([A, B])

        assert store.asked == [[A, B]]
        assert rows[0].at is not None
        assert rows[1].prev_at is not None

    def test_a_scan_sees_what_was_put(self, cached):
        cached.multi_put([B, A], [row(2), row(1)])

        assert list(cached.scan(stop=B)) == [(A, row(1))]


class TestDoubt:
    """After a failure nobody knows what the store holds, so it is asked."""

    @pytest.fixture
    def remembered(self, cached, store):
        cached.multi_put([A, B], [row(1), row(2)])
        return cached

    @pytest.mark.parametrize("failure", [FencedError("fenced"), ConnectionError("gone"), KeyboardInterrupt()])
    @pytest.mark.parametrize(
        "call",
        [
            lambda cached: cached.multi_put([A], [row(9, 2)]),
            lambda cached: cached.multi_remove([A]),
            lambda cached: cached.multi_get([C]),
        ],
        ids=["put", "remove", "get"],
    )
    def test_a_failed_call_forgets_everything(self, remembered, store, failure, call):
        store.failure = failure
        with pytest.raises(type(failure)):
            call(remembered)
        store.failure = None
        store.asked.clear()
        store.multi_put([B], [row(20, 2)])

        assert remembered.multi_get([A, B]) == [row(1), row(20, 2)]
        assert store.asked == [[A, B]]

    def test_a_stale_write_is_refused_and_shows_what_the_store_holds(self, remembered, store):
        store.multi_put([A], [row(7, 6)])

        with pytest.raises(StaleBatchError):
            remembered.multi_put([A], [row(5, 5)])

        assert remembered.multi_get([A]) == [row(7, 6)]

    @pytest.mark.parametrize(("keys", "error"), [([A, A], DuplicateKeyError), ([A, (1,)], KeyShapeError)])
    def test_a_refused_put_remembers_nothing(self, remembered, keys, error):
        with pytest.raises(error):
            remembered.multi_put(keys, [row(8), row(9)])

        assert remembered.multi_get([A]) == [row(1)]

    def test_a_removed_key_is_gone(self, remembered, store):
        remembered.multi_remove([A])

        assert remembered.multi_get([A, B]) == [None, row(2)]
        assert store.asked == [[A]]

    def test_a_revert_shows_what_it_left(self, cached):
        cached.multi_put([A], [Versioned(2, 2, 1, 1, at=AT, prev_at=AT)])

        assert cached.revert(2) == 1
        assert cached.multi_get([A]) == [Versioned(1, 1)]

    def test_after_a_rollback_and_forget_the_store_is_asked(self, conn, fresh):
        spec = fresh(VIEWS)
        tables.create(conn, StateTable(spec))
        cached = CachedMap(PostgresBackingMap(conn, spec))
        with conn.transaction() as transaction:
            cached.multi_put([A], [row(1)])
            raise psycopg.Rollback(transaction)

        cached.forget()

        assert cached.multi_get([A]) == [None]


def test_it_tells_the_spec_of_the_map_it_wraps(cached, store):
    assert cached.spec is store.spec


def test_a_cache_of_no_rows_is_refused(store):
    with pytest.raises(SpecError) as caught:
        CachedMap(store, cache_keys=0)

    assert str(caught.value) == "state 'views': cache_keys 0 must be 1 or more"


def test_ttl_counts_from_the_time_that_the_store_gave(fresh):
    spec = StateSpec("short", key={"page": "text"}, value="jsonb", ttl=timedelta(hours=1))
    cached = CachedMap(MemoryBackingMap(spec))
    cached.multi_put([A], [Versioned(1, 1)])

    (found,) = cached.multi_get([A])

    assert datetime.now(UTC) - found.at < timedelta(minutes=1)

"""What the store promises beyond Samza's cases: copies, refusals, failures, declarations."""

from datetime import date

import psycopg
import pytest

from tests.state_backends.key_value.conftest import SETTINGS
from tidegauge.state_backends import Count, MemoryBackingMap, PostgresBackingMap, StateSpec, Versioned
from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.errors import KeyShapeError, SpecError, StoreClosedError, ValueShapeError
from tidegauge.state_backends.key_value.log import MemoryKeyValueLog, PostgresKeyValueLog
from tidegauge.state_backends.key_value.store import KeyValueStore
from tidegauge.state_backends.spec.table import StateTable

A, B, C = ("a",), ("b",), ("c",)


@pytest.fixture
def backing(new_backing):
    return new_backing(SETTINGS)


@pytest.fixture
def store(backing):
    return KeyValueStore(backing)


class TestCopies:
    def test_an_object_changed_after_a_put_changes_nothing(self, store):
        value = {"list": [1]}
        store.put(A, value)
        value["list"].append(2)
        assert store.get(A) == {"list": [1]}

        store.flush()
        value["list"].append(3)

        assert store.get(A) == {"list": [1]}
        assert list(store.all()) == [(A, {"list": [1]})]

    @pytest.mark.parametrize("flushed", [False, True])
    def test_an_object_changed_after_a_read_changes_nothing(self, store, backing, flushed):
        store.put(A, [1])
        if flushed:
            store.flush()
            store = KeyValueStore(backing)
        for read in (lambda: store.get(A), lambda: store.get_all([A])[A], lambda: next(store.all())[1]):
            read().append(2)

        assert store.get(A) == [1]
        assert store.snapshot(A, B) == ((A, [1]),)

    def test_a_value_reads_at_once_as_it_will_after_a_restart(self, store, backing):
        store.put(A, {"tuple": (1, 2), 3: "number"})

        before = store.get(A)
        store.flush()

        assert before == {"tuple": [1, 2], "3": "number"} == KeyValueStore(backing).get(A)

    def test_falsy_and_odd_values_are_values(self, store, backing):
        values = [0, "", False, [], {}, "null", "\\u0000", [None], "🙂"]
        store.put_all([((str(number),), value) for number, value in enumerate(values)])
        store.flush()

        for reader in (store, KeyValueStore(backing)):
            found = [reader.get((str(number),)) for number in range(len(values))]
            assert found == values
            assert list(map(type, found)) == list(map(type, values))


class TestRefusals:
    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (None, "is null; delete the key instead"),
            (float("nan"), "cannot be stored as JSON: "),
            ({1, 2}, "cannot be stored as JSON: "),
            ("\ud800", "cannot be stored as JSON: "),
            (["a\0b"], "cannot be stored as JSON: it holds a NUL character"),
            ("\\\0", "cannot be stored as JSON: it holds a NUL character"),
        ],
    )
    def test_a_value_that_cannot_be_stored_refuses_its_list_before_anything_is_written(self, value, reason):
        store = KeyValueStore(MemoryBackingMap(SETTINGS))

        with pytest.raises(ValueShapeError) as caught:
            store.put_all([(A, 1), (B, value)])

        assert str(caught.value).startswith(f"state {store.spec.name!r}: the value of key ('b',) {reason}")
        assert list(store.all()) == []

    def test_a_value_over_the_limit_is_refused_with_its_size(self, backing):
        store = KeyValueStore(backing, max_value_bytes=6)
        store.put(A, "éé")

        with pytest.raises(ValueShapeError) as caught:
            store.put(A, "ééé")

        assert str(caught.value) == (
            f"state {store.spec.name!r}: the value of key ('a',) has 8 bytes as JSON, over the limit of 6; split it"
        )
        assert store.get(A) == "éé"

    def test_a_megabyte_is_the_limit_unless_told_otherwise(self, backing):
        with pytest.raises(ValueShapeError):
            KeyValueStore(backing).put(A, "a" * (2**20 - 1))

        store = KeyValueStore(backing, max_value_bytes=None)
        store.put(A, "a" * 2**20)
        store.flush()

        assert len(KeyValueStore(backing).get(A)) == 2**20

    @pytest.mark.parametrize("key", [None, (None,), "a", ("a", "b"), (1,)])
    @pytest.mark.parametrize(
        "call",
        [
            lambda store, key: store.get(key),
            lambda store, key: store.get_all([A, key]),
            lambda store, key: store.put(key, 1),
            lambda store, key: store.put_all([(A, 1), (key, 1)]),
            lambda store, key: store.delete(key),
            lambda store, key: store.delete_all([A, key]),
            lambda store, key: store.range(key, B),
            lambda store, key: store.range(A, key),
            lambda store, key: store.snapshot(key, B),
        ],
        ids=["get", "get_all", "put", "put_all", "delete", "delete_all", "start", "stop", "snapshot"],
    )
    def test_a_wrong_key_or_bound_is_refused_before_anything_is_written(self, call, key):
        backing = MemoryBackingMap(SETTINGS)
        store = KeyValueStore(backing)
        store.put(A, 0)

        with pytest.raises(KeyShapeError):
            call(store, key)

        assert list(backing.scan()) == []
        assert store.get(A) == 0

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda store: store.get_all(None), "store 'settings': expected a list of keys, got None"),
            (lambda store: store.delete_all(None), "store 'settings': expected a list of keys, got None"),
            (lambda store: store.put_all(None), "store 'settings': expected a list of entries, got None"),
            (lambda store: store.put_all([(A, 1), None]), "entry 1: expected a pair of key and value, got None"),
            (lambda store: store.put_all([(A, 1), (A,)]), "entry 1: expected a pair of key and value, got (('a',),)"),
        ],
    )
    def test_a_missing_list_or_entry_is_refused_as_a_missing_key_is(self, call, message):
        store = KeyValueStore(MemoryBackingMap(SETTINGS))

        with pytest.raises(KeyShapeError) as caught:
            call(store)

        assert str(caught.value) == message
        assert list(store.all()) == []

    @pytest.mark.parametrize(
        "call",
        [
            lambda store: store.get(A),
            lambda store: store.get_all([A]),
            lambda store: store.put(A, 1),
            lambda store: store.put_all([]),
            lambda store: store.delete(A),
            lambda store: store.delete_all([]),
            lambda store: store.range(A, B),
            lambda store: store.all(),
            lambda store: store.snapshot(A, B),
            lambda store: store.flush(),
            lambda store: store.restore(),
        ],
    )
    def test_a_closed_store_has_written_everything_and_refuses_every_call(self, call):
        backing = MemoryBackingMap(SETTINGS)
        store = KeyValueStore(backing, log=MemoryKeyValueLog())
        store.put(A, 1)
        store.close()

        with pytest.raises(StoreClosedError) as caught:
            call(store)

        assert str(caught.value) == "store 'settings' is closed; open a new one"
        assert [row.value for _, row in backing.scan()] == [1]


class TestDeclarations:
    def test_a_store_needs_a_backing_map(self):
        with pytest.raises(SpecError) as caught:
            KeyValueStore(None)

        assert str(caught.value) == "a key-value store needs a backing map, got None"

    @pytest.mark.parametrize(
        "spec",
        [
            StateSpec("counts", measures={"n": Count()}, kind="non_transactional"),
            StateSpec("counts", value="jsonb", kind="transactional"),
            StateSpec("counts", value="jsonb", kind="opaque"),
        ],
    )
    def test_states_that_belong_to_batches_are_refused(self, spec):
        with pytest.raises(SpecError) as caught:
            KeyValueStore(MemoryBackingMap(spec))

        assert str(caught.value) == (
            "store 'counts': a key-value store needs value='jsonb' and kind='non_transactional'; "
            "rows of other states belong to batches, so update them through their map"
        )

    @pytest.mark.parametrize("sizes", [{"write_batch_keys": 0}, {"restore_batch_keys": 0}, {"cache_keys": -1}])
    def test_sizes_out_of_range_are_refused(self, sizes):
        with pytest.raises(SpecError, match=r"must be 1 or more, cache_keys .* 0 or more"):
            KeyValueStore(MemoryBackingMap(SETTINGS), **sizes)

    def test_compound_keys_are_ordered_part_by_part(self, new_backing):
        spec = StateSpec("days", {"name": "text", "day": "date"}, value="jsonb", kind="non_transactional")
        store = KeyValueStore(new_backing(spec))
        store.put_all([(("b", "2013-01-01"), 3), (("a", "2013-02-01"), 2), (("a", "2013-01-01"), 1)])

        assert store.get_all([("a", "2013-01-01")]) == {("a", date(2013, 1, 1)): 1}
        assert [value for _, value in store.all()] == [1, 2, 3]
        assert [value for _, value in store.range(("a", "2013-01-02"), ("b", "2013-01-01"))] == [2]

    def test_a_store_of_one_value_has_the_empty_key(self, new_backing):
        store = KeyValueStore(new_backing(StateSpec("one", value="jsonb", kind="non_transactional")))
        store.put((), 1)

        assert list(store.all()) == [((), 1)]
        assert store.get(()) == 1

    def test_the_tombstone_of_a_map_reads_as_absent(self, backing):
        backing.multi_put([A, B], [Versioned(None, None), Versioned(1, None)])
        store = KeyValueStore(backing)

        assert store.get_all([A, B]) == {B: 1}
        assert list(store.all()) == [(B, 1)]


class TestCache:
    def test_without_a_cache_every_read_asks_the_map(self, backing):
        store = KeyValueStore(backing, cache_keys=0, write_batch_keys=1)
        store.put(A, 1)

        KeyValueStore(backing, write_batch_keys=1).put(A, 2)

        assert store.get(A) == 2

    def test_the_least_recently_used_entry_is_evicted(self, backing):
        store = KeyValueStore(backing, cache_keys=2, write_batch_keys=1)
        store.put_all([(A, 1), (B, 1)])
        store.get(A)
        store.put(C, 1)

        KeyValueStore(backing, write_batch_keys=3).put_all([(A, 2), (B, 2), (C, 2)])

        assert store.get_all([A, B, C]) == {A: 1, B: 2, C: 1}

    def test_a_put_list_longer_than_batch_and_cache_is_all_there(self, backing):
        store = KeyValueStore(backing, cache_keys=1, write_batch_keys=2)
        entries = [((str(number),), number) for number in range(9)]

        store.put_all(entries)

        assert store.get_all([key for key, _ in entries]) == dict(entries)
        assert len(list(backing.scan())) == 9


class TestFailures:
    class Down(MemoryBackingMap):
        is_down = False

        def multi_put(self, keys, rows):
            if self.is_down and keys:
                raise ConnectionError("down")
            super().multi_put(keys, rows)

    def test_writes_that_fail_stay_buffered_and_are_written_by_the_next_flush(self):
        backing = self.Down(SETTINGS)
        log = MemoryKeyValueLog()
        store = KeyValueStore(backing, write_batch_keys=2, log=log)
        backing.is_down = True
        store.put(A, 1)
        with pytest.raises(ConnectionError):
            store.put(B, 2)
        assert store.get_all([A, B]) == {A: 1, B: 2}
        backing.is_down = False

        store.flush()

        assert [row.value for _, row in backing.scan()] == [1, 2]
        assert [message.key for message in log.read()] == [A, B, A, B]

    def test_a_close_that_fails_leaves_the_store_open(self):
        backing = self.Down(SETTINGS)
        store = KeyValueStore(backing)
        store.put(A, 1)
        backing.is_down = True
        with pytest.raises(ConnectionError):
            store.close()
        backing.is_down = False

        store.close()

        assert [row.value for _, row in backing.scan()] == [1]

    def test_log_and_rows_of_one_connection_change_together(self, conn, fresh):
        spec = fresh(SETTINGS)
        tables.create(conn, StateTable(spec))
        with conn.transaction() as transaction:
            store = KeyValueStore(PostgresBackingMap(conn, spec), log=PostgresKeyValueLog(conn, spec))
            store.put(A, 1)
            store.flush()
            raise psycopg.Rollback(transaction)

        again = KeyValueStore(PostgresBackingMap(conn, spec), log=PostgresKeyValueLog(conn, spec))

        assert again.get(A) is None
        assert again.flush() == 0

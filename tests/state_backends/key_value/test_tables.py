"""Samza's tables of single rows (ttl settings, time series, table API, commit order), row by row.

A row is either run against our store, as written or as a choice whose reason its test gives, or listed in NOT_OURS with
the reason why Tidegauge has no such thing, or has it elsewhere.
"""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.state_backends.key_value.conftest import AT, SETTINGS
from tidegauge.state_backends import MemoryBackingMap, StateSpec
from tidegauge.state_backends.errors import SpecError, ValueShapeError
from tidegauge.state_backends.key_value.log import MemoryKeyValueLog
from tidegauge.state_backends.key_value.store import KeyValueStore

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "samza_pravega.json").read_text())["vectors"]
SUITES = {"config_table": "ttl", "time_series_store": "time_series", "table_api": "table_api", "commit": "commit"}
ROWS: dict[tuple[str, int], Any] = {
    (SUITES[vector["suite"]], number): row
    for vector in VECTORS
    if vector["suite"] in SUITES
    for number, row in enumerate(vector["expect"]["rows"])
}

NOT_OURS = {
    ("table_api", 3): "the store keeps no hit rate; a rate of nothing, which Samza takes for 1.0, would be none",
    ("table_api", 6): "no write goes around the cache, so there is no old value to serve until its ttl",
    ("table_api", 10): "no timer: a batch of writes closes at its size, or when its task flushes",
    ("commit", 0): "the runner's: the source's offsets go into the batch's row when it begins (BatchLedger.begin)",
    ("commit", 1): "no producers: state and changelog are rows of one transaction, so none can be left in flight",
    ("commit", 2): "no tables beside the stores",
    ("commit", 4): "no local files: a backing map is durable by itself, or made again from the log",
    ("commit", 6): "no upload",
    ("commit", 7): "one record by nature: BatchLedger.commit moves offsets and state in one update",
    ("commit", 8): "no local checkpoints to clean up; KeyValueLog.compact frees what no restore needs",
    ("commit", 9): "sources trim themselves; the ledger's rows are trimmed by compaction",
}

SERIES = StateSpec(
    "series", key={"name": "text", "time": "bigint", "place": "bigint"}, value="jsonb", kind="non_transactional"
)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.time = AT

    def __call__(self):
        return self.time

    def go_on(self, **interval):
        self.time += timedelta(**interval)


class Watched(MemoryBackingMap):
    """A backing map that records its calls."""

    def __init__(self, spec, calls=None):
        super().__init__(spec)
        self.calls = [] if calls is None else calls

    def multi_get(self, keys):
        self.calls.append(("get", *keys))
        return super().multi_get(keys)

    def multi_put(self, keys, rows):
        if keys:
            self.calls.append(("put", *((*key, row.value) for key, row in zip(keys, rows, strict=True))))
        super().multi_put(keys, rows)


@pytest.fixture
def backing():
    return Watched(SETTINGS)


@pytest.fixture
def store(backing):
    return KeyValueStore(backing)


def rows(table: str, *numbers: int) -> Any:
    """Run a test for these rows of a table; their numbers are how the rows are counted."""
    return pytest.mark.parametrize("row", [pytest.param((table, n), id=f"{table}-{n}") for n in numbers])


def test_every_row_is_run_or_listed_with_a_reason():
    tests = [test for name, test in globals().items() if name.startswith("test_") and hasattr(test, "pytestmark")]
    run = [param.values[0] for test in tests for mark in test.pytestmark for param in mark.args[1]]

    assert len(ROWS) == 34
    assert sorted([*run, *NOT_OURS]) == sorted(ROWS)


# How long an entry is served. Samza rounds to whole seconds, 1 at least, and serves expired entries until its files are
# compacted; ours is exact, and what is past its ttl is absent at once.


@rows("ttl", 0, 1, 2, 3)
def test_an_entry_is_there_until_its_ttl_and_absent_from_then_on(row, fresh):
    ttl = timedelta(milliseconds=ROWS[row]["ttl_ms"])
    clock = Clock()
    backing = MemoryBackingMap(StateSpec("short", SETTINGS.key, value="jsonb", kind=SETTINGS.kind, ttl=ttl))
    store = KeyValueStore(backing, clock=clock)
    store.put(("a",), 1)
    store.flush()

    for reader in (store, KeyValueStore(backing, clock=clock)):
        clock.time = AT + ttl - timedelta(microseconds=1)
        assert (reader.get(("a",)), list(reader.all())) == (1, [(("a",), 1)])
        clock.time = AT + ttl
        assert (reader.get(("a",)), list(reader.all())) == (None, [])


@rows("ttl", 4, 5)
def test_a_ttl_of_zero_or_less_is_refused_where_samza_takes_it_as_unlimited(row):
    with pytest.raises(SpecError, match="must be longer than zero"):
        StateSpec("short", value="jsonb", ttl=timedelta(milliseconds=ROWS[row]["ttl_ms"]))


@rows("ttl", 6)
def test_a_ttl_that_is_not_an_interval_is_refused(row):
    with pytest.raises(TypeError):
        StateSpec("short", value="jsonb", ttl=ROWS[row]["ttl_ms"])


@rows("ttl", 7)
def test_without_a_ttl_an_entry_stays(row):
    clock = Clock()
    store = KeyValueStore(MemoryBackingMap(SETTINGS), clock=clock)
    store.put(("a",), 1)
    clock.go_on(days=36_500)

    assert store.get(("a",)) == 1


# A time series is a state whose key goes on with the time, read by range.


@rows("time_series", 0, 1)
def test_a_time_series_is_a_range_of_keys_that_end_in_time(row):
    given = ROWS[row]
    store = KeyValueStore(MemoryBackingMap(SERIES))
    for place, (name, value, time) in enumerate(given["puts"]):
        # The writer says what tells two appends of one instant apart; Samza's counter starts again after a restart.
        store.put((name, time, place if given["mode"] == "append" else 0), value)

    def read(start, stop):
        return [value for _, value in store.range(("hello", start, 0), ("hello", stop, 0))]

    assert [[start, stop, read(start, stop)] for start, stop, _ in given["reads"]] == given["reads"]
    for start, stop in [given["then_remove"]] if "then_remove" in given else []:
        store.delete_all([key for key, _ in store.range(("hello", start, 0), ("hello", stop, 0))])
    for start, stop, expected in given.get("reads_after", []):
        assert read(start, stop) == expected


@rows("time_series", 2, 3, 4)
def test_a_range_of_keys_may_be_reversed_or_negative_as_any_other(row):
    store = KeyValueStore(MemoryBackingMap(SERIES))
    times = [-1, 0, 4, 5]
    store.put_all([(("hello", time, 0), time) for time in times])
    start, stop = ROWS[row]["read"]

    read = [value for _, value in store.range(("hello", start, 0), ("hello", stop, 0))]

    assert read == [time for time in times if start <= time < stop]


# The table API: what a caching table and a batching one promise, the store does both.


@rows("table_api", 0)
def test_putting_null_is_refused_where_samza_deletes(row, store):
    with pytest.raises(ValueShapeError, match=r"the value of key \('k',\) is null; delete the key instead"):
        store.put(("k",), None)


@rows("table_api", 1)
def test_a_list_that_puts_null_is_refused_whole_so_no_order_is_lost(row, store):
    store.put(("a",), 0)

    with pytest.raises(ValueShapeError):
        store.put_all([(("a",), None), (("a",), 1)])

    assert store.get(("a",)) == 0


@rows("table_api", 2)
def test_a_missing_key_is_asked_for_every_time(row, store, backing):
    assert [store.get(("k",)), store.get(("k",))] == [None, None]
    assert backing.calls == [("get", ("k",))] * 2


@rows("table_api", 4)
def test_a_second_get_is_served_from_the_cache(row, store, backing):
    KeyValueStore(backing, write_batch_keys=1).put(("k",), 1)
    backing.calls.clear()

    assert [store.get(("k",)), store.get(("k",))] == [1, 1]
    assert backing.calls == [("get", ("k",))]


@rows("table_api", 5)
def test_what_was_written_is_served_from_the_cache(row, backing):
    store = KeyValueStore(backing, write_batch_keys=1)
    store.put(("k",), 1)

    assert store.get(("k",)) == 1
    assert backing.calls == [("put", ("k", 1))]


@rows("table_api", 7)
def test_two_puts_of_a_key_are_one_write(row, store, backing):
    store.put(("k",), 1)
    store.put(("k",), 2)
    store.flush()

    assert backing.calls == [("put", ("k", 2))]


@rows("table_api", 8)
def test_a_get_after_a_put_in_one_batch_sees_it(row, store):
    KeyValueStore(store._backing, write_batch_keys=1).put(("k",), 0)
    store.put(("k",), 1)

    assert store.get(("k",)) == 1


@rows("table_api", 9)
def test_a_key_asked_for_twice_is_answered_and_asked_for_once(row, store, backing):
    KeyValueStore(backing, write_batch_keys=1).put(("k",), 1)
    backing.calls.clear()

    assert store.get_all([("k",), ("k",)]) == {("k",): 1}
    assert backing.calls == [("get", ("k",))]


class WatchedLog(MemoryKeyValueLog):
    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def append(self, messages):
        self.calls.append(("log", *messages))
        super().append(messages)


@rows("commit", 3)
def test_a_flush_writes_the_log_before_the_backing_map(row):
    calls: list[Any] = []
    store = KeyValueStore(Watched(SETTINGS, calls), log=WatchedLog(calls))
    store.put(("a",), 1)

    store.flush()

    assert [call for call, *_ in calls] == ["log", "put"]


@rows("commit", 5)
def test_a_flush_gives_the_end_of_the_log_for_the_checkpoint(row):
    store = KeyValueStore(MemoryBackingMap(SETTINGS), log=MemoryKeyValueLog())
    assert store.flush() == 0

    store.put_all([(("a",), 1), (("b",), 1)])

    assert store.flush() == 2

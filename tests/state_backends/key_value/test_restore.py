"""Restore, beyond Samza's cases: maps that outlive their process, logs that fail midway, replaced stores, ttl."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.state_backends.key_value.conftest import AT, SETTINGS
from tidegauge.state_backends import MemoryBackingMap, PostgresBackingMap
from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.errors import FencedError, PositionError, SpecError
from tidegauge.state_backends.key_value.log import MemoryKeyValueLog, Message, PostgresKeyValueLog
from tidegauge.state_backends.key_value.restore import RestorePlan, plan_restore
from tidegauge.state_backends.key_value.store import KeyValueStore
from tidegauge.state_backends.spec.table import StateTable

A, B, C = ("a",), ("b",), ("c",)


@pytest.fixture
def backing(new_backing):
    return new_backing(SETTINGS)


@pytest.fixture
def log(new_log, backing):
    return new_log(backing.spec)


@pytest.fixture
def store(backing, log):
    """A store with a checkpoint at position 3, and two writes after it."""
    store = KeyValueStore(backing, write_batch_keys=1, log=log)
    for key, value in [(A, 1), (B, 1), (A, 2)]:
        store.put(key, value)
    store.put(C, 5)
    store.delete(A)
    return store


def test_a_map_that_outlived_its_process_goes_back_to_the_checkpoint(store, backing, log):
    again = KeyValueStore(backing, log=log)

    restored = again.restore(upto=3)

    assert list(again.all()) == [(A, 2), (B, 1)]
    assert (restored.messages, restored.undone) == (3, 2)
    assert [(message.key, message.text) for message in log.read(after=5)] == [(C, None), (A, "2")]


def test_after_a_restore_the_whole_log_gives_the_same_state(store, backing, log, new_backing):
    KeyValueStore(backing, log=log).restore(upto=3)

    copy = KeyValueStore(new_backing(SETTINGS), log=log)
    copy.restore()

    assert list(copy.all()) == [(A, 2), (B, 1)]


def test_a_restore_that_is_repeated_ends_the_same(store, log):
    store.restore(upto=3)
    store.restore(upto=3)

    assert list(store.all()) == [(A, 2), (B, 1)]


def test_a_map_at_a_known_position_replays_only_later_messages(store, log, new_backing):
    copy = KeyValueStore(new_backing(SETTINGS), log=log)
    copy.restore(upto=2)
    end = log.end()

    restored = copy.restore(after=2, upto=end)

    assert restored.messages == end - 2
    assert list(copy.all()) == [(A, 1), (B, 1)]


def test_a_restore_drops_the_write_buffer_and_the_cache(backing, log):
    store = KeyValueStore(backing, log=log)
    store.put(A, 1)
    checkpoint = store.flush()
    store.put(A, 2)
    store.flush()
    store.put(B, 2)

    store.restore(upto=checkpoint)

    assert store.get_all([A, B]) == {A: 1}
    assert [message.key for message in log.read(after=checkpoint)] == [A, A]


def test_a_log_that_fails_midway_leaves_a_whole_prefix_and_can_be_restored_again(backing):
    class Failing(MemoryKeyValueLog):
        fails = True

        def read(self, after=0, upto=None):
            for message in super().read(after, upto):
                if self.fails and message.key == C:
                    raise ConnectionError("gone")
                yield message

    log = Failing(Message(key, "1", AT) for key in (A, B, C))
    store = KeyValueStore(backing, log=log)
    with pytest.raises(ConnectionError):
        store.restore()
    assert [key for key, _ in store.all()] == [A, B]
    log.fails = False

    store.restore()

    assert [key for key, _ in store.all()] == [A, B, C]


def test_a_map_that_fails_midway_is_not_written_to_again(log):
    class Full(MemoryBackingMap):
        puts = 0

        def multi_put(self, keys, rows):
            self.puts += 1
            raise OSError("full")

    log.append([Message(key, "1", AT) for key in (A, B, C)])
    backing = Full(SETTINGS)

    with pytest.raises(OSError, match="full"):
        KeyValueStore(backing, log=log, restore_batch_keys=2).restore()

    assert backing.puts == 1


def test_a_restore_keeps_the_write_times_that_ttl_counts_from(fresh, new_log):
    spec = fresh(replace(SETTINGS, ttl=timedelta(hours=1)))
    log = new_log(spec)
    KeyValueStore(MemoryBackingMap(spec), write_batch_keys=1, log=log, clock=lambda: AT).put(A, 1)

    def restored(clock):
        store = KeyValueStore(MemoryBackingMap(spec), log=log, clock=lambda: clock)
        store.restore()
        return store.get(A)

    assert restored(AT + timedelta(minutes=59)) == 1
    assert restored(AT + timedelta(minutes=60)) is None


@pytest.mark.parametrize("positions", [{"upto": 6}, {"upto": -1}, {"after": 6}, {"after": -1}, {"upto": 2, "after": 3}])
def test_a_position_outside_the_log_is_refused_and_changes_nothing(store, positions):
    waiting = KeyValueStore(store._backing, log=store._log)
    waiting.put(A, 9)

    with pytest.raises(PositionError, match="of a log that ends at 5; for a checkpoint that the log does not reach"):
        waiting.restore(**positions)

    assert waiting.get_all([A, B, C]) == {A: 9, B: 1, C: 5}


def test_a_store_without_log_cannot_be_restored():
    with pytest.raises(SpecError) as caught:
        KeyValueStore(MemoryBackingMap(SETTINGS)).restore()

    assert str(caught.value) == "store 'settings': has no log to restore from; give it one"


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        (2, [(A, 1), (B, 1)]),
        (3, [(A, 2), (B, 1)]),
        (4, [(A, 2), (B, 1), (C, 5)]),
        (5, [(B, 1), (C, 5)]),
    ],
)
def test_a_plan_leads_a_copy_to_the_checkpoint(store, log, new_backing, checkpoint, expected):
    copy = new_backing(SETTINGS)
    KeyValueStore(copy, log=MemoryKeyValueLog(log.read(upto=2))).restore()

    plan = plan_restore(1, log.end(), checkpoint, {"copy": 2})
    restored = KeyValueStore(copy, log=log)
    restored.restore(upto=plan.end or 0, after=plan.start if plan.retain else 0)

    assert plan == RestorePlan(2, checkpoint, "copy")
    assert list(restored.all()) == expected


def test_a_local_copy_outside_the_log_or_ahead_of_the_checkpoint_is_not_used():
    copies = {"lost": 3, "older": 5, "newer": 6, "ahead": 9}

    assert plan_restore(4, 10, 8, copies) == RestorePlan(6, 8, "newer")
    assert plan_restore(4, 10, 4, copies) == RestorePlan(4, 4)


def test_without_a_checkpoint_existing_state_is_kept_unless_told_otherwise():
    assert plan_restore(1, 10, None, {"older": 3}) == RestorePlan(1, 10)
    assert plan_restore(1, 10, None, {"older": 3}, retain_existing_state=False) == RestorePlan(1, None)


def restored_as_planned(plan, backing, log):
    """Follow the recipe in the docstring of plan_restore."""
    store = KeyValueStore(backing, log=log)
    store.restore(upto=plan.end or 0, after=plan.start if plan.retain else 0)
    return list(store.all())


def test_a_store_without_a_checkpoint_keeps_what_its_log_holds(store, backing, log):
    plan = plan_restore(1, log.end(), None)

    assert restored_as_planned(plan, backing, log) == [(B, 1), (C, 5)]
    assert log.end() == 5


@pytest.mark.parametrize("age", [timedelta(), timedelta(days=1)])
def test_a_checkpoint_of_an_empty_log_undoes_every_later_write(backing, log, new_backing, age):
    store = KeyValueStore(backing, log=log)
    checkpoint = store.flush()
    store.put_all([(A, 1), (B, 1)])
    store.flush()

    plan = plan_restore(1, 2, checkpoint, {"ahead": 2}, checkpoint_age=age)

    assert (checkpoint, plan) == (0, RestorePlan(1, None))
    assert restored_as_planned(plan, backing, log) == []
    assert restored_as_planned(RestorePlan(1, log.end()), new_backing(SETTINGS), log) == []


def test_checkpoint_0_undoes_all_of_a_log_that_has_lost_its_first_messages():
    assert plan_restore(3, 9, 0) == RestorePlan(3, None)


def test_a_log_that_is_still_empty_restores_to_nothing(backing, log):
    for plan in (plan_restore(None, None, 0), plan_restore(1, log.end(), 0), plan_restore(1, log.end(), None)):
        assert restored_as_planned(plan, backing, log) == []


def test_a_store_that_was_replaced_cannot_write_rows(conn, connect, fresh):
    spec = fresh(SETTINGS)
    tables.create(conn, StateTable(spec))
    left = KeyValueStore(PostgresBackingMap(conn, spec), log=PostgresKeyValueLog(conn, spec))
    left.put(A, "left behind")
    other = connect()
    successor = KeyValueStore(PostgresBackingMap(other, spec), log=PostgresKeyValueLog(other, spec))
    successor.put(A, "successor's")
    successor.flush()

    with pytest.raises(FencedError):
        left.flush()

    assert [row.value for _, row in PostgresBackingMap(conn, spec).scan()] == ["successor's"]

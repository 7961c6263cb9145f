"""The store against a model: after any calls it reads as a dict does, after a crash as it did at the checkpoint.

A crash loses the process: the store, its write buffer, and sometimes the rows. The log and the last checkpoint stay.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.state_backends.examples import examples
from tests.state_backends.key_value.conftest import SETTINGS
from tidegauge.state_backends.key_value.store import KeyValueStore

keys = st.sampled_from([(name,) for name in "abcde"])
values = st.integers(0, 3) | st.lists(st.integers(0, 1), max_size=2)


class Model(RuleBasedStateMachine):
    new_backing: Any
    new_log: Any

    def __init__(self) -> None:
        super().__init__()
        self.backing = self.new_backing(SETTINGS)
        self.log = self.new_log(self.backing.spec)
        self.open()
        self.dict: dict[Any, Any] = {}
        self.checkpoint: tuple[int, dict[Any, Any]] = (0, {})

    def open(self) -> None:
        self.store = KeyValueStore(self.backing, cache_keys=2, write_batch_keys=3, restore_batch_keys=2, log=self.log)

    @rule(entries=st.lists(st.tuples(keys, values), max_size=6))
    def put_all(self, entries):
        self.store.put_all(entries)
        self.dict |= dict(entries)

    @rule(key=keys, value=values)
    def put(self, key, value):
        self.store.put(key, value)
        self.dict[key] = value

    @rule(gone=st.lists(keys, max_size=3))
    def delete_all(self, gone):
        self.store.delete_all(gone)
        for key in gone:
            self.dict.pop(key, None)

    @rule(key=keys)
    def get(self, key):
        assert self.store.get(key) == self.dict.get(key)

    @rule(asked=st.lists(keys, max_size=7))
    def get_all(self, asked):
        assert self.store.get_all(asked) == {key: self.dict[key] for key in asked if key in self.dict}

    @rule(start=keys, stop=keys)
    def range(self, start, stop):
        expected = sorted((key, value) for key, value in self.dict.items() if start <= key < stop)

        assert list(self.store.range(start, stop)) == expected

    @rule(key=keys)
    def an_open_iterator_keeps_the_old_view(self, key):
        before, opened = sorted(self.dict.items(), key=lambda entry: entry[0]), self.store.all()
        self.delete_all([key])

        assert list(opened) == before

    @rule()
    def flush_and_checkpoint(self):
        self.checkpoint = (self.store.flush(), dict(self.dict))

    @rule()
    def close_and_open(self):
        self.store.close()
        self.open()

    @rule(rows_are_lost=st.booleans())
    def crash_and_restore(self, rows_are_lost):
        if rows_are_lost:
            self.backing = self.new_backing(SETTINGS)
        self.open()
        position, kept = self.checkpoint
        self.store.restore(upto=position)
        self.dict = dict(kept)

    @rule()
    def compact_the_log(self):
        self.log.compact(upto=self.checkpoint[0])

    @rule(rows_are_lost=st.booleans())
    def flush_crash_and_restore_to_the_end(self, rows_are_lost):
        self.store.flush()
        if rows_are_lost:
            self.backing = self.new_backing(SETTINGS)
        self.open()
        self.store.restore()

    @invariant()
    def no_more_waits_than_a_batch(self):
        assert len(self.store._buffer) < 3
        assert len(self.store._cache) <= 2


def test_the_store_reads_as_a_dict_does(backend, new_backing, new_log):
    model = type(
        "OverOneBackend", (Model,), {"new_backing": staticmethod(new_backing), "new_log": staticmethod(new_log)}
    )

    run_state_machine_as_test(model, settings=examples(30 if backend == "memory" else 6, stateful_step_count=25))

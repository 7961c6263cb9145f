"""Any run of batches, failures, replays with other contents, restarts and stale writers ends as one clean run would.

A plain dict model is fed each batch once, when it is committed. Runs over every backend; what SQL merges, and what the
ledger guards, is driven the same way in test_exactly_once.py.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.state_backends.examples import examples
from tidegauge.state_backends import Combine, OpaqueMap, StateSpec, TransactionalMap
from tidegauge.state_backends.errors import StaleBatchError

TTL = timedelta(hours=1)
WAIT = timedelta(minutes=25)
KEYS = [("a",), ("b",), ("c",)]
COUNTS = StateSpec("counts", key={"word": "text"}, value="jsonb", ttl=TTL)

# What one call brings for each key: a number to add, None to remove it, "" to leave it alone.
calls = st.lists(st.sampled_from([0, 1, 2, 3, None, ""]), min_size=3, max_size=3)
batches = st.lists(calls, max_size=3)


class Run(RuleBasedStateMachine):
    """One opaque state and its writers."""

    map_class: Any = OpaqueMap

    def __init__(self) -> None:
        super().__init__()
        self.backing = self.new_backing()
        self.counts = self.map_class(self.backing)
        self.stale: list[tuple[int, Any]] = []
        self.clock = datetime(2013, 1, 1, tzinfo=UTC)
        self.committed: dict[Any, tuple[int, datetime]] = {}
        self.building: dict[Any, tuple[int, datetime]] = {}
        self.txid = 0
        self.is_open = False  # a batch has been begun and not been committed
        self.is_alive = False  # and its writer is still running

    def live(self, rows: dict[Any, tuple[int, datetime]]) -> list[int | None]:
        return [rows[key][0] if key in rows and self.clock - rows[key][1] < TTL else None for key in KEYS]

    @precondition(lambda self: not self.is_alive)
    @rule(batch=batches)
    def begin(self, batch: Any) -> None:
        """The next batch, or another attempt at the one that was left."""
        self.counts.begin_commit(self.txid + 1, at=self.clock)
        if self.is_open:
            self.counts.rollback(self.txid + 1)
        self.building = dict(self.committed)
        self.is_open = self.is_alive = True
        self.calls: list[Any] = []
        for call in batch:
            self.update(call)

    @precondition(lambda self: self.is_alive)
    @rule()
    def run_the_task_again(self) -> None:
        """Its acknowledgement was lost, so another executor runs it again over the rows that are there already."""
        calls, self.calls = self.calls, []
        self.counts = self.map_class(self.backing)
        self.counts.begin_commit(self.txid + 1, at=self.clock)
        self.building = dict(self.committed)
        touched = {key for call in calls for key, n in zip(KEYS, call, strict=True) if n != ""}
        for call in calls:
            self.update(call, touched)

    @precondition(lambda self: self.is_alive)
    @rule(call=calls)
    def update(self, call: Any, seen: Any = KEYS) -> None:
        self.calls.append(call)
        added = [(key, n) for key, n in zip(KEYS, call, strict=True) if n not in (None, "")]
        removed = [key for key, n in zip(KEYS, call, strict=True) if n is None]
        expected = []
        for key, n in added:
            base = self.live(self.building)[KEYS.index(key)] or 0
            self.building[key] = (base + n, self.clock)
            expected.append(base + n)
        values = self.counts.multi_update([key for key, _ in added], [add(n) for _, n in added])
        assert values == expected
        self.counts.multi_remove(removed)
        for key in removed:
            self.building.pop(key, None)
        values = dict(zip(KEYS, zip(self.counts.multi_get(KEYS), self.live(self.building), strict=True), strict=True))
        assert all(values[key][0] == values[key][1] for key in seen)

    @precondition(lambda self: self.is_alive)
    @rule()
    def commit(self) -> None:
        self.txid += 1
        self.counts.commit(self.txid)
        self.stale.append((self.txid, self.counts))
        self.counts = self.map_class(self.backing)
        self.committed, self.is_open, self.is_alive = self.building, False, False

    @precondition(lambda self: self.is_alive)
    @rule(restarts=st.booleans())
    def fail(self, restarts: bool) -> None:
        self.is_alive = False
        if restarts:
            self.counts = self.map_class(self.backing)

    @precondition(lambda self: not self.is_open)
    @rule(times=st.integers(1, 3))
    def let_time_pass(self, times: int) -> None:
        self.clock += times * WAIT

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def a_stale_writer_is_refused(self, data: Any) -> None:
        """It may not touch what newer batches wrote. (What they did not write only the ledger can keep from it.)"""
        txid, counts = data.draw(st.sampled_from(self.stale[-3:]))
        newer = [key for key, row in zip(KEYS, self.backing.multi_get(KEYS), strict=True) if row and row.txid > txid]
        counts.begin_commit(txid, at=self.clock)
        for key in newer:
            with pytest.raises(StaleBatchError):
                counts.multi_update([key], [add(100)])

    @precondition(lambda self: not self.is_open)
    @rule()
    def delete_what_has_expired(self) -> None:
        """Expiry and compaction, for backing maps without SQL."""
        dead = [key for key, seen in zip(KEYS, self.live(self.committed), strict=True) if seen is None]
        self.backing.multi_remove(dead)

    @precondition(lambda self: not self.is_open)
    @invariant()
    def readers_see_what_is_committed(self) -> None:
        reader = self.map_class(self.backing)
        reader.begin_commit(None, at=self.clock)

        assert reader.multi_get(KEYS) == self.live(self.committed)


class TransactionalRun(Run):
    """One transactional state, whose source replays a batch with the same contents."""

    map_class = TransactionalMap

    @precondition(lambda self: not self.is_alive)
    @rule(batch=batches, tries=st.integers(1, 3), reach=st.integers(0, 3))
    def begin(self, batch: Any, tries: int, reach: int) -> None:
        """One update per key and batch, as grouped tuples bring it; a try that fails gets no further than `reach`."""
        self.building = dict(self.committed)
        numbers = {key: n for call in batch for key, n in zip(KEYS, call, strict=True) if n not in (None, "")}
        for number in range(tries):
            self.counts = self.map_class(self.backing)
            self.counts.begin_commit(self.txid + 1, at=self.clock)
            for key, n in list(numbers.items())[: None if number == tries - 1 else reach]:
                self.counts.multi_update([key], [add(n)])
        for key, n in numbers.items():
            self.building[key] = ((self.live(self.committed)[KEYS.index(key)] or 0) + n, self.clock)
        self.is_alive = True
        self.commit()

    @precondition(lambda self: False)
    @rule()
    def run_the_task_again(self) -> None:
        """Covered by begin."""


def add(number: int) -> Combine:
    return Combine(lambda stored, partial: stored + partial, number)


@pytest.mark.parametrize("machine", [Run, TransactionalRun], ids=["opaque", "transactional"])
def test_any_run_ends_as_one_clean_run(machine, backend, new_backing):
    kind = "opaque" if machine is Run else "transactional"
    spec = StateSpec(COUNTS.name, key=COUNTS.key, value="jsonb", ttl=TTL, kind=kind)
    bound = type("Bound", (machine,), {"new_backing": staticmethod(lambda: new_backing(spec))})

    run_state_machine_as_test(
        bound,
        settings=examples(4 if backend in ("postgres", "redis") else 15, stateful_step_count=25),
    )

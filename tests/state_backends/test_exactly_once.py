"""Under failures, retries, stale tasks and clean-up, readers see what one clean run makes.

A plain dict model is fed each batch once, when it is committed. Between any two steps, and so in the middle of
batches too, both states of the pipeline must read as the model does: whole batches, at one txid.
"""

from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.state_backends.examples import examples
from tests.state_backends.feed import Feed, let_time_pass
from tidegauge.state_backends import Batch, BatchLedger, Changelog, Count, Max, StateReader, StateSpec, Sum, maintenance
from tidegauge.state_backends.errors import BatchOrderError, FencedError, OutOfReachError, TidegaugeError
from tidegauge.state_backends.maintenance import compact, expire

TTL = timedelta(hours=1)
WAIT = timedelta(minutes=25)  # two of them are within the ttl and three are not, by minutes either way
KEYS = [("a",), ("b",), ("c",), ("d",)]
VISITS = StateSpec("visits", key={"page": "text"}, measures={"n": Count()}, ttl=TTL, changelog=True)
SALES = StateSpec(
    "sales", key={"page": "text"}, measures={"total": Sum("x", "double precision"), "top": Max("x")}, partitions=2
)

# What a batch brings for each key of each state; 0 leaves the key out.
amounts = st.tuples(*[st.integers(0, 3)] * len(KEYS))
batches = st.tuples(amounts, amounts)
_numbers = count(1)


class Pipeline(RuleBasedStateMachine):
    url: str

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.executor, self.eye, driver = (self.connect() for _ in range(3))
        number = next(_numbers)
        self.specs = [replace(spec, name=f"{spec.name}_of_{number}") for spec in (VISITS, SALES)]
        self.feed = Feed(driver, self.specs, pipeline=f"of_{number}")
        self.offset = timedelta()  # how much time has passed in all
        self.batch: Batch | None = None  # the attempt under way; None between attempts
        self.clock = datetime.min  # the time of the batch that was begun last, the same for all attempts
        self.left_open = False  # a batch is open, whether or not an attempt is under way
        self.written: dict[int, Any] = {}  # what this attempt wrote, by state
        self.zombies: list[Batch] = []
        self.visits: dict[Any, tuple[int, datetime]] = {}
        self.sales: dict[Any, tuple[float, float]] = {}
        self.txid = 0
        self.before: Any = None  # the model a batch ago, where the ledger can go back to it
        self.reach = 0  # the oldest batch that the changelog covers
        self.past: dict[int, Any] = {0: ({}, {})}  # what readers saw at each batch, at its time

    def connect(self) -> psycopg.Connection:
        return self.stack.enter_context(psycopg.connect(self.url, autocommit=True))

    def teardown(self) -> None:
        self.stack.close()

    @initialize(rows=batches)
    def run_the_first_batch(self, rows: Any) -> None:
        self.begin(rows)
        self.commit()

    # What a driver and its tasks do

    @precondition(lambda self: self.batch is None)
    @rule(rows=batches)
    def begin(self, rows: Any) -> None:
        """The next batch, or the one that an earlier driver left open; each state is a task."""
        self.attempt(self.feed.next_batch_id(), retry=self.left_open)
        self.run_the_tasks(rows)

    @precondition(lambda self: self.batch is not None)
    @rule(rows=batches, half=st.booleans())
    def fail_and_try_again(self, rows: Any, half: bool) -> None:
        self.zombies.append(self.batch)
        self.attempt(self.feed.next_batch_id(), retry=True)
        if half:
            self.run_a_task(0, rows[0])
        else:
            self.run_the_tasks(rows)

    @precondition(lambda self: self.batch is None and not self.left_open and self.before)
    @rule(rows=batches)
    def bring_the_committed_batch_again(self, rows: Any) -> None:
        self.visits, self.sales, self.txid = self.before
        self.attempt(self.feed.next_batch_id() - 1, retry=True)
        self.run_the_tasks(rows)

    @precondition(lambda self: self.left_open and self.txid)
    @rule()
    def bring_the_committed_batch_after_the_next_has_begun(self) -> None:
        with pytest.raises(BatchOrderError):
            self.feed.begin(self.feed.next_batch_id() - 1)

    def attempt(self, batch_id: int, *, retry: bool) -> None:
        batch = self.feed.begin(batch_id)
        assert batch is not None
        assert (batch.txid, batch.is_retry) == (self.txid + 1, retry)
        assert self.clock == batch.batch_time + self.offset or not self.left_open
        self.clock = batch.batch_time + self.offset
        self.batch, self.left_open, self.written, self.before = batch, True, {}, None

    def run_the_tasks(self, rows: Any) -> None:
        for state, state_rows in enumerate(rows):
            self.run_a_task(state, state_rows)

    @precondition(lambda self: self.batch is not None)
    @rule(state=st.sampled_from([0, 1]), rows=amounts)
    def run_a_task(self, state: int, rows: Any) -> None:
        """A task that has run before in this attempt runs again, with what it had."""
        self.write(self.batch, state, self.written.setdefault(state, rows))

    @precondition(lambda self: self.batch is not None)
    @rule(state=st.sampled_from([0, 1]), rows=amounts)
    def kill_a_task(self, state: int, rows: Any) -> None:
        with self.executor.transaction(force_rollback=True):
            self.write(self.batch, state, rows)

    def write(self, batch: Batch | None, state: int, rows: Any) -> None:
        assert batch is not None
        self.feed.apply(
            batch,
            self.specs[state],
            [
                {"page": page} | ({"total": float(n), "top": float(n)} if state else {"n": n})
                for (page,), n in zip(KEYS, rows, strict=True)
                if n
            ],
            self.executor,
        )

    @precondition(lambda self: self.batch is not None)
    @rule()
    def commit(self) -> None:
        assert self.batch is not None
        before = (dict(self.visits), dict(self.sales), self.txid)
        self.feed.ledger.commit(self.batch)
        clock = self.clock
        for key, n in zip(KEYS, self.written.get(0, ()), strict=False):
            if n:
                base, at = self.visits.get(key, (0, clock))
                self.visits[key] = (n + (base if clock - at < TTL else 0), clock)
        for key, n in zip(KEYS, self.written.get(1, ()), strict=False):
            if n:
                total, top = self.sales.get(key, (0.0, 0.0))
                self.sales[key] = (total + n, max(top, n))
        self.txid = self.batch.txid
        self.past[self.txid] = (self.live_visits(clock), self.all_sales())
        self.zombies.append(self.batch)
        self.batch, self.left_open, self.before = None, False, before

    # Failures and clean-up

    @rule(cut=st.booleans())
    def restart_the_driver(self, cut: bool) -> None:
        stale = self.feed.ledger
        if cut:
            self.feed.conn.close()
        else:
            stale.release()
        self.feed.conn = self.connect()
        self.feed.ledger = BatchLedger(self.feed.conn, self.feed.pipeline)
        self.take_over()
        self.feed.ledger.bind("checkpoint")
        if self.batch is not None:
            self.zombies.append(self.batch)
        self.batch = None
        if not cut:
            with pytest.raises(TidegaugeError):
                stale.begin(self.feed.next_batch_id())

    def take_over(self) -> None:
        for _ in range(200):  # the server notices a moment later that a session has ended
            with suppress(TidegaugeError):
                self.feed.ledger.acquire()
                return
            self.eye.execute("SELECT pg_sleep(0.01)")
        self.feed.ledger.acquire()

    @precondition(lambda self: self.zombies)
    @rule(data=st.data(), state=st.sampled_from([0, 1]), rows=amounts)
    def a_task_of_an_older_attempt_comes_late(self, data: Any, state: int, rows: Any) -> None:
        zombie = data.draw(st.sampled_from(self.zombies[-3:]))
        with pytest.raises(FencedError):
            self.write(zombie, state, rows)
        with pytest.raises(FencedError):
            self.feed.ledger.commit(zombie)

    @rule(times=st.integers(1, 3), then_expire=st.booleans())
    def let_time_pass(self, times: int, then_expire: bool) -> None:
        let_time_pass(self.eye, self.specs, self.feed.pipeline, times * WAIT)
        self.offset += times * WAIT
        if self.batch is not None:
            self.batch = replace(self.batch, batch_time=self.batch.batch_time - times * WAIT)
        if then_expire:
            list(expire(self.eye, self.specs[0]))

    @rule(state=st.sampled_from([0, 1]))
    def compact(self, state: int) -> None:
        list(compact(self.eye, self.specs[state], keep=timedelta()))
        if state == 0:
            self.reach = max(self.reach, self.txid - 1)

    # Invariants

    @invariant()
    def readers_see_the_last_committed_batch_whole(self) -> None:
        now = datetime.now().astimezone() + self.offset
        visits, sales = (StateReader(self.eye, spec).multi_get(KEYS) for spec in self.specs)

        assert (visits.txid, sales.txid) == (self.txid, self.txid)
        assert found(visits) == self.live_visits(now)
        assert found(sales) == self.all_sales()

    def live_visits(self, clock: datetime) -> dict[Any, Any]:
        return {key: {"n": n} for key, (n, at) in self.visits.items() if clock - at < TTL}

    def all_sales(self) -> dict[Any, Any]:
        return {key: {"total": total, "top": top} for key, (total, top) in self.sales.items()}

    @invariant()
    def readers_of_the_batch_before_see_what_was_seen_then(self) -> None:
        """The state without a changelog answers for keys that have not been overwritten twice since."""
        for txid in range(max(self.txid - 1, 0), self.txid + 1):
            visits, sales = self.past[txid]
            with suppress(OutOfReachError) if txid < self.reach else nullcontext():
                assert found(StateReader(self.eye, self.specs[0]).multi_get(KEYS, at_txid=txid)) == visits
            for key in KEYS:
                with suppress(OutOfReachError):
                    answered = found(StateReader(self.eye, self.specs[1]).multi_get([key], at_txid=txid))
                    assert answered == ({key: sales[key]} if key in sales else {})

    @precondition(lambda self: not self.left_open)
    @invariant()
    def the_changelog_ends_with_what_is_committed(self) -> None:
        newest = {key: Changelog(self.eye, self.specs[0]).history(key, limit=1) for key in KEYS}

        assert {key: changes[0].value["n"] for key, changes in newest.items() if changes} == {
            key: n for key, (n, _) in self.visits.items()
        }


def found(snapshot: Any) -> dict[Any, Any]:
    return {tuple(row["key"]): row["value"] for row in snapshot.parsed() if row["status"] == "found"}


def test_any_run_reads_as_one_clean_run(installed_url, monkeypatch):
    monkeypatch.setattr(maintenance, "PAGE_ROWS", 2)
    machine = type("Bound", (Pipeline,), {"url": installed_url})

    run_state_machine_as_test(
        machine,
        settings=examples(6, stateful_step_count=30),
    )


class TestTheHole:
    """A failed attempt wrote a key and its replay lacks it; the key's tuple arrives in the batch after."""

    @pytest.fixture
    def feed(self, new_feed, fresh):
        feed = new_feed(fresh(replace(VISITS, ttl=None, changelog=False)))
        feed.run([{"page": "dog", "n": 7}, {"page": "cat", "n": 1}])
        return feed

    @pytest.mark.parametrize("replay", [[{"page": "cat", "n": 1}], []])
    def test_is_closed(self, feed, replay):
        (spec,) = feed.specs
        feed.apply(feed.begin(1), spec, [{"page": "dog", "n": 1}, {"page": "new", "n": 1}])

        feed.run(replay)
        assert feed.read(spec, ("dog",), ("new",)) == [{"n": 7}, "missing"]
        feed.run([{"page": "dog", "n": 1}, {"page": "new", "n": 1}])

        assert feed.read(spec, ("dog",), ("new",), ("cat",)) == [{"n": 8}, {"n": 1}, {"n": 1 + len(replay)}]

    def test_is_closed_for_a_committed_batch_that_came_again(self, feed):
        (spec,) = feed.specs
        feed.run([{"page": "dog", "n": 1}])

        feed.run([{"page": "cat", "n": 1}], batch_id=1)
        feed.run([{"page": "dog", "n": 1}])

        assert feed.read(spec, ("dog",), ("cat",)) == [{"n": 8}, {"n": 2}]

    def test_a_version_used_up_by_a_reverted_batch_is_not_mistaken_for_a_new_key(self, feed):
        (spec,) = feed.specs
        feed.run([{"page": "dog", "n": 1}])
        feed.apply(feed.begin(2), spec, [{"page": "dog", "n": 1}])
        feed.begin(2)

        with pytest.raises(BatchOrderError):
            feed.begin(1)

        assert feed.read(spec, ("dog",)) == [{"n": 8}]

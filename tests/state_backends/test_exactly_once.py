"""Whatever fails, is tried again, comes late or is cleaned up meanwhile, readers see what one clean run would have made.

A plain dict model is fed each batch once, when it is committed. Between any two steps, and so in the middle of
batches too, both states of the pipeline must read as the model does: whole batches, at one txid.
"""

from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from state_backends import Batch, BatchLedger, Changelog, Count, Max, StateReader, StateSpec, Sum
from state_backends.errors import BatchOrderError, FencedError, TidemarkError
from state_backends.journal import trim
from state_backends.journal.compaction import compact
from state_backends.journal.expiry import expire
from tests.state_backends.feed import Feed, let_time_pass

TTL = timedelta(hours=1)
WAIT = timedelta(minutes=25)  # two of them are within the ttl and three are not, by minutes either way
KEYS = [("a",), ("b",), ("c",), ("d",)]
VISITS = StateSpec("visits", key={"page": "text"}, measures={"n": Count()}, ttl=TTL, changelog=True)
SALES = StateSpec("sales", key={"page": "text"}, measures={"total": Sum("x"), "top": Max("x")}, partitions=2)

# A task writes the keys of its partition: a and b, or c and d.
task = st.sampled_from([0, 1])
amounts = st.tuples(*[st.none() | st.integers(1, 9)] * 2)
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
        self.left_open = False  # a batch is open and nobody is at it
        self.tasks: dict[tuple[int, int], Any] = {}  # what this attempt wrote, by state and task
        self.zombies: list[Batch] = []
        self.visits: dict[Any, tuple[int, datetime]] = {}
        self.sales: dict[Any, tuple[float, float]] = {}
        self.txid = 0
        self.before: Any = None  # the model a batch ago, where the ledger can go back to it

    def connect(self) -> psycopg.Connection:
        return self.stack.enter_context(psycopg.connect(self.url, autocommit=True))

    def teardown(self) -> None:
        self.stack.close()

    # What a driver and its tasks do

    @precondition(lambda self: self.batch is None)
    @rule()
    def begin(self) -> None:
        """The next batch, or the one that an earlier driver left open."""
        self.attempt(self.feed.next_batch_id(), retry=self.left_open)

    @precondition(lambda self: self.batch is not None)
    @rule()
    def fail_and_try_again(self) -> None:
        self.zombies.append(self.batch)
        self.attempt(self.feed.next_batch_id(), retry=True)

    @precondition(lambda self: self.batch is None and not self.left_open and self.before)
    @rule()
    def bring_the_committed_batch_again(self) -> None:
        self.visits, self.sales, self.txid = self.before
        self.attempt(self.feed.next_batch_id() - 1, retry=True)

    @precondition(lambda self: self.left_open or self.batch is not None)
    @rule()
    def bring_the_committed_batch_after_the_next_has_begun(self) -> None:
        if self.txid:
            with pytest.raises(BatchOrderError):
                self.feed.begin(self.feed.next_batch_id() - 1)

    def attempt(self, batch_id: int, *, retry: bool) -> None:
        batch = self.feed.begin(batch_id)
        assert batch is not None
        assert (batch.txid, batch.is_retry) == (self.txid + 1, retry)
        self.batch, self.left_open, self.tasks, self.before = batch, True, {}, None

    @precondition(lambda self: self.batch is not None)
    @rule(state=task, part=task, amounts=amounts, twice=st.booleans())
    def run_a_task(self, state: int, part: int, amounts: Any, twice: bool) -> None:
        """A task that has run before in this attempt runs again, with what it had."""
        amounts = self.tasks.setdefault((state, part), amounts)
        for _ in range(1 + twice):
            self.write(self.batch, state, part, amounts)

    @precondition(lambda self: self.batch is not None)
    @rule(state=task, part=task, amounts=amounts)
    def kill_a_task(self, state: int, part: int, amounts: Any) -> None:
        with self.executor.transaction(force_rollback=True):
            self.write(self.batch, state, part, amounts)

    def write(self, batch: Batch | None, state: int, part: int, amounts: Any) -> None:
        assert batch is not None
        written = [(key, amount) for key, amount in zip(KEYS[2 * part :], amounts, strict=False) if amount]
        rows = [{"page": key[0]} | ({"total": float(n), "top": float(n)} if state else {"n": n}) for key, n in written]
        self.feed.apply(batch, self.specs[state], rows, self.executor)

    @precondition(lambda self: self.batch is not None)
    @rule()
    def commit(self) -> None:
        assert self.batch is not None
        before = (dict(self.visits), dict(self.sales), self.txid)
        self.feed.ledger.commit(self.batch)
        clock = self.batch.batch_time + self.offset
        for (state, part), amounts in self.tasks.items():
            for key, amount in zip(KEYS[2 * part :], amounts, strict=False):
                if amount and state:
                    total, top = self.sales.get(key, (0.0, 0.0))
                    self.sales[key] = (total + amount, max(top, amount))
                elif amount:
                    base, at = self.visits.get(key, (0, clock))
                    self.visits[key] = (amount + (base if clock - at < TTL else 0), clock)
        self.txid = self.batch.txid
        self.zombies.append(self.batch)
        self.batch, self.left_open, self.before = None, False, before

    # What goes wrong beside it

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
            with pytest.raises(TidemarkError):
                stale.begin(self.feed.next_batch_id())

    def take_over(self) -> None:
        for _ in range(200):  # the server notices a moment later that a session has ended
            with suppress(TidemarkError):
                self.feed.ledger.acquire()
                return
            self.eye.execute("SELECT pg_sleep(0.01)")
        self.feed.ledger.acquire()

    @precondition(lambda self: self.zombies)
    @rule(data=st.data(), state=task, part=task, amounts=amounts)
    def a_task_of_an_older_attempt_comes_late(self, data: Any, state: int, part: int, amounts: Any) -> None:
        zombie = data.draw(st.sampled_from(self.zombies))
        with pytest.raises(FencedError):
            self.write(zombie, state, part, amounts)
        with pytest.raises(FencedError):
            self.feed.ledger.commit(zombie)

    @rule()
    def let_time_pass(self) -> None:
        let_time_pass(self.eye, self.specs, self.feed.pipeline, WAIT)
        self.offset += WAIT
        if self.batch is not None:
            self.batch = replace(self.batch, batch_time=self.batch.batch_time - WAIT)

    @rule()
    def expire(self) -> None:
        list(expire(self.eye, self.specs[0]))

    @rule(state=task)
    def compact(self, state: int) -> None:
        list(compact(self.eye, self.specs[state], keep=timedelta()))

    # What must hold at any time

    @invariant()
    def readers_see_the_last_committed_batch_whole(self) -> None:
        now = datetime.now().astimezone() + self.offset
        visits, sales = (StateReader(self.eye, spec).multi_get(KEYS) for spec in self.specs)
        live = {key: {"n": n} for key, (n, at) in self.visits.items() if now - at < TTL}

        assert (visits.txid, sales.txid) == (self.txid, self.txid)
        assert found(visits) == live
        assert found(sales) == {key: {"total": total, "top": top} for key, (total, top) in self.sales.items()}

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
    monkeypatch.setattr(trim, "PAGE_ROWS", 2)
    machine = type("Bound", (Pipeline,), {"url": installed_url})

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
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

    def test_is_closed_for_a_batch_that_was_committed_and_came_again(self, feed):
        (spec,) = feed.specs
        feed.run([{"page": "dog", "n": 1}])

        feed.run([{"page": "cat", "n": 1}], batch_id=1)
        feed.run([{"page": "dog", "n": 1}])

        assert feed.read(spec, ("dog",), ("cat",)) == [{"n": 8}, {"n": 2}]

    def test_a_version_used_up_by_an_undone_batch_is_not_mistaken_for_a_new_key(self, feed):
        (spec,) = feed.specs
        feed.run([{"page": "dog", "n": 1}])
        feed.apply(feed.begin(2), spec, [{"page": "dog", "n": 1}])
        feed.begin(2)

        with pytest.raises(BatchOrderError):
            feed.begin(1)

        assert feed.read(spec, ("dog",)) == [{"n": 8}]

"""Trident's worked cases (tests/vectors/trident.json), run in memory, and two of them over every store.

`conform` cases hold as written. Where Storm's own result breaks exactly-once, ours must reach the right one. Where
Storm's behaviour is a matter of taste, CHOICES says what ours is, and why.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.contracts.backends import STORES
from tidegauge.state_backends import (
    Combine,
    OpaqueMap,
    RedisBackingMap,
    Reduce,
    Replace,
    SnapshottableMap,
    StateSpec,
    Versioned,
)
from tidegauge.state_backends.backends.wrappers import CachedMap
from tidegauge.state_backends.errors import FencedError, StaleBatchError
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.state_backends.maps import MAPS

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "trident.json").read_text())["vectors"]

# Storm's MemoryMapState: an opaque map with a global value under a key of its own, and removal.
MEMORY_MAP_STATE_KEY = ["$MEMORY-MAP-STATE-GLOBAL$"]

# The time of every batch; rows without one are not cached, as the store would give them its own.
BATCH_TIME = datetime(2013, 1, 1, tzinfo=UTC)

# Two attempts at work at once: no map can tell them apart, the ledger does. Their cases run below, with a ledger.
NEED_A_LEDGER = ["opaque_zombie_same_txid_interleaved_write", "opaque_zombie_write_after_next_batch_committed"]

# Chunks of a call: an option of backing maps whose stores take small requests, and so run below, over one.
NEED_SMALL_CALLS = ["micro_batch_chunks"]


@dataclass(frozen=True)
class Choice:
    """What ours does where Storm's way is a quirk. expect: step number to result; final None: as Storm's."""

    why: str
    expect: dict[int, Any] = field(default_factory=dict)
    final: list[dict[str, Any]] | None = None


CHOICES = {
    "opaque_duplicate_key_in_one_call_last_wins": Choice(
        "both updates count", {1: [11, 13]}, [{"key": ["a"], "value": 13, "prev": 10, "txid": 2}]
    ),
    "transactional_duplicate_key_in_one_call_last_wins": Choice(
        "both updates count", {1: [11, 13]}, [{"key": ["a"], "value": 13, "txid": 2}]
    ),
    "opaque_null_txid_then_numbered_batch_fails": Choice(
        "outside a batch the row keeps its txid, so that the next batch finds it sound",
        {6: [5], 7: [6]},
        [{"key": ["a"], "value": 6, "prev": 5, "txid": 3}],
    ),
    "opaque_null_txid_replay_not_idempotent": Choice(
        "outside a batch no write can be recognised as a replay; the row keeps its txid",
        final=[{"key": ["a"], "value": 6, "prev": 1, "txid": 2}],
    ),
    "transactional_txid_behind_is_silent": Choice(
        "a batch older than the row is refused, as by opaque maps",
        {1: StaleBatchError},
        [{"key": ["a"], "value": 5, "txid": 8}],
    ),
    "opaque_outside_reader_sees_value_go_back": Choice(
        "the map itself shows what is stored; StateReader shows committed batches alone"
    ),
    "snapshottable_key_collides_with_user_key": Choice(
        "a key one names oneself is shared; the key of a state without key columns, (), cannot be"
    ),
    "memory_map_state_global_key_is_visible_in_get_tuples": Choice(
        "a global value under a key of its own is a row like others, and a scan goes in key order",
        {5: [[*MEMORY_MAP_STATE_KEY, 7], ["a", 1]]},
    ),
}


def layer(vector: dict[str, Any]) -> str | None:
    stack = vector.get("stack") or {}
    return stack if isinstance(stack, str) else next(iter(stack), None)


def ids(vectors: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(vector, id=vector["name"]) for vector in vectors]


RUNNABLE = [v for v in VECTORS if v["name"] not in [*NEED_A_LEDGER, *NEED_SMALL_CALLS]]


# The cases are about maps, not stores, so the others are run in memory. (The contract of maps runs over every store.)
ON_EVERY_STORE = ["storm_test_opaque_map", "storm_test_memory_map_state_remove"]


@pytest.fixture
def backend():
    return "memory"


def test_no_case_is_left_out():
    quirks = {v["name"] for v in RUNNABLE if v["disposition"] == "storm_quirk"}

    assert len(VECTORS) == len(RUNNABLE) + 3 == 38
    assert quirks == set(CHOICES)


@pytest.mark.parametrize(
    ("backend", "vector"),
    [
        pytest.param(backend, vector, id=f"{backend}-{vector['name']}")
        for vector in RUNNABLE
        for backend in (STORES if vector["name"] in ON_EVERY_STORE else ["memory"])
        if vector["disposition"] == "conform"
    ],
)
def test_conforms(vector, new_backing):
    run = Run(vector, new_backing)

    run.all_steps()

    assert run.rows() == expected_rows(vector["final"], run)


@pytest.mark.parametrize("vector", ids([v for v in RUNNABLE if v["disposition"] == "storm_quirk"]))
def test_quirk_is_our_choice(vector, new_backing):
    choice = CHOICES[vector["name"]]
    ours = {step: {"expect": expected, "expect_error": False} for step, expected in choice.expect.items()}
    steps = [step | ours.get(number, {}) for number, step in enumerate(vector["steps"])]
    run = Run(vector | {"steps": steps}, new_backing)

    run.all_steps()

    assert run.rows() == expected_rows(vector["final"] if choice.final is None else choice.final, run)


@pytest.mark.parametrize("vector", ids([v for v in RUNNABLE if v["disposition"] == "storm_defect"]))
def test_defect_is_closed_by_rolling_a_failed_attempt_back(vector, new_backing):
    run = Run(vector, new_backing, rolls_back=True)

    run.all_steps(check=False)

    assert run.rows() == expected_rows(vector["exactly_once_final"], run)


class StoreDown(Exception):
    """The store has refused a write, and nothing of it is stored."""


class Store:
    """The backing map of a case, which can be made to refuse a write."""

    is_down = False

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def multi_put(self, keys: Any, rows: Any) -> None:
        if self.is_down:
            raise StoreDown
        self._inner.multi_put(keys, rows)


class Run:
    """One case over one backend: an instance is a map object of its own over the same rows.

    A removed key leaves a tombstone, which readers cannot tell from absence: where the case removes, nor do we.
    """

    def __init__(self, vector: dict[str, Any], new_backing, *, rolls_back: bool = False) -> None:
        self.vector = vector
        self.rolls_back = rolls_back
        self.arity = max(map(len, self._keys(vector)))
        self.new_backing = new_backing
        self.spec = StateSpec(
            "cases",
            key={f"part_{number}": "text" for number in range(self.arity)},
            value="jsonb",
            kind=vector["map_kind"],
        )
        self.kind = self.spec.kind
        self.backing = Store(new_backing(self.spec))
        self.layer = layer(vector)
        self.maps: dict[str, Any] = {}
        self.last_txid: int | None = None
        self.put([*vector["initial"]])

    def put(self, rows: list[dict[str, Any]]) -> None:
        self.backing.multi_put([self.key(row["key"]) for row in rows], [versioned(row) for row in rows])

    def rows(self) -> dict[Any, Any]:
        kept = {
            "opaque": ("value", "prev", "txid"),
            "transactional": ("value", "txid"),
            "non_transactional": ("value",),
        }
        return {
            key: tuple(getattr(row, name) for name in kept[self.kind])
            for key, row in self.backing.scan()
            if row.value is not None or self.layer != "memory_map_state"
        }

    def all_steps(self, *, check: bool = True) -> None:
        for step in self.vector["steps"]:
            refused = StoreDown if step.get("fail_store_put") else StaleBatchError
            expected = refused if step.get("expect_error") else step.get("expect")
            if not check:
                # What Storm lets pass may be refused here.
                with suppress(StaleBatchError):
                    self.step(step)
            elif isinstance(expected, type):
                with pytest.raises(expected):
                    self.step(step)
            else:
                result = self.step(step)
                assert "expect" not in step or result == expected, step

    def step(self, step: dict[str, Any]) -> Any:
        counts = self.map_of(step.get("instance", "A"))
        self.backing.is_down = step.get("fail_store_put", False)
        arguments = step.get("args")
        match step["op"]:
            case "begin_commit":
                counts.begin_commit(step["txid"], BATCH_TIME)
                if self.rolls_back and step["txid"] == self.last_txid:
                    counts.rollback(self.last_txid)
                self.last_txid = step["txid"]
            case "commit":
                counts.commit(step["txid"])
            case "note":  # a replay that has no tuple for this partition
                if self.rolls_back:
                    counts.rollback(self.last_txid)
            case "multi_get":
                return counts.multi_get([self.key(key) for key in arguments])
            case "multi_update":
                keys = [self.key(item["key"]) for item in arguments]
                return counts.multi_update(keys, [updater(item["updater"]) for item in arguments])
            case "multi_put":
                counts.multi_put([self.key(item["key"]) for item in arguments], [item["value"] for item in arguments])
            case "multi_remove":
                counts.multi_remove([self.key(key) for key in arguments])
            case "store_write":
                self.put([step["row"]])
            case "get_tuples":
                return [[*key, row.value] for key, row in self.backing.scan() if row.value is not None]
            case "snapshot_get":
                return SnapshottableMap(counts, self.snapshot_key()).get()
            case "snapshot_update":
                return SnapshottableMap(counts, self.snapshot_key()).update(updater(arguments))
            case "value_get":
                counts.begin_commit(step["txid"])
                return counts.multi_get([self.key(step["key"])])[0]
            case "value_update":
                return self._value_update(step)
            case unknown:
                raise AssertionError(unknown)
        return None

    def map_of(self, instance: str) -> Any:
        if instance not in self.maps:
            cached = self.layer == "cached_map"
            backing = CachedMap(self.backing, self.vector["stack"]["cached_map"]) if cached else self.backing
            self.maps[instance] = MAPS[self.kind](backing)
        return self.maps[instance]

    def snapshot_key(self) -> tuple[str, ...]:
        stack = self.vector["stack"]
        return self.key(MEMORY_MAP_STATE_KEY if stack == "memory_map_state" else stack["snapshottable"])

    def _value_update(self, step: dict[str, Any]) -> dict[str, Any]:
        # Storm tests the value object, which does not store; here it is stored in a copy and looked at.
        key = self.key(step["key"])
        copy = self.new_backing(self.spec)
        copy.multi_put([key], self.backing.multi_get([key]))
        counts = MAPS[self.kind](copy)
        counts.begin_commit(step["txid"])
        counts.multi_put([key], [step["args"]])
        (after,) = copy.multi_get([key])
        return {"value": after.value, "prev": after.prev, "txid": after.txid}

    def key(self, parts: list[str]) -> tuple[str, ...]:
        # A state's keys are of one length; a shorter one is filled up.
        return (*parts, *[""] * (self.arity - len(parts)))

    def _keys(self, vector: dict[str, Any]) -> Iterator[list[str]]:
        yield from (row["key"] for row in [*vector["initial"], *vector["final"]])
        for step in vector["steps"]:
            items = step.get("args", []) if step["op"].startswith("multi_") else []
            yield from (item["key"] if isinstance(item, dict) else item for item in items)


def expected_rows(rows: list[dict[str, Any]], run: Run) -> dict[Any, Any]:
    kept = {"opaque": ("value", "prev", "txid"), "transactional": ("value", "txid"), "non_transactional": ("value",)}
    return {run.key(row["key"]): tuple(row[name] for name in kept[run.kind]) for row in rows}


def versioned(row: dict[str, Any]) -> Versioned:
    # The cases leave out which batch wrote the version before; any older one will do.
    prev_txid = row["txid"] - 1 if row.get("prev") is not None else None
    return Versioned(row["value"], row.get("txid"), row.get("prev"), prev_txid)


def updater(spec: dict[str, Any]) -> Any:
    if "add" in spec:
        return Combine(lambda stored, partial: stored + partial, spec["add"])
    if "reduce_sum" in spec:
        return Reduce(lambda: 0, lambda total, item: total + item, spec["reduce_sum"])
    return Replace(spec["set"])


class TestSmallCalls:
    def test_a_call_is_split_in_order(self, fresh):
        (vector,) = (v for v in VECTORS if v["name"] in NEED_SMALL_CALLS)
        client = redis.Redis.from_url(os.environ["REDIS_URL"])
        sizes = {f"{limit}_keys": size for limit, size in vector["stack"]["micro_batch"].items()}
        run = Run(vector, lambda spec: RedisBackingMap(client, fresh(spec), **sizes))
        before = script_calls(client)

        run.all_steps()

        expected = len(vector["expect_store_get_sizes"]) + len(vector["expect_store_put_sizes"])
        assert script_calls(client) - before == expected
        assert run.rows() == expected_rows(vector["final"], run)


def script_calls(client: redis.Redis) -> int:
    return client.info("commandstats")["cmdstat_evalsha"]["calls"]


class TestTwoAttemptsAtOnce:
    """Storm lets a leftover worker overwrite; here its read and write are one transaction, which the ledger refuses."""

    @pytest.fixture
    def zombie(self, fresh, new_feed):
        """A state as the case finds it at batch 4, its feed, and the attempt at batch 5 that is about to be left."""

        def zombie(name: str):
            (vector,) = (v for v in VECTORS if v["name"] == name)
            (row,) = vector["initial"]
            spec = fresh(StateSpec("cases", key={"word": "text"}, value="jsonb"))
            feed = new_feed(spec)
            feed.conn.execute(
                "UPDATE tidegauge.pipeline SET committed_txid = 4, committed_batch_id = 3 WHERE name = %s",
                [feed.pipeline],
            )
            feed.backing(spec).multi_put([("a",)], [versioned(row)])
            return feed, spec, feed.begin(4), vector["exactly_once_final"]

        return zombie

    def add(self, feed, spec, batch, number, conn=None):
        with (conn or feed.conn).transaction():
            lock_fence(conn or feed.conn, batch)
            counts = OpaqueMap(feed.backing(spec, conn))
            counts.begin_commit(batch.txid)
            counts.multi_update([("a",)], [Combine(lambda stored, partial: stored + partial, number)])

    def row(self, feed, spec):
        ((key, row),) = feed.backing(spec).scan()
        return {"key": list(key), "value": row.value, "prev": row.prev, "txid": row.txid}

    def test_the_older_attempt_at_the_same_batch_cannot_write(self, zombie, connect):
        feed, spec, left, final = zombie("opaque_zombie_same_txid_interleaved_write")

        counting = feed.begin(4)
        self.add(feed, spec, counting, 3)
        with pytest.raises(FencedError):
            self.add(feed, spec, left, 2, connect())
        feed.ledger.commit(counting)

        assert [self.row(feed, spec)] == final

    def test_an_attempt_at_an_older_batch_cannot_write(self, zombie, connect):
        feed, spec, left, final = zombie("opaque_zombie_write_after_next_batch_committed")

        for batch_id, number in [(4, 1), (5, 4)]:
            batch = feed.begin(batch_id)
            self.add(feed, spec, batch, number)
            feed.ledger.commit(batch)
        with pytest.raises(FencedError):
            self.add(feed, spec, left, 1, connect())
        batch = feed.begin(6)
        self.add(feed, spec, batch, 1)
        feed.ledger.commit(batch)

        assert [self.row(feed, spec)] == final

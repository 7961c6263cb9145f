"""Folding in Python and in Lua gives what SQL gives, whatever the kind: replays, expiry, removals, reverts and all."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

import psycopg
import pyarrow as pa
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from tests.state_backends.examples import examples
from tidegauge.state_backends import Count, Max, MemoryBackingMap, PostgresBackingMap, RedisBackingMap, StateSpec, Sum
from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.errors import DuplicateKeyError, StaleBatchError
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.maps.updaters import Fold
from tidegauge.state_backends.spec.table import StateTable

MIDNIGHT = datetime(2013, 1, 1, tzinfo=UTC)
TTL = timedelta(hours=2)
KINDS = ["opaque", "transactional", "non_transactional"]
SALES = StateSpec(
    "sales",
    key={"shop": "text"},
    measures={"n": Count(), "total": Sum("x", "double precision"), "top": Max("x")},
    ttl=TTL,
)


class FoldedInPython(Count):
    """A count as a user's own aggregator would be: SQL knows nothing of it."""

    fold_sql = {}  # noqa: RUF012


class FoldedMeanwhile(FoldedInPython):
    """A count that lets something happen while it is folded."""

    def __init__(self, happens):
        super().__init__()
        self.happens = happens

    def fold(self, stored, partial):
        self.happens()
        return super().fold(stored, partial)


IN_PYTHON = replace(SALES, measures={"n": FoldedInPython(), "total": Sum("x", "double precision"), "top": Max("x")})

_numbers = count(1)

sales = st.dictionaries(st.sampled_from("abc"), st.integers(1, 5), max_size=3)
# A batch and its replay, if any, the hours since the one before, and whether the failed attempt is undone first.
batches = st.lists(st.tuples(sales, st.none() | sales, st.integers(0, 3), st.booleans()), max_size=5)


def partials(rows):
    columns = {"shop": list(rows), "n": list(rows.values()), "total": [n / 2 for n in rows.values()]}
    return [pa.RecordBatch.from_pydict(columns | {"top": columns["total"]})] if rows else []


@pytest.fixture(params=KINDS)
def stores(request, conn, fresh):
    spec = fresh(replace(SALES, kind=request.param))
    return [*stores_of(conn, spec, replace(IN_PYTHON, name=spec.name + "_py", kind=request.param))]


@given(history=batches, removed=st.sampled_from(["", "a"]))
@examples(20)
def test_sql_and_python_fold_alike(history, removed, stores):
    """One set of tables serves every example, whose shops and txids are its own."""
    number = next(_numbers)
    own, clock = f"{number:05}", MIDNIGHT
    for txid, (rows, replay, hours, undo) in enumerate(history, 1 + 10 * number):
        clock += timedelta(hours=hours)
        for attempt in [rows] if replay is None else [rows, replay]:
            for backing, merge in stores:
                if attempt is replay and undo:
                    backing.revert(txid)
                merge(partials({own + shop: n for shop, n in attempt.items()}), txid, clock)
        for backing, _ in stores:
            if removed and backing.spec.kind == "opaque":
                counts = MAPS["opaque"](backing)
                counts.begin_commit(txid, at=clock)
                counts.multi_remove([(own + removed,)])

    in_sql, *others = [list(backing.scan(start=(own,), stop=(own + "z",))) for backing, _ in stores]
    assert all(rows == in_sql for rows in others)


def stores_of(conn, *specs):
    """Yield (backing map, merge): folded by SQL, by Python for PostgreSQL, by Lua, by Python for any backing map."""
    for spec in specs:
        tables.create(conn, StateTable(spec))
        yield PostgresBackingMap(conn, spec), merge_in_transaction(conn, spec)
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    in_lua, through_a_map = RedisBackingMap(client, specs[0]), RedisBackingMap(client, specs[-1])
    yield in_lua, in_lua.merge
    for backing in (MemoryBackingMap(specs[-1]), through_a_map):
        yield backing, partial(merge_through_a_map, backing)


def merge_in_transaction(conn, spec):
    def merge(batches, txid, clock):
        with conn.transaction():
            return PostgresBackingMap(conn, spec).merge(batches, txid, clock)

    return merge


def merge_through_a_map(backing, batches, txid, clock):
    counts = MAPS[backing.spec.kind](backing)
    counts.begin_commit(txid, at=clock)
    rows = [row for batch in batches for row in batch.to_pylist()]
    counts.multi_update([(row["shop"],) for row in rows], [Fold(backing.spec, row) for row in rows])
    return len(rows)


class TestPostgres:
    @pytest.fixture
    def state(self, conn, fresh):
        spec = fresh(IN_PYTHON)
        tables.create(conn, StateTable(spec))
        return PostgresBackingMap(conn, spec), merge_in_transaction(conn, spec)

    def test_a_global_state_folds_too(self, conn, fresh):
        spec = fresh(StateSpec("totals", measures={"n": FoldedInPython()}))
        tables.create(conn, StateTable(spec))
        merge = merge_in_transaction(conn, spec)

        assert [merge([pa.RecordBatch.from_pydict({"n": [txid]})], txid, MIDNIGHT) for txid in (1, 2)] == [1, 1]
        assert [row.value for _, row in PostgresBackingMap(conn, spec).scan()] == [{"n": 3}]

    def test_a_batch_of_more_rows_than_are_folded_at_a_time(self, state, monkeypatch):
        monkeypatch.setattr("tidegauge.state_backends.backends.postgres.rows.FOLDED_ROWS", 2)
        backing, merge = state
        rows = {f"{n:03}": n for n in range(7)}

        assert [merge(partials(rows), txid, MIDNIGHT) for txid in (1, 2)] == [7, 7]
        assert {key[0]: row.value["n"] for key, row in backing.scan()} == {key: 2 * n for key, n in rows.items()}

    def test_a_key_that_comes_twice_is_refused_and_an_older_batch_too(self, state):
        backing, merge = state
        merge(partials({"a": 1}), 2, MIDNIGHT)

        with pytest.raises(DuplicateKeyError):
            merge(partials({"a": 1}) + partials({"a": 2}), 3, MIDNIGHT)
        with pytest.raises(StaleBatchError, match="batch 1 is older than stored batch 2 for key"):
            merge(partials({"b": 1, "a": 1}), 1, MIDNIGHT)

        assert [(key, row.value["n"]) for key, row in backing.scan()] == [(("a",), 1)]

    def test_what_is_folded_upon_stays_locked_until_the_end(self, state, connect):
        """Else two runs of one task could both build upon the same row."""
        backing, merge = state
        merge(partials({"a": 1}), 1, MIDNIGHT)
        writer, other = connect(), connect()
        other.execute("SET lock_timeout = 50")
        refused = []

        def second_run():
            with pytest.raises(psycopg.errors.LockNotAvailable) as caught:
                merge_in_transaction(other, backing.spec)(partials({"a": 1}), 2, MIDNIGHT)
            refused.append(caught)

        spec = replace(backing.spec, measures=backing.spec.measures | {"n": FoldedMeanwhile(second_run)})
        merge_in_transaction(writer, spec)(partials({"a": 1}), 2, MIDNIGHT)

        assert len(refused) == 1

"""Redis as a backing map: how rows lie in it, calls in chunks, memory, and a cluster."""

import tracemalloc
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
import redis
from redis.cluster import RedisCluster

from tests.contracts.backends import emptied
from tests.contracts.backing_map import BackingMapContract
from tests.contracts.merge import FoldContract
from tests.state_backends.backends.redis_servers import cluster_node
from tests.state_backends.feed import arrow
from tidegauge.state_backends import Count, Max, Mean, StateSpec, Sum, Versioned
from tidegauge.state_backends.backends.redis.rows import RedisBackingMap
from tidegauge.state_backends.errors import DuplicateKeyError, SpecError, StaleBatchError

PAGES = StateSpec("pages", key={"page": "text"}, value="jsonb")
VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count(), "top": Max("x")})
MIDNIGHT = datetime(2013, 1, 1, tzinfo=UTC)


@pytest.fixture
def fresh(fresh, client):
    return lambda spec: emptied(client, fresh(spec))


def calls(client):
    """Return how many scripts the server has run."""
    return client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]


class TestRows:
    def test_a_row_is_a_hash_with_the_fields_of_the_table(self, client, fresh):
        backing = RedisBackingMap(client, spec := fresh(VIEWS))

        backing.multi_put(
            [("a",)], [Versioned({"n": 2**63 - 1, "top": 0.1}, 5, {"n": 1, "top": None}, 4, MIDNIGHT, MIDNIGHT)]
        )

        assert client.hgetall(f"tidegauge:{{{spec.name}}}:row:a\0") == {
            b"n": b"9223372036854775807",
            b"top": b"0.1",
            b"removed": b"false",
            b"updated_at": b"1356998400000000",
            b"txid": b"5",
            b"prev_n": b"1",
            b"prev_removed": b"false",
            b"prev_updated_at": b"1356998400000000",
            b"prev_txid": b"4",
        }

    @pytest.mark.parametrize(
        ("kind", "fields"),
        [
            ("transactional", {b"value", b"removed", b"updated_at", b"txid"}),
            ("non_transactional", {b"value", b"removed", b"updated_at"}),
        ],
    )
    def test_a_kind_stores_no_more_than_it_keeps(self, client, fresh, kind, fields):
        backing = RedisBackingMap(client, spec := fresh(replace(PAGES, kind=kind)))

        backing.multi_put([("a",)], [Versioned(1, 5, 2, 4)])

        assert set(client.hgetall(f"tidegauge:{{{spec.name}}}:row:a\0")) == fields
        assert not client.exists(f"tidegauge:{{{spec.name}}}:written:5")

    def test_every_type_of_column_comes_back_as_it_was(self, client, fresh):
        values = {
            "bigint": [-(2**63), 0],
            "double precision": [0.1, float("inf"), 5e-324, -0.0],
            "numeric": [Decimal("12345678901234567890.000000001"), Decimal("NaN")],
            "text": ["", "é\0\n", None],
            "boolean": [True, False],
            "timestamptz": [datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)],
            "date": [date(2013, 1, 1)],
            "uuid": [UUID(int=1)],
            "bytea": [b"", b"\x00\xff\r\n"],
            "jsonb": [{"a": [1, None]}, 0, ""],
        }

        for sql_type, stored in values.items():
            backing = RedisBackingMap(
                client, fresh(StateSpec("typed", key={"k": "bigint"}, measures={"x": Stored(sql_type)}))
            )
            keys = [(number,) for number in range(len(stored))]
            backing.multi_put(keys, [Versioned({"x": value}, 2, {"x": value}, 1) for value in stored])
            for row, value in zip(backing.multi_get(keys), stored, strict=True):
                assert [repr(row.value["x"]), repr(row.prev["x"])] == [repr(value)] * 2

    def test_removed_keys_leave_nothing_in_the_order_of_keys(self, client, fresh):
        backing = RedisBackingMap(client, spec := fresh(PAGES))
        backing.multi_put([("a",), ("b",)], [Versioned(1, 1), Versioned(2, 1)])

        backing.multi_remove([("a",)])

        assert client.zrange(f"tidegauge:{{{spec.name}}}:keys", 0, -1) == [b"b\0"]


class Stored:
    """A measure of one column of a type."""

    def __init__(self, sql_type):
        self.columns = {"": sql_type}
        self.fold_sql = self.fold_lua = {}

    def partial(self):
        return {"": "x"}

    def arguments(self):
        return {}


class TestConstruction:
    @pytest.mark.parametrize("limit", [-1, 1.5, None, "10", True])
    @pytest.mark.parametrize("name", ["max_get_keys", "max_put_keys"])
    def test_a_limit_that_is_no_number_of_keys_is_refused(self, client, name, limit):
        with pytest.raises(SpecError) as caught:
            RedisBackingMap(client, PAGES, **{name: limit})

        assert str(caught.value) == f"state 'pages': {name} {limit!r} must be a whole number; 0 sets no limit"

    def test_a_client_that_decodes_is_refused(self):
        with pytest.raises(SpecError) as caught:
            RedisBackingMap(redis.Redis(decode_responses=True), PAGES)

        assert str(caught.value) == "state 'pages': rows are bytes; give a client without decode_responses=True"

    def test_a_server_that_is_away_is_an_error_without_its_password(self):
        backing = RedisBackingMap(redis.Redis.from_url("redis://:hunter2@127.0.0.1:1"), PAGES)

        with pytest.raises(redis.ConnectionError) as caught:
            backing.multi_get([("a",)])

        assert "hunter2" not in str(caught.value)


KEYS = [(f"{number:03}",) for number in range(10)]
ROWS = [Versioned(number, 1) for number in range(10)]


class TestErrors:
    def test_what_redis_refuses_passes_through_without_the_row(self, client, fresh):
        backing = RedisBackingMap(client, spec := fresh(PAGES))
        client.set(f"tidegauge:{{{spec.name}}}:keys", "not a sorted set")

        with pytest.raises(redis.ResponseError, match="WRONGTYPE") as caught:
            backing.multi_put([("a secret page",)], [Versioned("a secret value", 1)])

        assert "secret" not in str(caught.value)
        client.delete(f"tidegauge:{{{spec.name}}}:keys")


class TestChunks:
    @pytest.mark.parametrize(("limit", "expected"), [(0, 1), (1, 10), (3, 4), (10, 1), (1_000, 1)])
    def test_a_call_has_no_more_keys_than_the_limit(self, client, fresh, limit, expected):
        backing = RedisBackingMap(client, fresh(PAGES), max_get_keys=limit, max_put_keys=limit)
        before = calls(client)

        backing.multi_put(KEYS, ROWS)
        assert calls(client) - before == expected
        assert backing.multi_get(KEYS[::-1]) == ROWS[::-1]
        assert calls(client) - before == 2 * expected
        backing.multi_remove(KEYS)
        assert calls(client) - before == 3 * expected

    @pytest.mark.parametrize("limit", [0, 3])
    def test_no_keys_are_no_call(self, client, fresh, limit):
        backing = RedisBackingMap(client, fresh(VIEWS), max_get_keys=limit, max_put_keys=limit)
        before = calls(client)

        backing.multi_put([], [])
        backing.multi_remove([])
        assert backing.multi_get([]) == []
        assert backing.merge([], 1, MIDNIGHT) == 0

        assert calls(client) == before

    def test_all_keys_in_one_call_may_be_many(self, client, fresh):
        backing = RedisBackingMap(client, fresh(VIEWS), max_get_keys=0, max_put_keys=0)
        keys = [(f"{number:05}",) for number in range(10_000)]

        backing.multi_put(keys, [Versioned({"n": 1, "top": None}, 1) for _ in keys])
        backing.merge(arrow([{"page": page, "n": 1, "top": 2.0} for (page,) in keys]), 2, MIDNIGHT)

        assert {row.value["n"] for row in backing.multi_get(keys)} == {2}
        assert [key for key, _ in backing.scan()] == keys
        assert backing.revert(2) == 10_000

    def test_a_key_that_comes_twice_in_different_chunks_is_refused_before_anything_is_written(self, client, fresh):
        backing = RedisBackingMap(client, fresh(PAGES), max_put_keys=2)

        with pytest.raises(DuplicateKeyError, match=r"key \('000',\) is given twice, at 0 and 10"):
            backing.multi_put([*KEYS, ("000",)], [*ROWS, Versioned(0, 1)])

        assert list(backing.scan()) == []

    def test_a_refused_chunk_is_not_followed_by_later_round_trips(self, client, fresh):
        backing = RedisBackingMap(client, fresh(PAGES), max_put_keys=1)
        backing.multi_put([("000",)], [Versioned("newer", 2)])

        with pytest.raises(StaleBatchError, match=r"key \('000',\)"):
            backing.multi_put(KEYS, ROWS)

        assert len(list(backing.scan())) == 4

    def test_many_keys_take_little_memory_beside_the_callers_own(self, client, fresh):
        """Limits between what calls in chunks take, and what one call for all keys would: 13, 7 and 3.5 MB."""
        backing = RedisBackingMap(client, fresh(PAGES))
        keys = [(f"page {number}",) for number in range(20_000)]
        rows = [Versioned("x" * 20, 1)] * len(keys)

        assert extra_bytes(lambda: backing.multi_put(keys, rows)) < 4_000_000
        assert extra_bytes(lambda: backing.multi_get(keys)) < 6_000_000
        assert extra_bytes(lambda: backing.multi_remove(keys)) < 2_700_000


def extra_bytes(act):
    """Return the most memory that Python's objects took during the act, over what they took before."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with cluster_node(tmp_path_factory.mktemp("cluster")) as port:
        yield port


@pytest.fixture(scope="module", params=[redis.Redis, RedisCluster], ids=["one connection", "cluster client"])
def cluster(request, port):
    """A node of a cluster refuses a script that names keys of two slots, or touches one that it does not name."""
    with request.param(host="127.0.0.1", port=port) as client:
        yield client


class TestBackingMapOnACluster(BackingMapContract):
    """Over the client of a cluster; that a client of one connection does as well is shown by merges."""

    @pytest.fixture
    def new_backing(self, port, fresh):
        with RedisCluster(host="127.0.0.1", port=port) as client:
            yield lambda spec: RedisBackingMap(client, fresh(spec))


class TestMergeOnACluster(FoldContract):
    @pytest.fixture
    def state(self, cluster, fresh):
        def state(spec):
            backing = RedisBackingMap(cluster, fresh(spec))
            return backing, lambda txid, *rows, at=MIDNIGHT, batches=None: backing.merge(
                arrow(rows) if batches is None else batches, txid, at
            )

        return state

    def test_a_batch_is_admitted_published_read_and_reverted(self, state):
        backing, _ = state(
            StateSpec("sales", key={"shop": "text"}, measures={"mean": Mean("x"), "sum": Sum("x", "double precision")})
        )
        rows = [{"shop": f"{n}", "mean_sum": 1.0, "mean_count": 1, "sum": 1.0} for n in range(20)]
        keys = [(row["shop"],) for row in rows]

        for txid in (1, 2, 3, 4):
            backing.admit(1, txid, 1)
            backing.under(1, txid, 1).merge(arrow(rows), txid, MIDNIGHT + timedelta(hours=txid))
            if txid < 4:
                backing.publish(txid)

        batch, seen = backing.multi_get_committed(keys)
        assert (batch.txid, {row.value["mean_count"] for row in seen}) == (3, {3})
        assert backing.under(1, 4, 1).revert(4) == 20
        assert {row.value["sum"] for row in backing.multi_get(keys)} == {3.0}

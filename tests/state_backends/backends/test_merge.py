"""The merge on PostgreSQL: what every merge promises, and what only a table or a transaction can show."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.contracts.merge import (
    MIDNIGHT,
    SALES,
    VIEWS,
    FoldContract,
    KeysThroughArrowContract,
    ReplayContract,
    TimeToLiveContract,
    rows,
    sale,
)
from tests.state_backends.feed import arrow, let_time_pass, views
from tests.state_backends.waiting import wait_until_blocked
from tidegauge.state_backends import Min, PostgresBackingMap, Sum
from tidegauge.state_backends.backends.postgres import incoming


@pytest.fixture
def state(fresh, new_feed, conn):
    """Makes the table of a spec and a function that merges rows into it as one task of a batch."""

    def state(spec):
        spec = fresh(spec)
        new_feed(spec)
        backing = PostgresBackingMap(conn, spec)

        def merge(txid, *rows, at=MIDNIGHT, batches=None):
            with conn.transaction():
                return backing.merge(arrow(rows) if batches is None else batches, txid, at)

        return backing, merge

    return state


class TestFold(FoldContract):
    def test_the_keys_of_a_task_spread_over_the_partitions_of_the_table(self, state):
        backing, merge = state(replace(VIEWS, partitions=4))

        assert merge(1, *({"page": f"{n}", "n": n} for n in range(500))) == 500

        assert {key: row.value["n"] for key, row in backing.scan()} == {(f"{n}",): n for n in range(500)}

    def test_numerics_and_bigints_are_exact(self, state):
        backing, merge = state(
            replace(
                SALES, measures={"x": Sum("x", type="numeric"), "n": Sum("n", type="bigint"), "y": Min("y", "numeric")}
            )
        )
        schema = pa.schema(
            [("shop", pa.string()), ("x", pa.decimal128(38, 9)), ("n", pa.int64()), ("y", pa.decimal128(38, 9))]
        )
        row = {"shop": "a", "x": Decimal("12345678901234567890123456789"), "n": 2**62, "y": Decimal("0.000000001")}
        small = {"shop": "a", "x": Decimal("0.000000001"), "n": 2**62 - 1, "y": Decimal("1")}

        for txid, partial in enumerate([row, small], start=1):
            merge(txid, batches=[pa.RecordBatch.from_pylist([partial], schema=schema)])

        value = rows(backing)["a",].value
        assert value == {
            "x": Decimal("12345678901234567890123456789.000000001"),
            "n": 2**63 - 1,
            "y": Decimal("0.000000001"),
        }


class TestReplay(ReplayContract):
    @pytest.mark.parametrize("stored", [200, 100, 0])
    def test_two_runs_of_one_task_at_once_count_once(self, fresh, new_feed, connect, stored):
        feed = new_feed(spec := fresh(VIEWS))
        task = [{"page": f"{n}", "n": 1} for n in range(200)]
        feed.run(task[:stored])
        batch = feed.begin(1)
        one, two = connect(), connect()

        with ThreadPoolExecutor(1) as threads:
            with one.transaction():
                feed.apply(batch, spec, task, one)
                again = threads.submit(feed.apply, batch, spec, task[::-1], two)
                wait_until_blocked(one, two)
            assert again.result() == 200
        feed.ledger.commit(batch)

        counts = [row.value["n"] for _, row in feed.backing(spec).scan()]
        assert sorted(counts) == [1] * (200 - stored) + [2] * stored

    @pytest.mark.parametrize("sorted_rows", [incoming.SORTED_ROWS, 1], ids=["by Arrow", "by PostgreSQL"])
    def test_a_task_locks_its_rows_in_key_order_however_they_come(
        self, fresh, new_feed, connect, monkeypatch, sorted_rows
    ):
        monkeypatch.setattr(incoming, "SORTED_ROWS", sorted_rows)
        feed = new_feed(spec := fresh(VIEWS))
        feed.run(views(("a", 1), ("z", 1)))
        batch, holder, task, other = feed.begin(1), connect(), connect(), connect()
        locked = f"SELECT page FROM tidegauge_state.{spec.name} WHERE page = %s FOR UPDATE SKIP LOCKED"

        def write():
            backing = PostgresBackingMap(task, spec)
            with task.transaction():
                backing.merge([*arrow(views(("z", 1))), *arrow(views(("a", 1)))], batch.txid, batch.batch_time)

        thread = threading.Thread(target=write)
        with holder.transaction():
            holder.execute(locked, ["a"])
            thread.start()
            wait_until_blocked(holder, task)
            free = other.execute(locked, ["z"]).fetchall()
        thread.join()

        assert free == [("z",)]


class TestKeysThroughArrow(KeysThroughArrowContract):
    @pytest.fixture(autouse=True)
    def in_another_time_zone(self, conn):
        conn.execute("SET TIME ZONE 'Asia/Tokyo'")


class TestTimeToLive(TimeToLiveContract):
    def test_a_row_reverted_has_the_time_it_had(self, fresh, new_feed, conn):
        feed = new_feed(spec := fresh(replace(VIEWS, ttl=self.HOUR)))
        feed.run([{"page": "a", "n": 10}])
        let_time_pass(conn, feed.specs, feed.pipeline, timedelta(minutes=50))
        batch = feed.begin(1)
        feed.apply(batch, spec, [{"page": "a", "n": 1}])

        feed.begin(1)
        let_time_pass(conn, feed.specs, feed.pipeline, timedelta(minutes=20))

        assert feed.read(spec, ("a",)) == ["expired"]


class TestTable:
    def test_once_every_row_has_a_second_version_all_updates_of_a_batch_are_hot(self, state, conn):
        """No index entry is written for them, or every batch would bloat the primary key.

        Not of each batch: a snapshot that another session holds, such as an autovacuum, keeps dead versions, and rows
        then leave their full pages until it ends.
        """
        backing, merge = state(SALES)
        task = [sale(f"{n:06}", 1, 1.0, 1.0, 1.0, 1) for n in range(3_000)]

        def is_hot(txid):
            before = updates(conn, backing.spec.name)
            merge(txid, *task)
            updated, hot = updates(conn, backing.spec.name)
            return (updated - before[0], hot - before[1]) == (3_000, 3_000)

        for txid in range(1, 4):
            merge(txid, *task)

        assert any(is_hot(txid) for txid in range(4, 30))

    def test_rows_are_looked_up_by_key_whatever_the_planner_expects(self, state, conn):
        """It knows nothing of the incoming rows, and a plan that it keeps was made when the table was small."""
        backing, merge = state(VIEWS)
        task = [{"page": f"{n}", "n": 1} for n in range(500)]
        reads = scans(conn, backing.spec.name)

        for txid in range(1, 12):
            merge(txid, *task)
        with conn.transaction():
            backing.merge(arrow(task), 12, MIDNIGHT)
            settings = conn.execute(
                "SELECT DISTINCT setting FROM pg_settings WHERE name IN ('enable_hashjoin', 'enable_seqscan', 'jit')"
            ).fetchall()

        assert settings == [("on",)]
        assert scans(conn, backing.spec.name) == reads

    def test_keys_are_stored_in_byte_order_so_that_every_task_locks_them_in_one_order(self, state):
        backing, merge = state(VIEWS)
        pages = ["b", "B", "é", "a", ""]

        merge(1, *[{"page": page, "n": 1} for page in pages])

        assert [key for key, _ in backing.scan()] == sorted(
            ((page,) for page in pages), key=lambda key: key[0].encode()
        )


def scans(conn, table):
    """Return how many times a whole table was read."""
    return counters(conn, table, "seq_scan")


def updates(conn, table):
    """Return how many rows of a table were updated, and how many of them without an index entry."""
    return counters(conn, table, "n_tup_upd, n_tup_hot_upd")


def counters(conn, table, names):
    conn.execute("SELECT pg_stat_force_next_flush()")
    conn.execute("SELECT pg_stat_clear_snapshot()")
    return conn.execute(f"SELECT {names} FROM pg_stat_user_tables WHERE relname = %s", [table]).fetchone()

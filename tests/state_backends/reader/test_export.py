"""Exports, of a state in a table and of its twin in Redis: all rows of one batch, whatever goes on meanwhile."""

import math
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import psycopg
import pytest

from tests.state_backends.feed import views
from tidegauge.state_backends import Count, DistinctCount, Max, Mean, StateReader, StateSpec, TopK
from tidegauge.state_backends.backends.postgres import export
from tidegauge.state_backends.errors import KeyShapeError, MovedOnError, NotCommittedError, OutOfReachError, SpecError
from tidegauge.state_backends.maintenance import compact
from tidegauge.state_backends.maps import MAPS

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
BOTH = pytest.mark.parametrize("place", [0, 1], ids=["table", "redis"])


@pytest.fixture
def reader_of(twins, connect):
    """Opens a feed and, over a connection of its own, the reader of one of its twins."""

    def reader_of(place, spec=VIEWS, **declared):
        feed = twins(spec, **declared)
        return feed, feed.readers()[place].on(connect())

    return reader_of


def pages(count, n=1):
    return [{"page": f"{number:05}", "n": n} for number in range(count)]


def rows(exported):
    return [row for batch in exported.batches() for row in batch]


@BOTH
def test_rows_come_in_key_order_as_python_values_under_named_columns(reader_of, place):
    spec = StateSpec(
        "typed",
        key={"day": "date", "x": "double precision"},
        measures={
            "n": Count(),
            "mean": Mean("ms"),
            "cost": Max("cost", type="numeric"),
            "at": Max("at", type="timestamptz"),
            "ok": Max("ok", type="boolean"),
            "label": Max("label", type="text"),
        },
    )
    feed, reader = reader_of(place, spec)
    day, at = date(2024, 2, 29), datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)
    some = {"n": 1 << 60, "mean_sum": 0.3, "mean_count": 3, "cost": Decimal("0.1"), "at": at, "ok": True, "label": "é"}
    none = dict.fromkeys(some) | {"n": 1}
    batch = feed.commit({"day": day, "x": math.inf, **none}, {"day": day, "x": 0.5, **some})

    exported = reader.export()

    assert (exported.txid, exported.attempt, exported.batch_time) == (1, 1, batch.batch_time)
    assert exported.columns == {
        "day": "date",
        "x": "double precision",
        "n": "bigint",
        "mean": "double precision",
        "cost": "numeric",
        "at": "timestamptz",
        "ok": "boolean",
        "label": "text",
    }
    assert list(exported.batches()) == [
        [
            (day, 0.5, 1 << 60, 0.3 / 3, Decimal("0.1"), at, True, "é"),
            (day, math.inf, 1, None, None, None, None, None),
        ]
    ]


@BOTH
def test_only_the_measures_and_keys_asked_for_are_exported(reader_of, place):
    spec = StateSpec("pairs", key={"a": "text", "b": "bigint"}, measures={"n": Count(), "top": Max("x")})
    feed, reader = reader_of(place, spec)
    feed.commit(*({"a": a, "b": b, "n": b, "top": 0.5} for a in "xyz" for b in range(3)))

    assert rows(reader.export(prefix=("y",), measures=["top"])) == [("y", b, 0.5) for b in range(3)]
    assert rows(reader.export(start=("x", 2), stop=("z",), measures=[])) == [("x", 2), *(("y", b) for b in range(3))]
    with pytest.raises(SpecError, match="no measure 'x'"):
        reader.export(measures=["x"])
    with pytest.raises(KeyShapeError, match="start: a must be text"):
        reader.export(start=(1,))


@BOTH
def test_json_is_parsed(reader_of, place):
    sketched = StateSpec("people", key={"k": "text"}, measures={"who": DistinctCount("id"), "top": TopK("id", 2)})
    feed, reader = reader_of(place, sketched)
    empty = dict.fromkeys(sketched.partial_columns)
    feed.commit({"k": "a", **empty})
    texts, json_reader = reader_of(place, StateSpec("texts", key={"k": "text"}, value="jsonb"))
    batch = texts.begin(0)
    for spec in texts.specs:
        counts = MAPS[spec.kind](texts.logged(spec))
        counts.begin_commit(batch.txid, at=batch.batch_time)
        counts.multi_put([("a",), ("b",)], [{"x": [1, None]}, "text"])
    texts.ledger.commit(batch)
    texts.rows_in_redis.publish(1)

    entry = reader.page().parsed()[0]["value"]
    assert rows(reader.export()) == [("a", entry["who"], entry["top"])]
    exported = json_reader.export()
    assert exported.columns == {"k": "text", "value": "jsonb"}
    assert rows(exported) == [("a", {"x": [1, None]}), ("b", "text")]


@BOTH
def test_a_global_state_has_one_row_and_an_empty_one_none(reader_of, place):
    feed, reader = reader_of(place, StateSpec("totals", measures={"n": Count()}))
    assert (reader.export().txid, rows(reader.export())) == (0, [])
    feed.commit({"n": 3})

    assert rows(reader.export()) == [(3,)]


@pytest.mark.parametrize("changelog", [True, False])
def test_a_table_s_export_is_of_one_batch_whatever_is_committed_meanwhile(reader_of, monkeypatch, changelog):
    monkeypatch.setattr(export, "FETCHED_ROWS", 7)
    monkeypatch.setattr("tidegauge.state_backends.reader.reader.FETCHED_ROWS", 7)
    feed, reader = reader_of(0, changelog=changelog)
    feed.commit(*pages(20))
    exported = reader.export()
    feed.commit(*pages(30))
    feed.commit(*pages(30))
    batches = exported.batches()
    first = next(batches)

    feed.commit(*pages(30))
    feed.commit(gone=[(f"{n:05}",) for n in range(25)])
    list(compact(feed.conn, reader.spec, keep=timedelta()))
    feed.write(feed.begin(feed.next_batch_id()), pages(40))

    assert exported.txid == 1
    assert [*first, *(row for batch in batches for row in batch)] == [(f"{n:05}", 1) for n in range(20)]


@BOTH
def test_the_past_is_exported_from_a_changelog_though_batches_go_on(reader_of, place, monkeypatch):
    monkeypatch.setattr(export, "FETCHED_ROWS", 3)
    monkeypatch.setattr("tidegauge.state_backends.reader.reader.FETCHED_ROWS", 3)
    feed, reader = reader_of(place, changelog=True)
    feed.commit(*pages(10))
    feed.commit(*pages(5), gone=[("00009",)])
    feed.commit(*pages(12))
    exported = reader.export(at_txid=2)
    batches = exported.batches()
    first = next(batches)
    feed.commit(*pages(12))
    feed.commit(*pages(12))

    expected = [(f"{n:05}", 2 if n < 5 else 1) for n in range(9)]
    assert (exported.txid, [*first, *(row for batch in batches for row in batch)]) == (2, expected)


@BOTH
def test_what_is_out_of_reach_is_refused_before_the_first_row(reader_of, place):
    feed, reader = reader_of(place)
    for _ in range(3):
        feed.commit(*pages(2))

    with pytest.raises(OutOfReachError):
        reader.export(at_txid=1)
    with pytest.raises(NotCommittedError):
        reader.export(at_txid=4)
    assert rows(reader.export(at_txid=3)) == [("00000", 3), ("00001", 3)]


def test_without_a_changelog_only_the_rows_of_the_range_need_to_be_told(reader_of):
    feed, reader = reader_of(0)
    feed.commit(*pages(3))
    feed.commit(*pages(1))
    feed.commit(*pages(1))

    assert rows(reader.export(at_txid=1, start=("00001",))) == [("00001", 1), ("00002", 1)]
    with pytest.raises(OutOfReachError):
        reader.export(at_txid=1)


def test_a_scan_whose_batch_has_moved_on_ends_with_an_error_and_mixes_nothing(reader_of, monkeypatch):
    monkeypatch.setattr("tidegauge.state_backends.reader.reader.FETCHED_ROWS", 5)
    monkeypatch.setattr("tidegauge.state_backends.backends.redis.rows.CHUNK_KEYS", 5)
    feed, reader = reader_of(1)
    feed.commit(*pages(20))
    batches = reader.export().batches()
    first = next(batches)
    feed.commit(*pages(20))
    second = next(batches)
    feed.commit(*pages(20))

    assert {n for _, n in [*first, *second]} == {1}
    with pytest.raises(MovedOnError):
        list(batches)


@BOTH
def test_expired_rows_are_left_out(reader_of, place):
    feed, reader = reader_of(place, ttl=timedelta(hours=1))
    feed.commit(*pages(2))
    feed.wait(timedelta(hours=2))
    feed.commit(*pages(1))

    assert rows(reader.export()) == [("00000", 1)]


class TestConnection:
    """A table's export takes its connection, and gives it back as it was."""

    @pytest.fixture
    def taken(self, twins, connect, monkeypatch):
        monkeypatch.setattr(export, "FETCHED_ROWS", 5)
        monkeypatch.setattr("tidegauge.state_backends.reader.reader.FETCHED_ROWS", 5)
        feed, conn = twins(VIEWS), connect()
        feed.commit(*pages(20))
        return feed.readers()[0].on(conn), conn

    def is_free(self, conn):
        return conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE and conn.autocommit

    def test_it_is_free_after_the_last_row(self, taken):
        reader, conn = taken

        exported = reader.export()
        assert len(rows(exported)) == 20
        assert self.is_free(conn)
        assert len(rows(reader.export())) == 20

    def test_it_is_free_when_closed_midway_or_unread(self, taken):
        reader, conn = taken
        for read in (0, 1):
            exported = reader.export()
            batches = exported.batches()
            for _ in range(read):
                next(batches)
            assert not self.is_free(conn)
            exported.close()
            exported.close()
            assert self.is_free(conn)

    def test_it_is_free_when_the_consumer_goes_away(self, taken):
        reader, conn = taken
        exported = reader.export()
        with closing(exported.batches()) as batches:
            next(batches)

        assert self.is_free(conn)

    def test_it_is_free_after_an_error(self, taken):
        reader, conn = taken
        with pytest.raises(NotCommittedError):
            reader.export(at_txid=9)

        assert self.is_free(conn)

    def test_nothing_can_be_written_through_it_meanwhile(self, taken):
        reader, conn = taken
        with reader.export(), pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            conn.execute("UPDATE tidegauge.state SET ttl = NULL")

    def test_one_in_a_transaction_is_refused(self, taken):
        reader, conn = taken
        with conn.transaction():
            conn.execute("SELECT 1")
            with pytest.raises(psycopg.errors.ActiveSqlTransaction):
                reader.export()


def test_a_partitioned_table_comes_in_key_order(new_feed, fresh, conn, connect):
    feed = new_feed(spec := fresh(replace(VIEWS, partitions=3)))
    feed.run(views(*((f"{n:03}", 1) for n in range(50))))
    reader = StateReader(connect(), spec)

    assert rows(reader.export()) == [(f"{n:03}", 1) for n in range(50)]


def test_a_table_is_not_swapped_between_the_snapshot_and_its_rows(reader_of, connect, monkeypatch):
    """Rows of the new table, read at the old ledger's batch, would be of no batch at all."""
    feed, reader = reader_of(0)
    feed.commit({"page": "/", "n": 1})
    name, other = reader.spec.name, connect()
    read_ledger = type(reader)._ledger

    def swapped_behind(*of_what):
        found = read_ledger(*of_what)
        other.execute("SET lock_timeout = '300ms'")
        with suppress(psycopg.errors.LockNotAvailable), other.transaction():
            other.execute(f"ALTER TABLE tidegauge_state.{name} RENAME TO {name}_old")
            other.execute(f"CREATE TABLE tidegauge_state.{name} (LIKE tidegauge_state.{name}_old INCLUDING ALL)")
        return found

    monkeypatch.setattr(type(reader), "_ledger", swapped_behind)

    assert rows(reader.export()) == [("/", 1)]

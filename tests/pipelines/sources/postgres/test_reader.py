"""The reader of a table's rows and changes, on a real server and without Spark."""

import threading
import time

import psycopg
import pytest

from tests.pipelines.sources.table_feed import changes_of, drain, read, take
from tidegauge.pipelines.errors import SourceSetupError
from tidegauge.pipelines.sources.postgres import reader as postgres_reader
from tidegauge.pipelines.sources.postgres.reader import ChangeRange


def test_the_rows_come_first_and_then_each_change(feed):
    feed.execute("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    reader = feed.reader()
    first, end = take(reader)
    feed.execute("INSERT INTO t VALUES (3, 'c')", "UPDATE t SET note = 'b' WHERE id = 2", "DELETE FROM t WHERE id = 1")

    changes, end = take(reader, end)

    assert changes_of(first) == [("snapshot", "1", "a"), ("snapshot", "2", None)]
    assert changes_of(changes) == [("insert", "3", "c"), ("update", "2", "b"), ("delete", "1", None)]
    lsns = [row[3] for row in first + changes]
    assert lsns[:2] == [0, 0]
    assert lsns[2:] == sorted(lsns[2:])
    assert lsns[2] > 0
    assert all(abs(row[4].timestamp() - time.time()) < 600 for row in first + changes)


@pytest.mark.long
def test_under_constant_writes_the_stream_adds_up_to_the_table(feed):
    feed.declare(max_changes_per_batch=50)
    feed.execute("INSERT INTO t SELECT i, 'x' FROM generate_series(1, 300) i")
    stop = threading.Event()

    def write():
        with psycopg.connect(feed.url, autocommit=True) as conn:
            for number in range(1, 10_000):
                if stop.is_set():
                    return
                conn.execute("UPDATE t SET note = %s WHERE id = %s", [str(number), number % 300 + 1])
                conn.execute("INSERT INTO t VALUES (%s, 'new')", [1000 + number])
                conn.execute("DELETE FROM t WHERE id = %s", [1000 + number - 5])

    writer = threading.Thread(target=write)
    writer.start()
    reader = feed.reader()
    rows, end = take(reader)
    for _ in range(10):
        more, end = take(reader, end)
        rows += more
    stop.set()
    writer.join()
    rest, _ = drain(reader, end)

    held = {}
    for change, key, note in changes_of(rows) + rest:
        assert (key in held) == (change in ("update", "delete")), (change, key)
        held[key] = note
        if change == "delete":
            del held[key]
    assert held == {str(key): note for key, note in feed.conn.execute("SELECT id, note FROM t").fetchall()}


def test_a_batch_ends_where_a_transaction_does(feed):
    reader = feed.declare(max_changes_per_batch=5).reader()
    _, start = take(reader)
    feed.execute(
        "INSERT INTO t SELECT i, '' FROM generate_series(1, 20) i",
        "INSERT INTO t VALUES (21, '')", "INSERT INTO t VALUES (22, '')",
    )  # fmt: skip

    giant, after_giant = take(reader, start)
    reader.commit(start)
    small, _ = take(reader, after_giant)

    assert (len(giant), len(small)) == (20, 1)


def test_until_a_batch_is_done_a_new_reader_reads_it_as_it_was(feed):
    feed.execute("INSERT INTO t VALUES (1, 'a')")
    reader = feed.reader()
    start = reader.initialOffset()
    first, end = take(reader, start)
    feed.execute("INSERT INTO t VALUES (2, 'b')")
    _, next_end = take(reader, end)
    reader.stop()
    feed.execute("UPDATE t SET note = 'c'")

    another = feed.reader()

    assert another.initialOffset() == start
    assert read(another, start, end) == first
    another.commit(end)
    assert changes_of(read(another, end, next_end)) == [("insert", "2", "b")]


def test_the_slot_keeps_what_the_batch_at_hand_is_made_of_and_no_more(feed):
    reader = feed.reader()
    _, begin = take(reader)
    feed.execute("INSERT INTO t VALUES (1, 'a')")
    _, first = take(reader, begin)
    reader.commit(begin)
    feed.execute("INSERT INTO t VALUES (2, 'b')")
    _, second = take(reader, first)

    reader.commit(first)

    confirmed = feed.conn.execute(
        "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s", [feed.source.slot]
    )
    assert confirmed.fetchone() == (first["lsn"],)
    assert changes_of(read(reader, first, second)) == [("insert", "2", "b")]


def test_a_slot_that_is_batches_behind_after_a_crash_delivers_nothing_twice_and_does_not_block(feed):
    reader = feed.declare(max_changes_per_batch=3).reader()
    _, end = take(reader)
    feed.execute(*[f"INSERT INTO t VALUES ({number}, '')" for number in range(40)])

    found = []
    for _ in range(41):  # nothing committed: the slot stays at its start
        rows, end = take(reader, end)
        found += rows

    assert [int(row[0]) for row in found] == list(range(40))


def test_a_run_with_available_now_leaves_later_changes(feed):
    reader = feed.reader()
    _, start = take(reader)
    feed.execute("INSERT INTO t VALUES (1, 'a')")
    reader.prepareForTriggerAvailableNow()
    feed.execute("INSERT INTO t VALUES (2, 'b')")

    rows, end = take(reader, start)

    assert changes_of(rows) == [("insert", "1", "a")]
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


def test_what_other_tables_write_moves_the_slot_on_by_an_empty_batch(feed, monkeypatch):
    monkeypatch.setattr(postgres_reader, "IDLE_BYTES", 10_000)
    reader = feed.reader()
    _, start = take(reader)
    feed.execute("CREATE TABLE other AS SELECT i FROM generate_series(1, 1000) i", "DROP TABLE other")
    deadline = time.monotonic() + 30

    end = start
    while end == start and time.monotonic() < deadline:
        rows, end = take(reader, start)
    feed.execute("INSERT INTO t VALUES (1, 'a')")
    reader.commit(end)

    assert end != start
    assert rows == []
    assert changes_of(take(reader, end)[0]) == [("insert", "1", "a")]


def test_an_update_of_a_key_is_a_delete_and_an_insert(feed):
    reader = feed.reader()
    _, start = take(reader)
    feed.execute("INSERT INTO t VALUES (1, 'a')", "UPDATE t SET id = 2")

    assert changes_of(take(reader, start)[0]) == [("insert", "1", "a"), ("delete", "1", None), ("insert", "2", "a")]


class TestLargeValues:
    LARGE = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i)"

    def test_one_that_was_not_sent_is_an_error_that_names_it(self, feed):
        reader = feed.reader()
        _, start = take(reader)
        feed.execute("ALTER TABLE t ADD other int", f"INSERT INTO t VALUES (1, {self.LARGE})", "UPDATE t SET other = 2")

        with pytest.raises(SourceSetupError, match=r"table 'public.t': the update at LSN .* did not change 'note'"):
            take(reader, start)

    def test_it_comes_from_the_old_row_where_the_replica_identity_is_full(self, feed):
        feed.execute("ALTER TABLE t REPLICA IDENTITY FULL", "ALTER TABLE t ADD other int")
        reader = feed.reader()
        _, start = take(reader)
        feed.execute(f"INSERT INTO t VALUES (1, {self.LARGE})", "UPDATE t SET other = 2", "DELETE FROM t")

        inserted, updated, deleted = take(reader, start)[0]

        assert len(inserted[1]) == 12_800
        assert [inserted[1], *changes_of([updated, deleted])] == [
            inserted[1], ("update", "1", inserted[1]), ("delete", "1", inserted[1])
        ]  # fmt: skip


def test_settings_do_not_show_the_password(feed):
    assert feed.url not in repr(feed.source.reader_settings(("id",)))
    assert ChangeRange({}, {}).start == {}


class TestPending:
    def test_it_is_what_the_slot_keeps_with_an_alarm_above_the_limit(self, feed, tmp_path):
        before = feed.source.pending(tmp_path)
        feed.reader().initialOffset()
        feed.execute("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 1000) i")

        calm = feed.source.pending(tmp_path)
        alarmed = feed.declare(max_slot_bytes=1_000).source.pending(tmp_path)

        assert before is None
        assert calm.count > 100_000
        assert (calm.unit, calm.alarm) == ("bytes of log", None)
        assert "MB of the server's log, more than 0 MB (max_slot_bytes): the pipeline falls behind" in alarmed.alarm

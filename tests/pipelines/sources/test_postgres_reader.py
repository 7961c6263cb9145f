"""What the reader of a table's changes promises, on a real server and without Spark."""

import threading
import time

import psycopg
import pytest
from psycopg import sql

from pipelines.errors import InputLostError, PipelineError, SourceSetupError
from pipelines.sources import postgres_reader, postgres_slot
from pipelines.sources.postgres_changes import PostgresChanges
from pipelines.sources.postgres_reader import Changes, CopyPages, PostgresChangeReader

TABLE = "CREATE TABLE t (id int PRIMARY KEY, note text)"


@pytest.fixture
def conn(database_url):
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(autouse=True)
def no_rest(monkeypatch):
    """Look for changes at every call, though the last one found none."""
    monkeypatch.setattr(postgres_reader, "REST_FACTOR", 0)


@pytest.fixture
def feed(conn, database_url):
    """The table `t` and what reads it; slot and table go in the end."""
    feed = Feed(conn, database_url)
    yield feed
    feed.source.drop()
    conn.execute("DROP TABLE IF EXISTS t")


class Feed:
    def __init__(self, conn, url):
        self.conn, self.url = conn, url
        conn.execute(TABLE)
        self.declare()

    def declare(self, **options):
        options = {"url": self.url, "slot": f"s_{self.conn.info.backend_pid}", "max_changes_per_batch": 10} | options
        self.source = PostgresChanges("public.t", schema=None, **options)
        return self

    def execute(self, *statements):
        for statement in statements:
            self.conn.execute(statement)

    def reader(self):
        return PostgresChangeReader(self.source.reader_settings(("id", "note")))


def take(reader, start=None):
    """Plan a batch and read it twice; return its rows, once, and where it ends."""
    start = start or reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    once, again = read(reader, start, end), read(reader, start, end)
    assert once == again
    return once, end


def read(reader, start, end):
    found = []
    for part in reader.partitions(start, end):
        worker = PostgresChangeReader(reader.settings)
        found += [tuple(row.values()) for batch in worker.read(part) for row in batch.to_pylist()]
    return found


def drain(reader, start=None):
    """Read all there is, committing as Spark does; return (change, id, note) of all, and where it ends."""
    found, end = take(reader, start)
    while True:
        rows, further = take(reader, end)
        if further == end:
            return told(found), end
        reader.commit(end)
        found, end = found + rows, further


def told(rows):
    return [(row[2], row[0], row[1]) for row in rows]


def test_the_rows_come_first_and_then_each_change(feed):
    feed.execute("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    reader = feed.reader()
    first, end = take(reader)
    feed.execute("INSERT INTO t VALUES (3, 'c')", "UPDATE t SET note = 'b' WHERE id = 2", "DELETE FROM t WHERE id = 1")

    changes, end = take(reader, end)

    assert told(first) == [("snapshot", "1", "a"), ("snapshot", "2", None)]
    assert told(changes) == [("insert", "3", "c"), ("update", "2", "b"), ("delete", "1", None)]
    lsns = [row[3] for row in first + changes]
    assert lsns[:2] == [0, 0]
    assert lsns[2:] == sorted(lsns[2:])
    assert lsns[2] > 0
    assert all(abs(row[4].timestamp() - time.time()) < 600 for row in first + changes)


def test_changes_that_land_while_the_table_is_copied_come_once(feed, monkeypatch):
    """Each of the three moments: between slot and copy, running while it is taken, and after it."""
    with psycopg.connect(feed.url) as running:
        feed.execute("INSERT INTO t VALUES (1, 'before')")
        take_copy, make_copy = postgres_reader.FirstCopy._take, postgres_reader.FirstCopy._copy

        def after_the_slot(copy, table):
            feed.execute("INSERT INTO t VALUES (2, 'between')", "UPDATE t SET note = 'seen' WHERE id = 1")
            running.execute("INSERT INTO t VALUES (3, 'running')")
            return take_copy(copy, table)

        def within_the_snapshot(copy, table):
            feed.execute("INSERT INTO t VALUES (4, 'after')")
            running.commit()
            return make_copy(copy, table)

        monkeypatch.setattr(postgres_reader.FirstCopy, "_take", after_the_slot)
        monkeypatch.setattr(postgres_reader.FirstCopy, "_copy", within_the_snapshot)
        found, _ = drain(feed.reader())

    assert sorted(found) == [
        ("insert", "3", "running"), ("insert", "4", "after"), ("snapshot", "1", "seen"), ("snapshot", "2", "between")
    ]  # fmt: skip


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
    for change, key, note in told(rows) + rest:
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


def test_rows_are_copied_by_pages_over_several_batches(feed):
    feed.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 100) i")
    reader = feed.declare(max_changes_per_batch=30).reader()

    first, end = take(reader)
    rest, _ = drain(reader, end)

    assert 0 < len(first) < 60
    assert sorted(int(row[0]) for row in first) + sorted(int(key) for _, key, _ in rest) == list(range(1, 101))
    assert all(isinstance(part, CopyPages) for part in reader.partitions(reader.initialOffset(), end))


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
    assert told(read(another, end, next_end)) == [("insert", "2", "b")]


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
    assert told(read(reader, first, second)) == [("insert", "2", "b")]


def test_a_slot_that_a_crash_put_back_by_batches_delivers_nothing_twice_and_stalls_nobody(feed):
    reader = feed.declare(max_changes_per_batch=3).reader()
    _, end = take(reader)
    feed.execute(*[f"INSERT INTO t VALUES ({number}, '')" for number in range(40)])

    found = []
    for _ in range(41):  # nothing committed: the slot stands where it began
        rows, end = take(reader, end)
        found += rows

    assert [int(row[0]) for row in found] == list(range(40))


def test_a_run_through_what_there_is_leaves_what_comes_later(feed):
    reader = feed.reader()
    _, start = take(reader)
    feed.execute("INSERT INTO t VALUES (1, 'a')")
    reader.prepareForTriggerAvailableNow()
    feed.execute("INSERT INTO t VALUES (2, 'b')")

    rows, end = take(reader, start)

    assert told(rows) == [("insert", "1", "a")]
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
    assert told(take(reader, end)[0]) == [("insert", "1", "a")]


def test_an_update_of_a_key_is_a_delete_and_an_insert(feed):
    reader = feed.reader()
    _, start = take(reader)
    feed.execute("INSERT INTO t VALUES (1, 'a')", "UPDATE t SET id = 2")

    assert told(take(reader, start)[0]) == [("insert", "1", "a"), ("delete", "1", None), ("insert", "2", "a")]


class TestLargeValues:
    LARGE = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i)"

    def test_one_that_was_not_sent_is_an_error_that_names_it(self, feed):
        reader = feed.reader()
        _, start = take(reader)
        feed.execute("ALTER TABLE t ADD other int", f"INSERT INTO t VALUES (1, {self.LARGE})", "UPDATE t SET other = 2")

        with pytest.raises(SourceSetupError, match=r"table 'public.t': the update at LSN .* left 'note' as it was"):
            take(reader, start)

    def test_it_comes_from_the_old_row_where_the_replica_identity_is_full(self, feed):
        feed.execute("ALTER TABLE t REPLICA IDENTITY FULL", "ALTER TABLE t ADD other int")
        reader = feed.reader()
        _, start = take(reader)
        feed.execute(f"INSERT INTO t VALUES (1, {self.LARGE})", "UPDATE t SET other = 2", "DELETE FROM t")

        inserted, updated, deleted = take(reader, start)[0]

        assert len(inserted[1]) == 12_800
        assert [inserted[1], *told([updated, deleted])] == [
            inserted[1], ("update", "1", inserted[1]), ("delete", "1", inserted[1])
        ]  # fmt: skip


class TestWhatIsLost:
    def test_a_slot_that_is_gone_is_an_error(self, feed):
        reader = feed.reader()
        _, start = take(reader)
        feed.conn.execute("SELECT pg_drop_replication_slot(%s)", [feed.source.slot])

        with pytest.raises(InputLostError, match=r"slot 's_\d+': is gone, and with it the changes since .*--reprocess"):
            take(reader, start)
        with pytest.raises(InputLostError, match="is gone"):
            feed.reader().initialOffset()

    def test_a_slot_that_somebody_else_has_read_is_an_error(self, feed):
        reader = feed.reader()
        _, start = take(reader)
        feed.execute("INSERT INTO t VALUES (1, 'a')")
        feed.conn.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [feed.source.slot])

        with pytest.raises(InputLostError, match="somebody else reads it too; give each its own slot"):
            take(reader, start)

    def test_a_second_checkpoint_over_a_slot_that_was_read_is_an_error(self, feed):
        feed.execute("INSERT INTO t VALUES (1, 'a')")
        reader = feed.reader()
        _, end = take(reader)
        reader.commit(end)

        with pytest.raises(InputLostError, match="has been read before, by another checkpoint"):
            feed.reader().initialOffset()

    def test_a_truncate_is_an_error_unless_it_is_to_be_ignored(self, feed):
        reader = feed.reader()
        _, start = take(reader)
        feed.execute("TRUNCATE t", "INSERT INTO t VALUES (1, 'a')")

        with pytest.raises(InputLostError, match=r"table 'public.t': was truncated at LSN .* ignore_truncate=True"):
            take(reader, start)
        assert drain(feed.declare(ignore_truncate=True).reader(), start)[0] == [("insert", "1", "a")]

    def test_a_column_that_was_dropped_is_an_error_and_not_null(self, feed):
        reader = feed.reader()
        _, start = take(reader)
        feed.execute("ALTER TABLE t DROP note", "INSERT INTO t VALUES (1)")

        with pytest.raises(SourceSetupError, match="have no column note: it was added later, or dropped"):
            take(reader, start)


class TestSetup:
    def test_a_start_that_was_killed_after_the_slot_was_made_goes_on(self, feed, monkeypatch):
        monkeypatch.setattr(postgres_reader.FirstCopy, "_copy", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            feed.reader().initialOffset()
        monkeypatch.undo()
        feed.execute("INSERT INTO t VALUES (1, 'meanwhile')")

        assert drain(feed.reader())[0] == [("snapshot", "1", "meanwhile")]

    def test_a_table_without_replica_identity_is_refused_before_its_updates_break(self, feed):
        feed.execute("ALTER TABLE t DROP CONSTRAINT t_pkey")

        with pytest.raises(SourceSetupError, match="t has no replica identity, so PostgreSQL would refuse updates"):
            feed.reader().initialOffset()

        assert (
            feed.conn.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [feed.source.publication]).fetchone()
            is None
        )

    def test_a_publication_that_leaves_changes_out_is_refused(self, feed):
        name = sql.Identifier(feed.source.publication)
        feed.conn.execute(sql.SQL("CREATE PUBLICATION {} FOR TABLE t WHERE (id > 5)").format(name))

        with pytest.raises(SourceSetupError, match="does not publish every change of all columns"):
            feed.reader().initialOffset()

    def test_a_table_that_is_not_there_is_named(self, database_url):
        with pytest.raises(SourceSetupError, match="table 'nowhere': the database has none of that name"):
            _ = PostgresChanges("nowhere", url=database_url).schema

    def test_a_view_is_no_table(self, feed):
        feed.execute("CREATE OR REPLACE VIEW v AS SELECT * FROM t")
        try:
            with pytest.raises(SourceSetupError, match="'v' is no table"):
                _ = PostgresChanges("v", url=feed.url).schema
        finally:
            feed.execute("DROP VIEW v")

    @pytest.mark.parametrize("slot", ["With-Dash", "x" * 64])
    def test_a_slot_s_name_is_checked(self, slot):
        with pytest.raises(PipelineError, match="is no name; use a-z, 0-9 and _, at most 63"):
            PostgresChanges("t", slot=slot)

    def test_a_url_that_is_none_is_not_shown(self, monkeypatch):
        with pytest.raises(SourceSetupError) as malformed:
            _ = PostgresChanges("t", url="host=x pass word").schema
        monkeypatch.delenv("DATABASE_URL")
        with pytest.raises(SourceSetupError, match="set DATABASE_URL or give the source a url"):
            _ = PostgresChanges("t").schema

        assert "word" not in str(malformed.value)

    def test_dropping_leaves_nothing_and_can_be_repeated(self, feed):
        feed.execute("INSERT INTO t VALUES (1, 'a')")
        feed.reader().initialOffset()

        feed.source.drop()
        feed.source.drop()

        left = feed.conn.execute(
            "SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name = %(slot)s), "
            "(SELECT count(*) FROM pg_publication WHERE pubname = %(slot)s), "
            "to_regclass('tidemark_source.' || %(slot)s), "
            "(SELECT count(*) FROM tidemark_source.beginning WHERE slot = %(slot)s)",
            {"slot": feed.source.slot},
        ).fetchone()
        assert left == (0, 0, None, 0)
        assert drain(feed.reader())[0] == [("snapshot", "1", "a")]


class TestPending:
    def test_it_tells_what_the_slot_keeps_and_raises_the_alarm_beyond_the_limit(self, feed, tmp_path):
        before = feed.source.pending(tmp_path)
        feed.reader().initialOffset()
        feed.execute("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 1000) i")

        calm = feed.source.pending(tmp_path)
        alarmed = feed.declare(max_slot_bytes=1_000).source.pending(tmp_path)

        assert before is None
        assert calm.count > 100_000
        assert (calm.unit, calm.alarm) == ("bytes of log", None)
        assert "MB of the server's log, more than 0 MB (max_slot_bytes): the pipeline falls behind" in alarmed.alarm


def test_a_slot_that_is_being_read_is_waited_for_but_not_for_ever(feed, monkeypatch):
    monkeypatch.setattr(postgres_slot, "PATIENCE_SECONDS", 0.3)
    reader = feed.reader()
    _, start = take(reader)
    feed.execute("INSERT INTO t VALUES (1, 'a')")

    with psycopg.connect(feed.url, replication="database", autocommit=True) as other:
        options = f"(proto_version '1', publication_names '{feed.source.publication}')"
        other.pgconn.exec_(f"START_REPLICATION SLOT {feed.source.slot} LOGICAL 0/0 {options}".encode())
        with pytest.raises(SourceSetupError, match=r"reading it for 0 s \(.* is active for PID \d+\)"):
            take(reader, start)
        threading.Timer(0.2, other.close).start()
        monkeypatch.setattr(postgres_slot, "PATIENCE_SECONDS", 30)

        assert told(take(reader, start)[0]) == [("insert", "1", "a")]


def test_settings_do_not_show_the_password(feed):
    assert feed.url not in repr(feed.source.reader_settings(("id",)))
    assert Changes({}, {}).start == {}

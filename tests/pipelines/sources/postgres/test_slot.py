"""The replication slot of a table that is read as a source: what it needs, what it loses, who else reads it."""

import threading
import time

import psycopg
import pytest
from psycopg import sql

from tests.pipelines.sources.table_feed import changes_of, drain, take
from tidegauge.pipelines.errors import InputLostError, PipelineError, SourceSetupError
from tidegauge.pipelines.sources.postgres import slot as postgres_slot
from tidegauge.pipelines.sources.postgres.changes import PostgresChanges
from tidegauge.pipelines.sources.postgres.slot import IDENTITY, Slot


class TestLostInput:
    def test_a_slot_that_was_dropped_is_an_error(self, feed):
        reader = feed.reader()
        _, start = take(reader)
        feed.conn.execute("SELECT pg_drop_replication_slot(%s)", [feed.source.slot])

        with pytest.raises(
            InputLostError, match=r"slot 's_\d+': was dropped, and with it the changes since .*--reprocess"
        ):
            take(reader, start)
        with pytest.raises(InputLostError, match="was dropped"):
            feed.reader().initialOffset()

    def test_a_slot_that_another_reader_has_used_is_an_error(self, feed):
        reader = feed.reader()
        _, start = take(reader)
        feed.execute("INSERT INTO t VALUES (1, 'a')")
        feed.conn.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [feed.source.slot])

        with pytest.raises(InputLostError, match="another reader uses it too; give each its own slot"):
            take(reader, start)

    def test_a_log_that_ends_before_what_was_read_is_an_error(self, feed):
        feed.execute("INSERT INTO t VALUES (1, 'a')")
        reader = feed.reader()
        _, end = drain(reader)

        with pytest.raises(InputLostError, match=r"the server's log ends at .* a standby without the end of the log"):
            take(reader, end | {"lsn": "FFFFFFFF/0"})

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

    def test_a_table_that_does_not_exist_is_named(self, database_url):
        with pytest.raises(SourceSetupError, match="table 'nowhere': does not exist in the database"):
            _ = PostgresChanges("nowhere", url=database_url).schema

    def test_a_view_is_refused(self, feed):
        feed.execute("CREATE OR REPLACE VIEW v AS SELECT * FROM t")
        try:
            with pytest.raises(SourceSetupError, match="'v' is not a table"):
                _ = PostgresChanges("v", url=feed.url).schema
        finally:
            feed.execute("DROP VIEW v")

    @pytest.mark.parametrize("slot", ["With-Dash", "x" * 64])
    def test_a_slot_s_name_is_checked(self, slot):
        with pytest.raises(PipelineError, match="is not a valid name; use a-z, 0-9 and _, at most 63"):
            PostgresChanges("t", slot=slot)

    def test_an_invalid_url_is_not_shown(self, monkeypatch):
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
            "to_regclass('tidegauge_source.' || %(slot)s), "
            "(SELECT count(*) FROM tidegauge_source.beginning WHERE slot = %(slot)s)",
            {"slot": feed.source.slot},
        ).fetchone()
        assert left == (0, 0, None, 0)
        assert drain(feed.reader())[0] == [("snapshot", "1", "a")]


def test_a_table_that_was_made_again_has_another_id(feed):
    before = feed.source.identity()

    feed.execute("DROP TABLE t", "CREATE TABLE public.t (id int PRIMARY KEY, note text)")
    after = feed.source.identity()

    assert sorted(before) == ["database", "server", "table public.t"]
    assert [name for name in before if before[name] != after[name]] == ["table public.t"]


def test_any_user_may_ask_for_the_ids(feed):
    with feed.conn.transaction(force_rollback=True):
        feed.execute("CREATE ROLE plain_user", "SET LOCAL ROLE plain_user")
        row = feed.conn.execute(IDENTITY, ["public.t"]).fetchone()

    assert dict(zip(("server", "database", "table public.t"), map(str, row), strict=True)) == feed.source.identity()


def test_a_slot_that_is_still_being_created_does_not_exist_yet(conn, database_url):
    def make():
        with psycopg.connect(database_url, autocommit=True) as maker:
            maker.execute("SELECT pg_create_logical_replication_slot('half_made', 'pgoutput')")

    thread = threading.Thread(target=make)
    with psycopg.connect(database_url) as busy:
        busy.execute("SELECT pg_current_xact_id()")
        thread.start()
        deadline = time.monotonic() + 30
        while not conn.execute("SELECT FROM pg_replication_slots").rowcount and time.monotonic() < deadline:
            time.sleep(0.01)
        state = Slot(conn, "half_made", "any").state()
    thread.join(timeout=30)

    assert state is None
    assert Slot(conn, "half_made", "any").state() is not None
    conn.execute("SELECT pg_drop_replication_slot('half_made')")


def test_a_slot_that_is_being_read_is_waited_for_up_to_a_limit(feed, monkeypatch):
    monkeypatch.setattr(postgres_slot, "MAX_WAIT_SECONDS", 0.3)
    reader = feed.reader()
    _, start = take(reader)
    feed.execute("INSERT INTO t VALUES (1, 'a')")

    with psycopg.connect(feed.url, replication="database", autocommit=True) as other:
        options = f"(proto_version '1', publication_names '{feed.source.publication}')"
        other.pgconn.exec_(f"START_REPLICATION SLOT {feed.source.slot} LOGICAL 0/0 {options}".encode())
        with pytest.raises(
            SourceSetupError, match=r"another reader has been using it for 0 s \(.* is active for PID \d+\)"
        ):
            take(reader, start)
        threading.Timer(0.2, other.close).start()
        monkeypatch.setattr(postgres_slot, "MAX_WAIT_SECONDS", 30)

        assert changes_of(take(reader, start)[0]) == [("insert", "1", "a")]

"""Rows as they were before their changes: from a log that has them or their keys, refused where they may be wrong."""

import pytest

from tests.pipelines.sources.table_feed import drain, take
from tidegauge.pipelines.errors import InputLostError, PipelineError, SourceSetupError
from tidegauge.pipelines.sources.postgres.changes import PostgresChanges

LARGE = "repeat('x', 9000)"


@pytest.fixture
def full(feed):
    """The table with REPLICA IDENTITY FULL, read with its old rows."""
    feed.execute("ALTER TABLE t REPLICA IDENTITY FULL", "ALTER TABLE t ALTER note SET STORAGE EXTERNAL")
    return feed.declare(old_rows="full")


@pytest.fixture
def keyed(feed):
    feed.execute("ALTER TABLE t ALTER note SET STORAGE EXTERNAL")
    return feed.declare(old_rows="key")


class TestFull:
    def test_an_update_is_preceded_by_the_row_as_it_was_and_a_delete_has_it_whole(self, full):
        reader = full.reader()
        _, start = take(reader)
        full.execute("INSERT INTO t VALUES (1, 'a')", "UPDATE t SET note = 'b'", "DELETE FROM t")

        assert drain(reader, start)[0] == [
            ("insert", "1", "a"),
            ("update_before", "1", "a"),
            ("update", "1", "b"),
            ("delete", "1", "b"),
        ]

    def test_a_new_key_is_a_delete_and_an_insert(self, full):
        reader = full.reader()
        _, start = take(reader)
        full.execute("INSERT INTO t VALUES (1, 'a')", "UPDATE t SET id = 2")

        assert drain(reader, start)[0][1:] == [("delete", "1", "a"), ("insert", "2", "a")]

    def test_a_row_of_the_copy_is_given_again_as_it_was_copied(self, full):
        full.execute("INSERT INTO t VALUES (1, 'a')")
        reader = full.reader()
        copied, end = drain(reader)
        full.execute("UPDATE t SET note = 'b'")

        assert copied == [("snapshot", "1", "a")]
        assert drain(reader, end)[0] == [("update_before", "1", "a"), ("update", "1", "b")]

    def test_a_large_value_that_did_not_change_is_that_of_the_old_row(self, full):
        reader = full.reader()
        _, start = take(reader)
        full.execute("ALTER TABLE t ADD n int", f"INSERT INTO t VALUES (1, {LARGE})", "UPDATE t SET n = 1")

        found = drain(reader, start)[0]

        assert [len(note) for _, _, note in found] == [9000, 9000, 9000]

    def test_another_identity_is_refused_at_the_start_with_the_statement_that_sets_it(self, feed, spark):
        source = feed.declare(old_rows="full").source

        with pytest.raises(SourceSetupError, match=r"ALTER TABLE t REPLICA IDENTITY FULL, or read old_rows='key'"):
            source.load(spark)

    def test_changes_that_were_logged_under_another_identity_are_refused(self, full):
        reader = full.reader()
        _, start = take(reader)
        full.execute("INSERT INTO t VALUES (1, 'a')", "ALTER TABLE t REPLICA IDENTITY DEFAULT")
        full.execute("UPDATE t SET note = 'b'", "ALTER TABLE t REPLICA IDENTITY FULL")

        with pytest.raises(SourceSetupError, match=r"the update at LSN \S+ came without the old row"):
            take(reader, start)

    def test_a_truncate_is_an_error_that_offers_no_way_to_keep_the_counts(self, full):
        reader = full.reader()
        _, start = take(reader)
        full.execute("TRUNCATE t")

        with pytest.raises(InputLostError, match=r"was truncated at LSN \S+, .*\(PostgresChanges.drop\(\), .*\)$"):
            take(reader, start)

    def test_ignoring_truncates_is_refused(self):
        with pytest.raises(PipelineError, match="would leave the rows of a truncated table counted"):
            PostgresChanges("t", old_rows="full", ignore_truncate=True)


class TestKeys:
    def test_an_update_is_preceded_by_its_key_and_names_what_was_not_sent(self, keyed):
        reader = keyed.reader()
        _, start = take(reader)
        keyed.execute("ALTER TABLE t ADD n int", f"INSERT INTO t VALUES (1, {LARGE})", "UPDATE t SET n = 1")

        rows, _ = take(reader, start)

        assert [row[2:4] for row in rows] == [(None, "insert"), (None, "update_before"), ('["note"]', "update")]
        assert [row[:2] for row in rows[1:]] == [("1", None), ("1", None)]

    def test_a_value_that_was_not_sent_under_a_new_key_is_an_error(self, keyed):
        reader = keyed.reader()
        _, start = take(reader)
        keyed.execute(f"INSERT INTO t VALUES (1, {LARGE})", "UPDATE t SET id = 2")

        with pytest.raises(SourceSetupError, match=r"did not change 'note', .* REPLICA IDENTITY FULL"):
            take(reader, start)

    def test_a_table_without_a_primary_key_is_refused_at_the_start(self, feed, spark):
        feed.execute("ALTER TABLE t DROP CONSTRAINT t_pkey")

        with pytest.raises(SourceSetupError, match="old_rows='key' needs a primary key"):
            feed.declare(old_rows="key").source.load(spark)


class TestColumns:
    def test_a_type_that_changed_is_refused_as_rows_would_differ_from_those_that_were_counted(self, full):
        reader = full.reader()
        _, start = take(reader)
        full.execute("INSERT INTO t VALUES (1, 'a')", "ALTER TABLE t ALTER note TYPE varchar(9)")

        with pytest.raises(SourceSetupError, match=r"note was text, and is character varying\(9\): rows would be"):
            take(reader, start)

    def test_a_column_that_is_dropped_is_refused(self, full):
        reader = full.reader()
        _, start = take(reader)
        full.execute("INSERT INTO t VALUES (1, 'a')", "ALTER TABLE t DROP note")

        with pytest.raises(SourceSetupError, match="note was text, and is gone"):
            take(reader, start)

    def test_columns_that_are_added_are_left_out_until_the_stream_begins_again(self, full):
        drain(full.reader())
        full.execute("ALTER TABLE t ADD n int DEFAULT 5")

        assert full.declare(old_rows="full").source.fields.names == ["id", "note"]
        full.source.drop()
        assert full.declare(old_rows="full").source.fields.names == ["id", "note", "n"]

    def test_a_column_that_is_added_and_asked_for_is_refused(self, full):
        reader = full.reader()
        _, start = take(reader)
        full.execute("ALTER TABLE t ADD n int DEFAULT 5", "INSERT INTO t VALUES (1, 'a')")
        wider = type(reader)(full.declare(old_rows="full").source.reader_settings(("id", "note", "n")))

        with pytest.raises(SourceSetupError, match="n was absent, and is integer"):
            take(wider, start)


def test_another_kind_of_old_rows_is_refused():
    with pytest.raises(PipelineError, match="old_rows 'all' is not one of full, key"):
        PostgresChanges("t", old_rows="all")

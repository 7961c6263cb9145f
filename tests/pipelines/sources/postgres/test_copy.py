"""The first copy of a table: between it and the changes nothing is lost, and nothing comes twice."""

import psycopg
import pytest

from tests.pipelines.sources.table_feed import drain, take
from tidegauge.pipelines.errors import InputLostError
from tidegauge.pipelines.sources.postgres.copy import FirstCopy
from tidegauge.pipelines.sources.postgres.reader import CopyPages


def test_changes_that_land_while_the_table_is_copied_come_once(feed, monkeypatch):
    """Each of the three moments: between slot and copy, running while it is taken, and after it."""
    with psycopg.connect(feed.url) as running:
        feed.execute("INSERT INTO t VALUES (1, 'before')")
        take_copy, make_copy = FirstCopy._take, FirstCopy._copy

        def after_the_slot(copy, table):
            feed.execute("INSERT INTO t VALUES (2, 'between')", "UPDATE t SET note = 'seen' WHERE id = 1")
            running.execute("INSERT INTO t VALUES (3, 'running')")
            return take_copy(copy, table)

        def within_the_snapshot(copy, table):
            feed.execute("INSERT INTO t VALUES (4, 'after')")
            running.commit()
            return make_copy(copy, table)

        monkeypatch.setattr(FirstCopy, "_take", after_the_slot)
        monkeypatch.setattr(FirstCopy, "_copy", within_the_snapshot)
        found, _ = drain(feed.reader())

    assert sorted(found) == [
        ("insert", "3", "running"), ("insert", "4", "after"), ("snapshot", "1", "seen"), ("snapshot", "2", "between")
    ]  # fmt: skip


def test_rows_are_copied_by_pages_over_several_batches(feed):
    feed.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 100) i")
    reader = feed.declare(max_changes_per_batch=30).reader()

    first, end = take(reader)
    rest, _ = drain(reader, end)

    assert 0 < len(first) < 60
    assert sorted(int(row[0]) for row in first) + sorted(int(key) for _, key, _ in rest) == list(range(1, 101))
    assert all(isinstance(part, CopyPages) for part in reader.partitions(reader.initialOffset(), end))


def test_a_start_that_was_killed_after_the_slot_was_made_goes_on(feed, monkeypatch):
    monkeypatch.setattr(FirstCopy, "_copy", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        feed.reader().initialOffset()
    monkeypatch.undo()
    feed.execute("INSERT INTO t VALUES (1, 'meanwhile')")

    assert drain(feed.reader())[0] == [("snapshot", "1", "meanwhile")]


def test_a_second_checkpoint_over_a_slot_that_was_read_is_an_error(feed):
    feed.execute("INSERT INTO t VALUES (1, 'a')")
    reader = feed.reader()
    _, end = take(reader)
    reader.commit(end)

    with pytest.raises(InputLostError, match="has been read before, by another checkpoint"):
        feed.reader().initialOffset()

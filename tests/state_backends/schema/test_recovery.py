"""The SQL of docs/recovery.md that an operator types when a schema change is refused or waits."""

from dataclasses import replace

import psycopg
import pytest

from tests.recovery_page import message_of, statements
from tests.state_backends.feed import Feed
from tidegauge.state_backends import Catalog, Count, StateSpec
from tidegauge.state_backends.errors import DependentObjectsError, StateBusyError, TablesBusyError
from tidegauge.state_backends.ledger.state_lock import state_lock
from tidegauge.state_backends.schema import table_locks

WORDS = StateSpec("words", key={"word": "text"}, measures={"count": Count()})
PARTED = replace(WORDS, partitions=2)


@pytest.fixture(scope="module")
def installed_url(own_url):
    """A database of its own: every pipeline is deleted before each test."""
    return own_url


@pytest.fixture
def feed(conn):
    conn.execute("DROP SCHEMA IF EXISTS reports CASCADE; DELETE FROM tidegauge.pipeline")
    conn.execute("DROP TABLE IF EXISTS tidegauge_state.words CASCADE; CREATE SCHEMA reports")
    return Feed(conn, [WORDS], pipeline="word_count")


def register(feed, spec):
    Catalog(feed.conn).register_states(feed.pipeline, [spec], {"words": ""})


def test_a_state_is_busy(feed, conn, connect):
    look, end = statements("A state is busy")
    holder = connect()

    with state_lock(holder, "words", "rebuild"):
        with (
            pytest.raises(StateBusyError, match=message_of("A state is busy", 1)),
            state_lock(conn, "words", "migration"),
        ):
            pass
        assert [row[:3] for row in conn.execute(look)] == [("words", "live", "rebuild")]
        assert conn.execute(end).fetchall() == [(True,)]
        register(feed, PARTED)

    assert holder.closed


def test_a_schema_change_waits_for_a_reader(feed, conn, connect, monkeypatch):
    monkeypatch.setattr(table_locks, "WAIT_SECONDS", 0.0)
    look, end = statements("A schema change waits for a reader")
    export = connect()
    export.autocommit = False
    export.execute("SELECT FROM tidegauge_state.words")

    with pytest.raises(TablesBusyError, match=message_of("A schema change waits for a reader", 2)) as refused:
        register(feed, PARTED)
    conn.execute(look)
    conn.execute(end.replace("4711", str(export.info.backend_pid)))
    register(feed, PARTED)

    assert f"pid {export.info.backend_pid} " in str(refused.value)
    with pytest.raises(psycopg.OperationalError):
        export.execute("SELECT")


def test_a_view_of_yours_stands_on_a_table_that_changes(feed, conn):
    definition, drop, create = statements("A view depends on a table that changes")
    conn.execute("CREATE VIEW reports.words AS SELECT word, count FROM tidegauge_state.words")

    with pytest.raises(DependentObjectsError, match=message_of("A view depends on a table that changes", 1)):
        register(feed, PARTED)
    assert "FROM tidegauge_state.words" in conn.execute(definition).fetchone()[0]
    conn.execute(drop)
    register(feed, PARTED)
    conn.execute(create)
    register(feed, replace(PARTED, partitions=3))

    assert conn.execute("SELECT count(*) FROM reports.words").fetchone() == (0,)

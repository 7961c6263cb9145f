"""A real PgBouncer between a pipeline and its database: refused by name by what needs a session, fit for readers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.pgbouncer import BEHIND_PGBOUNCER, pgbouncer
from tests.state_backends.feed import Feed, views
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.driver.session import DriverSession
from tidegauge.pipelines.errors import PoolerError, is_retryable
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.state_backends import Count, StateReader, StateSpec
from tidegauge.state_backends.reader.bounds import KeyRange
from tidegauge.state_backends.reader.pinned import export_pinned, pin
from tidegauge.state_backends.session import prepare

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})

# What PgBouncer is told in many guides, so that clients which send settings can connect.
IGNORING = "ignore_startup_parameters = options,extra_float_digits"

pytestmark = BEHIND_PGBOUNCER


@pytest.fixture
def pooled(database_url: str, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a PgBouncer in front of the module's database; gives the address that leads through it."""
    with ExitStack() as running:
        yield lambda *lines, **more: running.enter_context(pgbouncer(database_url, tmp_path, *lines, **more))


@pytest.mark.parametrize("mode", ["transaction", "session"])
@pytest.mark.parametrize("lines", [(), (IGNORING,)], ids=["as installed", "ignoring settings"])
def test_an_address_that_leads_through_a_pooler_is_refused_by_name(pooled, mode, lines):
    with pytest.raises(
        PoolerError, match=r"leads to a connection pooler, such as PgBouncer.*the server itself"
    ) as found:
        connect(pooled(*lines, mode=mode), "test")

    assert not is_retryable(found.value)


def test_a_driver_behind_a_pooler_does_not_begin(pooled, tmp_path):
    with pytest.raises(PoolerError), DriverSession(word_count(tmp_path), pooled(IGNORING)):
        pass


def test_the_server_itself_is_not_taken_for_a_pooler(database_url):
    with connect(database_url, "one") as one, connect(database_url, "other") as other:
        marks = [conn.execute("SELECT current_setting('tidegauge.session')").fetchone() for conn in (one, other)]

    assert marks[0] != marks[1]


def test_readers_are_answered_through_a_pooler_without_prepared_statements(pooled, conn):
    feed = Feed(conn, [VIEWS], pipeline="views")
    feed.run(views(("/", 1)))
    address = pooled()

    for _ in range(8):  # more than the sessions of the pool
        with psycopg.connect(address, autocommit=True, prepare_threshold=None) as client:
            prepare(client)
            reader = StateReader(client, VIEWS)
            answers = [reader.multi_get([("/",)]).parsed()[0]["value"] for _ in range(8)]
            exported = export_pinned(reader, client, pin(client, "views"), KeyRange(), ["n"])
            assert [row for rows in exported.batches() for row in rows] == [("/", 1)]
            assert answers == [{"n": 1}] * 8

"""Announcing: a pipeline is shown as starting from before Spark is loaded."""

import psycopg
import pytest

from tests.harness.waiting import eventually
from tidegauge.pipelines.driver import announcing
from tidegauge.pipelines.driver.announcing import acquired, announced
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.state_backends import BatchLedger, Catalog
from tidegauge.state_backends.errors import PipelineHeldError
from tidegauge.state_backends.ledger import driver_status

# The server ends a session a moment after its client has left.
ENDED = "SELECT NOT tidegauge.is_starting('word_count')"
SEEN = "SELECT status, message, tidegauge.is_starting(pipeline) FROM tidegauge.driver WHERE pipeline = 'word_count'"


@pytest.fixture
def ledger(conn: psycopg.Connection) -> psycopg.Connection:
    """A connection to a database with tables and nothing in them."""
    Catalog(conn).install()
    conn.execute("DELETE FROM tidegauge.pipeline")
    return conn


@pytest.fixture
def pipelines(tmp_path):
    return [word_count(tmp_path)]


def test_it_is_starting_until_its_driver_has_acquired_it(ledger, database_url, pipelines):
    with announced(pipelines, database_url):
        assert ledger.execute(SEEN).fetchone() == ("starting", announcing.WAITS_FOR, True)
        acquired("word_count")
        assert ledger.execute(SEEN).fetchone() == ("starting", announcing.WAITS_FOR, False)


@pytest.mark.parametrize(
    ("error", "status"), [(RuntimeError("no Java"), "failed"), (PipelineHeldError("held"), "starting")]
)
def test_a_start_that_fails_is_reported_unless_the_pipeline_has_a_driver(
    ledger, database_url, pipelines, error, status
):
    with pytest.raises(type(error)), announced(pipelines, database_url):
        raise error

    eventually(lambda: ledger.execute(ENDED).fetchone()[0])
    assert ledger.execute(SEEN).fetchone() == (status, "no Java" if status == "failed" else announcing.WAITS_FOR, False)


def test_what_its_driver_has_reported_stays(ledger, database_url, pipelines):
    def stopped_and_failed() -> None:
        with announced(pipelines, database_url):
            driver_status.report(ledger, "word_count", "stopped")
            raise RuntimeError("later")

    with pytest.raises(RuntimeError):
        stopped_and_failed()

    eventually(lambda: ledger.execute(ENDED).fetchone()[0])
    assert ledger.execute(SEEN).fetchone() == ("stopped", "", False)


def test_a_pipeline_with_a_driver_is_left_alone(ledger, database_url, pipelines):
    Catalog(ledger).register_pipeline("word_count", spout="transactional")
    BatchLedger(ledger, "word_count").acquire()
    driver_status.report(ledger, "word_count", "running")

    with announced(pipelines, database_url):
        assert ledger.execute(SEEN).fetchone() == ("running", "", False)


def test_a_second_start_leaves_the_first_alone(ledger, database_url, pipelines):
    with announced(pipelines, database_url), psycopg.connect(database_url, autocommit=True) as other:
        assert not announcing._announce(other, pipelines[0])


def test_without_tables_or_database_nothing_is_announced(ledger, database_url, pipelines):
    ledger.execute("DROP SCHEMA tidegauge CASCADE")
    with announced(pipelines, database_url):
        pass
    with announced(pipelines, "postgresql://127.0.0.1:1/none"):
        pass

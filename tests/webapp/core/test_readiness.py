"""What is stale is served, and said to be stale; only what cannot be served is not ready."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from tests.webapp.committed_flights import no_database
from webapp.core import health
from webapp.states import services

AFAR = {"REMOTE_ADDR": "8.8.8.8"}


@pytest.fixture
def report(client):
    """What /readyz says to whoever may see names: the whole answer, and its only pipeline."""

    def ask():
        response = client.get("/readyz")
        assert response.status_code == 200
        answer = response.json()
        return answer, answer["pipelines"][0]

    return ask


def test_a_pipeline_that_keeps_up_is_fresh(filled, report):
    answer, flights = report()

    assert (answer["status"], answer["fresh"], answer["stale"]) == ("ready", 1, 0)
    assert (flights["name"], flights["status"], flights["stale"]) == ("flights", "running", False)
    assert (flights["committed_txid"], flights["stale_seconds"], flights["reason"]) == (2, 0.0, "")


def test_a_driver_that_died_leaves_its_states_stale_since_their_last_batch(filled, report):
    filled.die()

    answer, flights = report()

    assert (answer["status"], answer["stale"]) == ("stale", 1)
    assert (flights["status"], flights["committed_txid"]) == ("lost", 2)
    assert flights["reason"] == "its driver died without a word"
    committed_at = datetime.fromisoformat(flights["committed_at"])
    assert abs((datetime.now(UTC) - committed_at).total_seconds() - flights["stale_seconds"]) < 10


@pytest.mark.parametrize(
    ("status", "stale"),
    [("starting", False), ("paused", False), ("finished", False), ("stopped", True), ("failed", True)],
)
def test_whether_a_driver_should_be_there(filled, report, status, stale):
    filled.report(status, "out of space" if status == "failed" else "")
    if status == "paused":
        services.pause_pipeline(name="flights", requested_by="x")

    _, flights = report()

    assert flights["stale"] is stale


def test_what_a_failing_driver_says_is_the_reason(filled, report):
    filled.fail("no space left on device", failures=2, next_try_at=timezone.now())

    assert report()[1]["reason"] == "restarting: no space left on device"


def test_input_that_waits_too_long_is_stale(filled, report, settings):
    settings.TIDEMARK_STALE_AFTER_SECONDS = 60
    waits_since = datetime.now(UTC) - timedelta(seconds=90)
    filled.report("running", pending={"count": 3, "unit": "files", "oldest": waits_since.isoformat()})

    _, flights = report()

    assert flights["reason"].endswith("s, more than 60 s")
    assert 90 <= flights["stale_seconds"] < 120


def test_input_that_waits_a_little_is_not(filled, report, settings):
    settings.TIDEMARK_STALE_AFTER_SECONDS = 300
    waits_since = datetime.now(UTC) - timedelta(seconds=90)
    filled.report("running", pending={"count": 3, "unit": "files", "oldest": waits_since.isoformat()})

    assert report()[1]["stale"] is False


class TestNames:
    """Strangers learn how many pipelines are stale, and nothing else."""

    def test_a_stranger_gets_counts(self, client, filled):
        filled.fail("cannot reach db.internal", failures=2, next_try_at=timezone.now())

        response = client.get("/readyz", **AFAR)

        assert response.json() == {"status": "stale", "fresh": 0, "stale": 1}

    def test_somebody_who_has_signed_in_sees_names(self, reader, filled):
        assert reader.get("/readyz", **AFAR).json()["pipelines"][0]["name"] == "flights"

    def test_the_metrics_token_shows_names(self, client, filled, settings):
        settings.TIDEMARK_METRICS_TOKEN = "scrape-me"

        told = client.get("/readyz", headers={"Authorization": "Bearer scrape-me"}, **AFAR).json()

        assert told["pipelines"][0]["name"] == "flights"

    def test_settings_may_show_them_to_all(self, client, filled, settings):
        settings.TIDEMARK_READYZ_NAMES = True

        assert client.get("/readyz", **AFAR).json()["pipelines"][0]["name"] == "flights"


def test_without_a_database_nothing_can_be_served(client, transactional_db):
    with no_database():
        response = client.get("/readyz", **AFAR)

    assert (response.status_code, response.json()["reason"]) == (503, "the database does not answer")


def test_without_its_tables_nothing_can_be_served(client, connection, monkeypatch):
    monkeypatch.setattr(health, "migrations", type(health.migrations)())
    connection.execute("DELETE FROM django_migrations WHERE app = 'states'")

    response = client.get("/readyz")

    assert (response.status_code, response.json()["reason"]) == (503, "migrations are missing")

"""The views /healthz, /readyz and /metrics."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import RequestFactory
from django.utils import timezone

from tests.webapp.committed_flights import no_database
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.webapp.core import proxies
from tidegauge.webapp.maintenance import operations
from tidegauge.webapp.serving import health

TOKEN = "scrape-me-0123456789"
REMOTE = {"REMOTE_ADDR": "8.8.8.8"}


def test_a_process_with_a_database_is_healthy(client, db):
    response = client.get("/healthz")

    assert (response.status_code, response.json()) == (200, {"status": "ok", "database": "ok"})


def test_a_process_without_a_database_is_unhealthy(client, transactional_db):
    with no_database():
        response = client.get("/healthz")

    assert (response.status_code, response.json()["database"]) == (503, "does not answer")


@pytest.fixture
def report(client):
    """What /readyz answers to a client that may see names: the whole answer, and its only pipeline."""

    def ask():
        response = client.get("/readyz")
        assert response.status_code == 200
        answer = response.json()
        return answer, answer["pipelines"][0]

    return ask


def test_a_pipeline_without_lag_is_fresh(filled, report):
    answer, flights = report()

    assert (answer["status"], answer["fresh"], answer["stale"]) == ("ready", 1, 0)
    assert (flights["name"], flights["status"], flights["stale"]) == ("flights", "running", False)
    assert (flights["verdict"], flights["committed_txid"]) == ("caught up", 2)
    assert (flights["stale_seconds"], flights["reason"]) == (0.0, "")


def test_without_its_driver_a_pipeline_is_stale_since_its_last_commit(filled, report):
    filled.die()

    answer, flights = report()

    assert (answer["status"], answer["stale"]) == ("stale", 1)
    assert (flights["status"], flights["committed_txid"]) == ("lost", 2)
    assert flights["reason"] == "its driver stopped responding"
    committed_at = datetime.fromisoformat(flights["committed_at"])
    assert abs((datetime.now(UTC) - committed_at).total_seconds() - flights["stale_seconds"]) < 10


@pytest.mark.parametrize(
    ("status", "stale"),
    [("starting", False), ("paused", False), ("finished", False), ("stopped", True), ("failed", True)],
)
def test_a_pipeline_is_stale_if_it_should_have_a_driver(filled, report, status, stale):
    filled.report(status, "out of space" if status == "failed" else "")
    if status == "paused":
        operations.pause_pipeline(name="flights", requested_by="x")

    _, flights = report()

    assert flights["stale"] is stale


def test_the_message_of_a_failing_driver_is_the_reason(filled, report):
    filled.fail("no space left on device", failures=2, next_try_at=timezone.now())

    assert report()[1]["reason"] == "it failed 2 times in a row and tries again: no space left on device"


def test_a_pipeline_whose_input_waits_too_long_is_stale(filled, report, settings):
    settings.TIDEGAUGE_STALE_AFTER_SECONDS = 60
    oldest = datetime.now(UTC) - timedelta(seconds=90)
    filled.report("running", pending={"count": 3, "unit": "files", "oldest": oldest.isoformat()})

    _, flights = report()

    assert flights["reason"].endswith(" s, more than 60 s")
    assert 90 <= flights["stale_seconds"] < 120


def test_a_pipeline_whose_input_waits_a_little_is_fresh(filled, report, settings):
    settings.TIDEGAUGE_STALE_AFTER_SECONDS = 300
    oldest = datetime.now(UTC) - timedelta(seconds=90)
    filled.report("running", pending={"count": 3, "unit": "files", "oldest": oldest.isoformat()})

    assert report()[1]["stale"] is False


def test_a_pipeline_that_rejects_input_is_fresh_and_says_so(filled, report):
    filled.commit({("EWR", "C00"): 4_000}, [DeadLetter("a.jsonl", "{", "cut short", 3)] * 3_000)

    answer, flights = report()

    assert (answer["status"], flights["stale"], flights["verdict"]) == ("ready", False, "rejecting")
    assert flights["reason"] == "29.6 % of the rows of recent batches are dead letters, more than 5 %"


class TestNames:
    """Unauthenticated clients get the number of stale pipelines, and nothing else."""

    def test_an_unauthenticated_client_gets_counts(self, client, filled):
        filled.fail("cannot reach db.internal", failures=2, next_try_at=timezone.now())

        response = client.get("/readyz", **REMOTE)

        assert response.json() == {"status": "stale", "fresh": 0, "stale": 1}

    def test_a_signed_in_user_sees_names(self, reader, filled):
        assert reader.get("/readyz", **REMOTE).json()["pipelines"][0]["name"] == "flights"

    def test_the_metrics_token_shows_names(self, client, filled, settings):
        settings.TIDEGAUGE_METRICS_TOKEN = "scrape-me"

        answer = client.get("/readyz", headers={"Authorization": "Bearer scrape-me"}, **REMOTE).json()

        assert answer["pipelines"][0]["name"] == "flights"

    def test_a_setting_shows_names_to_all_clients(self, client, filled, settings):
        settings.TIDEGAUGE_READYZ_NAMES = True

        assert client.get("/readyz", **REMOTE).json()["pipelines"][0]["name"] == "flights"


class TestAnUnknownProxy:
    """Behind a proxy that the settings do not know of, all clients have one address."""

    @pytest.fixture(autouse=True)
    def not_noticed(self):
        proxies.forget()
        yield
        proxies.forget()

    def test_it_is_logged_once_and_shown_to_users(self, reader, filled, caplog):
        for _ in range(2):
            reader.get("/readyz", HTTP_X_FORWARDED_FOR="198.51.100.1", **REMOTE)

        assert [record.message for record in caplog.records].count(proxies.UNKNOWN_PROXY) == 1
        assert reader.get("/readyz", **REMOTE).json()["warnings"] == [proxies.UNKNOWN_PROXY]

    def test_strangers_do_not_see_it(self, client, filled):
        answer = client.get("/readyz", HTTP_X_FORWARDED_FOR="198.51.100.1", **REMOTE).json()

        assert "warnings" not in answer

    def test_a_proxy_that_is_set_is_no_warning(self, reader, filled, settings):
        settings.PROXIES = 1

        assert "warnings" not in reader.get("/readyz", HTTP_X_FORWARDED_FOR="198.51.100.1", **REMOTE).json()


def test_without_a_database_nothing_can_be_served(client, transactional_db):
    with no_database():
        response = client.get("/readyz", **REMOTE)

    assert (response.status_code, response.json()["reason"]) == (503, "the database does not answer")


def test_without_its_tables_nothing_can_be_served(client, connection, monkeypatch):
    monkeypatch.setattr(health, "migrations", type(health.migrations)())
    connection.execute("DELETE FROM django_migrations WHERE app = 'states'")

    response = client.get("/readyz")

    assert (response.status_code, response.json()["reason"]) == (503, "migrations are missing")


def scrape(client, address="127.0.0.1", **headers):
    return client.get("/metrics", headers=headers, REMOTE_ADDR=address)


@pytest.fixture
def with_token(settings):
    settings.TIDEGAUGE_METRICS_TOKEN = TOKEN


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1"])
def test_without_a_token_clients_on_this_machine_may_read_metrics(client, db, address):
    response = scrape(client, address)

    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain; version=")
    assert b"tidegauge_database_up 1.0" in response.content


@pytest.mark.parametrize("address", ["10.0.0.5", "192.168.1.2", "8.8.8.8", "2001:db8::1", ""])
def test_without_a_token_other_clients_may_not(client, db, address):
    assert scrape(client, address).status_code == 403


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_a_client_behind_a_proxy_on_this_machine_may_not(client, db, header):
    assert scrape(client, **{header: "127.0.0.1"}).status_code == 403


@pytest.mark.usefixtures("with_token")
class TestToken:
    def test_it_allows_any_address(self, client, db):
        assert scrape(client, "8.8.8.8", Authorization=f"Bearer {TOKEN}").status_code == 200

    @pytest.mark.parametrize("given", ["", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer ", TOKEN, "Bearer é"])
    def test_a_wrong_one_is_refused(self, client, db, given):
        response = scrape(client, Authorization=given)

        assert (response.status_code, response["WWW-Authenticate"]) == (401, "Bearer")
        assert TOKEN.encode() not in response.content

    def test_clients_on_this_machine_need_it_too(self, client, db):
        assert scrape(client).status_code == 401


def test_metrics_are_not_for_a_page_that_names_this_machine(db):
    """As the events process calls the view, without middleware that checks the host."""
    request = RequestFactory().get("/metrics", headers={"Host": "pages.example"}, REMOTE_ADDR="127.0.0.1")

    assert health.ON_EVENTS["/metrics"](request).status_code == 400


def test_metrics_answer_only_reads(client, db):
    assert client.post("/metrics").status_code == 405

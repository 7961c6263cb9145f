from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone
from kombu.exceptions import OperationalError

from tests.webapp.api.checked_client import CheckedClient
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog.models import IdempotencyKey, MaintenanceRun
from tidegauge.webapp.celery import app
from tidegauge.webapp.maintenance import services


@pytest.fixture(autouse=True)
def quiet_queue(monkeypatch):
    """Nothing is sent: these requests run in a transaction that is never committed."""
    monkeypatch.setattr(app, "send_task", lambda *args, **options: None)


@pytest.mark.parametrize("kind", ["compaction", "expiry"])
def test_a_run_is_requested_and_found_by_its_id(filled, keeper, kind):
    response = keeper.ask("POST", f"/states/flights_by_carrier/{kind}")

    run = response.json()
    assert response.status_code == 202
    assert (run["kind"], run["state"], run["status"], run["requested_by"]) == (
        kind,
        "flights_by_carrier",
        "queued",
        "API key keeper",
    )
    assert response.headers["Location"] == f"/api/v1/maintenance/{run['id']}"
    assert keeper.ask("GET", f"/maintenance/{run['id']}").json() == run


def test_a_second_run_of_a_state_is_a_409(filled, keeper):
    keeper.ask("POST", "/states/totals/compaction")

    response = keeper.ask("POST", "/states/totals/expiry")

    assert response.status_code == 409
    assert "is queued already, asked for by API key keeper" in response.json()["detail"]


def test_a_run_of_an_unknown_state_is_a_404(filled, keeper):
    response = keeper.ask("POST", "/states/nothing/expiry")

    assert response.status_code == 404
    assert "there are flights_by_carrier" in response.json()["detail"]


def test_runs_are_listed_newest_first_and_filtered(filled, keeper):
    first, second = (
        keeper.ask("POST", f"/states/{state}/compaction").json()["id"] for state in ("totals", "flights_by_hour")
    )

    def listed(filters=""):
        return [run["id"] for run in keeper.ask("GET", f"/maintenance{filters}").json()["runs"]]

    assert listed() == [second, first]
    assert listed("?state=totals&kind=compaction&status=queued") == [first]
    assert listed("?limit=1") == [second]
    assert listed("?status=done") == []


@pytest.mark.parametrize("filters", ["status=ready", "kind=vacuum", "limit=0", "state=a%00"])
def test_an_invalid_filter_is_a_400(keeper, filters):
    assert keeper.ask("GET", f"/maintenance?{filters}").status_code == 400


def test_a_queued_run_is_cancelled_once(filled, keeper):
    run = keeper.ask("POST", "/states/totals/compaction").json()["id"]

    response = keeper.ask("DELETE", f"/maintenance/{run}")

    assert (response.status_code, response.json()["status"]) == (202, "cancelled")
    assert keeper.ask("DELETE", f"/maintenance/{run}").status_code == 409


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("run", [4711, 10**30])
def test_an_unknown_run_is_a_404(keeper, method, run):
    assert keeper.ask(method, f"/maintenance/{run}").status_code == 404


def test_a_done_run_has_progress_and_sizes(filled, keeper):
    MaintenanceRun.objects.create(
        kind="compaction",
        state_id="totals",
        status="done",
        requested_by="schedule",
        progress={"steps": [{"step": "tombstones", "seen": 60, "removed": 2}]},
        before={"state_rows": 60, "state_bytes": 8192},
        after={"state_rows": 58, "state_bytes": 8192},
    )

    (run,) = keeper.ask("GET", "/maintenance").json()["runs"]

    assert run["progress"] == [{"step": "tombstones", "seen": 60, "removed": 2}]
    assert (run["before"]["state_rows"], run["after"]["state_rows"]) == (60, 58)


class TestSession:
    def test_a_signed_in_user_may_read(self, filled, reader):
        assert reader.get("/api/v1/states").status_code == 200

    def test_only_users_with_the_permission_may_maintain(self, filled, reader, admin_client):
        refused = reader.post("/api/v1/states/totals/compaction")
        accepted = admin_client.post("/api/v1/states/totals/compaction")

        assert refused.status_code == 403
        assert "you lack the permission 'states.add_maintenancerun'" in refused.json()["detail"]
        assert (accepted.status_code, accepted.json()["requested_by"]) == (202, "admin")

    def test_a_post_without_a_csrf_token_is_refused(self, filled, admin_user):
        browser = Client(enforce_csrf_checks=True)
        browser.force_login(admin_user)

        response = browser.post("/api/v1/states/totals/compaction")

        assert response.status_code == 403
        assert "CSRF" in response.json()["detail"]

    def test_a_wrong_key_is_refused_in_spite_of_a_session(self, filled, admin_user):
        browser = CheckedClient("tmk_00000000_wrong")
        browser.force_login(admin_user)

        assert browser.ask("GET", "/states").status_code == 401


def test_a_queue_that_is_gone_is_a_503(filled, keeper, monkeypatch, django_capture_on_commit_callbacks):
    def refuse(*args, **options):
        raise services.BrokerError("connection refused")

    monkeypatch.setattr(app, "send_task", refuse)
    keeper.raise_request_exception = False

    with pytest.raises(services.BrokerUnavailableError), django_capture_on_commit_callbacks(execute=True):
        keeper.ask("POST", "/states/totals/compaction")

    assert MaintenanceRun.objects.get().status == "failed"


KEY = {"Idempotency-Key": "7f0c1b52-1"}


class TestIdempotencyKey:
    PATH = "/states/totals/compaction"

    def test_the_same_request_again_gets_the_same_run(self, filled, keeper):
        first, second = (keeper.ask("POST", self.PATH, headers=KEY) for _ in range(2))

        assert (first.status_code, second.status_code) == (202, 202)
        assert first.json()["id"] == second.json()["id"]
        assert [each.headers.get("Idempotent-Replayed") for each in (first, second)] == [None, "true"]
        assert MaintenanceRun.objects.count() == 1

    def test_also_when_the_run_has_ended(self, filled, keeper):
        first = keeper.ask("POST", self.PATH, headers=KEY).json()["id"]
        MaintenanceRun.objects.update(status="done")

        second = keeper.ask("POST", self.PATH, headers=KEY).json()

        assert (second["id"], second["status"]) == (first, "done")

    @pytest.mark.parametrize(
        ("path", "body"),
        [("/states/totals/expiry", None), ("/states/flights_by_hour/compaction", None), (PATH, {"other": "body"})],
    )
    def test_another_request_with_the_key_is_a_422(self, filled, keeper, path, body):
        keeper.ask("POST", self.PATH, headers=KEY)

        response = keeper.ask("POST", path, body, headers=KEY)

        assert (response.status_code, "7f0c1b52-1" in response.json()["detail"]) == (422, True)

    def test_another_client_may_have_the_same_key(self, filled, keeper):
        other = CheckedClient(create_api_key("other", ["maintain", "read"])[1])
        keeper.ask("POST", self.PATH, headers=KEY)

        assert other.ask("POST", "/states/flights_by_hour/compaction", headers=KEY).status_code == 202

    def test_a_request_that_was_refused_may_be_sent_again(self, filled, keeper):
        busy = keeper.ask("POST", "/states/totals/expiry").json()["id"]
        assert keeper.ask("POST", self.PATH, headers=KEY).status_code == 409
        keeper.ask("DELETE", f"/maintenance/{busy}")

        assert keeper.ask("POST", self.PATH, headers=KEY).status_code == 202

    def test_a_run_that_was_forgotten_is_requested_again(self, filled, keeper):
        keeper.ask("POST", self.PATH, headers=KEY)
        MaintenanceRun.objects.all().delete()

        assert "Idempotent-Replayed" not in keeper.ask("POST", self.PATH, headers=KEY).headers

    def test_a_key_is_kept_for_24_hours(self, filled, keeper):
        first = keeper.ask("POST", self.PATH, headers=KEY).json()["id"]
        MaintenanceRun.objects.update(status="done")
        IdempotencyKey.objects.update(at=timezone.now() - timedelta(hours=24, seconds=1))

        assert keeper.ask("POST", "/states/totals/expiry", headers=KEY).json()["id"] != first

    @pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "\xe9"])
    def test_an_invalid_key_is_a_400(self, filled, keeper, key):
        assert keeper.ask("POST", self.PATH, headers={"Idempotency-Key": key}).status_code == 400


class TestConcurrentDuplicates:
    def test_they_give_one_run(self, lasting, monkeypatch):
        sent = []
        monkeypatch.setattr(app, "send_task", lambda *args, **options: sent.append(options))
        _, secret = create_api_key("keeper", ["maintain"])
        together = Barrier(6)

        def ask(_):
            together.wait()
            try:
                headers = {"Authorization": f"Bearer {secret}", "Idempotency-Key": "once"}
                answer = Client().post("/api/v1/states/totals/compaction", headers=headers)
                return answer.status_code, answer.json()["id"]
            finally:
                connections.close_all()

        with ThreadPoolExecutor(6) as pool:
            answers = set(pool.map(ask, range(6)))

        assert (len(answers), {status for status, _ in answers}) == (1, {202})
        assert len(sent) == 1

    def test_a_request_that_no_queue_took_may_be_sent_again(self, lasting, monkeypatch):
        _, secret = create_api_key("keeper", ["maintain"])
        headers = {"Authorization": f"Bearer {secret}", "Idempotency-Key": "once"}
        monkeypatch.setattr(app, "send_task", unavailable)
        assert Client().post("/api/v1/states/totals/compaction", headers=headers).status_code == 503
        monkeypatch.setattr(app, "send_task", lambda *args, **options: None)

        answer = Client().post("/api/v1/states/totals/compaction", headers=headers)

        assert (answer.status_code, answer.json()["status"]) == (202, "queued")


def unavailable(*args, **options):
    raise OperationalError("no broker")

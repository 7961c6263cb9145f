import pytest
from django.test import Client

from tests.webapp.api.checked_client import CheckedClient
from webapp.celery import app
from webapp.states import services
from webapp.states.models import MaintenanceRun


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

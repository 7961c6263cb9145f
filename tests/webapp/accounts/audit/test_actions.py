"""Every action on states and pipelines is recorded, from the API, the dashboard, a command or the schedule."""

import pytest
from django.test import Client

from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.runs import UnfinishedRunError
from tidegauge.webapp.celery import app
from tidegauge.webapp.maintenance import operations, services
from tidegauge.webapp.maintenance.services import RunFinishedError

STATE, PIPELINE = "flights_by_carrier", "flights"


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    """Runs are not sent to a worker."""
    monkeypatch.setattr(app, "send_task", lambda name, args: None)


def entries():
    return [(entry.action, entry.target, entry.actor) for entry in AuditEntry.objects.order_by("id")]


def request(by="ada"):
    return services.request_maintenance(kind="compaction", state=STATE, requested_by=by)


def test_a_request_is_recorded_with_its_run(filled):
    run = request()

    assert entries() == [("maintenance.request", f"state {STATE}", "ada")]
    assert AuditEntry.objects.get().detail == {"kind": "compaction", "run": run.id}


def test_a_refused_request_is_not_recorded(filled):
    request()

    with pytest.raises(UnfinishedRunError):
        request("bob")

    assert [actor for _, _, actor in entries()] == ["ada"]


def test_a_cancelled_run_is_recorded_with_its_actor(filled):
    run = request()

    services.cancel_maintenance(run.id, requested_by="bob")

    assert entries()[-1] == ("maintenance.cancel", f"state {STATE}", "bob")


def test_cancelling_a_finished_run_is_not_recorded(filled):
    run = request()
    MaintenanceRun.objects.update(status="done")

    with pytest.raises(RunFinishedError):
        services.cancel_maintenance(run.id, requested_by="bob")

    assert len(entries()) == 1


def test_the_schedule_is_the_actor_of_its_requests(filled):
    services.maintain_all("compaction")

    states = {target for action, target, actor in entries() if (action, actor) == ("maintenance.request", "schedule")}
    assert f"state {STATE}" in states


def test_a_run_from_the_command_line_is_recorded(filled):
    services.maintain_now(kind="compaction", state=STATE, requested_by="a shell")

    assert entries() == [("maintenance.request", f"state {STATE}", "a shell")]


def test_pausing_and_resuming_are_recorded(filled):
    operations.pause_pipeline(name=PIPELINE, requested_by="ada")
    operations.resume_pipeline(name=PIPELINE, requested_by="bob")

    assert entries() == [
        ("pipeline.pause", f"pipeline {PIPELINE}", "ada"),
        ("pipeline.resume", f"pipeline {PIPELINE}", "bob"),
    ]


def test_an_api_key_is_the_actor_of_its_requests(filled):
    _, secret = create_api_key("feed", ["read", "maintain"])
    client = Client(headers={"X-Api-Key": secret})

    client.post(f"/api/v1/states/{STATE}/compaction")
    client.post(f"/api/v1/pipelines/{PIPELINE}/pause")
    client.delete(f"/api/v1/maintenance/{MaintenanceRun.objects.get().id}")

    assert [(action, actor) for action, _, actor in entries()[1:]] == [
        ("maintenance.request", "API key feed"),
        ("pipeline.pause", "API key feed"),
        ("maintenance.cancel", "API key feed"),
    ]


def test_a_user_is_the_actor_on_the_dashboard(filled, admin_client):
    admin_client.post(f"/pipelines/{PIPELINE}/pause")

    assert entries()[-1] == ("pipeline.pause", f"pipeline {PIPELINE}", "admin")

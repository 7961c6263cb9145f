"""That every act on states and pipelines leaves a row, whoever asks and through whichever door."""

import pytest
from django.test import Client

from webapp.accounts.audit.models import AuditEntry
from webapp.accounts.services import create_api_key
from webapp.celery import app
from webapp.states import services
from webapp.states.models import MaintenanceRun
from webapp.states.services import RunFinishedError, StateBusyError

STATE, PIPELINE = "flights_by_carrier", "flights"


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    """Runs are queued for nobody."""
    monkeypatch.setattr(app, "send_task", lambda name, args: None)


def noted():
    return [(entry.action, entry.target, entry.actor) for entry in AuditEntry.objects.order_by("id")]


def request(by="ada"):
    return services.request_maintenance(kind="compaction", state=STATE, requested_by=by)


def test_a_request_is_noted_with_the_run(filled):
    run = request()

    assert noted() == [("maintenance.request", f"state {STATE}", "ada")]
    assert AuditEntry.objects.get().detail == {"kind": "compaction", "run": run.id}


def test_a_request_that_is_refused_is_not(filled):
    request()

    with pytest.raises(StateBusyError):
        request("bob")

    assert [actor for _, _, actor in noted()] == ["ada"]


def test_a_run_that_is_called_off_is_noted_with_who_did_it(filled):
    run = request()

    services.cancel_maintenance(run.id, requested_by="bob")

    assert noted()[-1] == ("maintenance.cancel", f"state {STATE}", "bob")


def test_one_that_was_over_already_is_not(filled):
    run = request()
    MaintenanceRun.objects.update(status="done")

    with pytest.raises(RunFinishedError):
        services.cancel_maintenance(run.id, requested_by="bob")

    assert len(noted()) == 1


def test_what_the_schedule_asks_for_is_its_own(filled):
    services.maintain_all("compaction")

    states = {target for action, target, actor in noted() if (action, actor) == ("maintenance.request", "schedule")}
    assert f"state {STATE}" in states


def test_what_is_done_from_a_shell_is_noted_too(filled):
    services.maintain_now(kind="compaction", state=STATE, requested_by="a shell")

    assert noted() == [("maintenance.request", f"state {STATE}", "a shell")]


def test_a_pause_and_its_end_are_noted(filled):
    services.pause_pipeline(name=PIPELINE, requested_by="ada")
    services.resume_pipeline(name=PIPELINE, requested_by="bob")

    assert noted() == [
        ("pipeline.pause", f"pipeline {PIPELINE}", "ada"),
        ("pipeline.resume", f"pipeline {PIPELINE}", "bob"),
    ]


def test_a_key_is_named_as_the_one_who_did_it(filled):
    _, secret = create_api_key("feed", ["read", "maintain"])
    client = Client(headers={"X-Api-Key": secret})

    client.post(f"/api/v1/states/{STATE}/compaction")
    client.post(f"/api/v1/pipelines/{PIPELINE}/pause")
    client.delete(f"/api/v1/maintenance/{MaintenanceRun.objects.get().id}")

    assert [(action, actor) for action, _, actor in noted()[1:]] == [
        ("maintenance.request", "API key feed"),
        ("pipeline.pause", "API key feed"),
        ("maintenance.cancel", "API key feed"),
    ]


def test_so_is_somebody_at_the_dashboard(filled, admin_client):
    admin_client.post(f"/pipelines/{PIPELINE}/pause")

    assert noted()[-1] == ("pipeline.pause", f"pipeline {PIPELINE}", "admin")

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone
from structlog.contextvars import bound_contextvars

from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.maintenance import services


@pytest.mark.django_db
def test_an_entry_has_actor_action_target_time_and_request():
    with bound_contextvars(request_id="r-1"):
        record("maintenance.request", "state routes", by="ada", run=7)

    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.target) == ("ada", "maintenance.request", "state routes")
    assert (entry.detail, entry.request_id) == ({"run": 7}, "r-1")
    assert entry.at is not None


@pytest.mark.django_db
def test_the_schedule_deletes_entries_older_than_the_setting(settings):
    settings.TIDEGAUGE_AUDIT_KEEP_DAYS = 400
    for days in (399, 401):
        record("user.sign_in", f"user of {days} days ago", by="ada")
        AuditEntry.objects.filter(target=f"user of {days} days ago").update(at=timezone.now() - timedelta(days=days))

    services.maintain_all("expiry")

    assert [entry.target for entry in AuditEntry.objects.all()] == ["user of 399 days ago"]


@pytest.mark.django_db
def test_an_action_that_is_rolled_back_leaves_no_entry():
    with transaction.atomic():
        record("pipeline.pause", "pipeline flights", by="ada")
        transaction.set_rollback(True)

    assert not AuditEntry.objects.exists()

import pytest
from structlog.contextvars import bound_contextvars

from webapp.audit.models import AuditEntry
from webapp.audit.services import record


@pytest.mark.django_db
def test_an_act_is_noted_with_who_what_when_and_in_which_request():
    with bound_contextvars(request_id="r-1"):
        record("maintenance.request", "state routes", by="ada", run=7)

    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.target) == ("ada", "maintenance.request", "state routes")
    assert (entry.detail, entry.request_id) == ({"run": 7}, "r-1")
    assert entry.at is not None

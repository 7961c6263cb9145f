import pytest

from webapp.accounts.audit.models import AuditEntry
from webapp.accounts.audit.services import record

AUDIT = "/admin/audit/auditentry/"


@pytest.fixture
def entries(db):
    record("key.create", "API key feed (tmk_00000000_..)", by="ada", scopes=["read"])
    record("pipeline.pause", "pipeline flights", by="bob")


def shown(client, **asked):
    return [entry.target for entry in client.get(AUDIT, asked).context["cl"].result_list]


def test_entries_are_found_by_what_was_done_by_whom_and_to_what(admin_client, entries):
    assert shown(admin_client, action="pipeline.pause") == ["pipeline flights"]
    assert shown(admin_client, actor="bob") == ["pipeline flights"]
    assert shown(admin_client, q="tmk_00000000") == ["API key feed (tmk_00000000_..)"]


def test_the_newest_comes_first(admin_client, entries):
    assert shown(admin_client)[:2] != sorted(shown(admin_client)[:2])
    assert shown(admin_client, q="flights feed") == []


def test_an_entry_can_be_read_and_nothing_else(admin_client, entries):
    entry = AuditEntry.objects.get(actor="ada")

    assert "read" in admin_client.get(f"{AUDIT}{entry.pk}/change/").content.decode()
    assert admin_client.post(f"{AUDIT}{entry.pk}/change/", {"actor": "bob"}).status_code == 403
    assert admin_client.post(f"{AUDIT}{entry.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.get(f"{AUDIT}add/").status_code == 403
    admin_client.post(AUDIT, {"action": "delete_selected", "_selected_action": [entry.pk], "post": "yes"})
    assert AuditEntry.objects.filter(pk=entry.pk, actor="ada").exists()

"""The audit log in the admin, and entries for edits made in the admin, of groups for example."""

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.contrib.messages.storage.fallback import FallbackStorage
from django.test import Client, RequestFactory
from django_celery_beat.models import PeriodicTask

from tidegauge.webapp.accounts.audit.admin import AuditedEdits
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.audit.services import record

AUDIT = "/admin/audit/auditentry/"
GROUPS = "/admin/auth/group/"
# What the form of a group says of its restriction.
UNRESTRICTED = {"restriction-TOTAL_FORMS": 0, "restriction-INITIAL_FORMS": 0}


@pytest.fixture
def entries(db):
    record("key.create", "API key feed (tmk_00000000_..)", by="ada", scopes=["read"])
    record("pipeline.pause", "pipeline flights", by="bob")


def shown(client, **parameters):
    return [entry.target for entry in client.get(AUDIT, parameters).context["cl"].result_list]


def test_entries_are_found_by_action_actor_and_target(admin_client, entries):
    assert shown(admin_client, action="pipeline.pause") == ["pipeline flights"]
    assert shown(admin_client, actor="bob") == ["pipeline flights"]
    assert shown(admin_client, q="tmk_00000000") == ["API key feed (tmk_00000000_..)"]


def test_the_newest_entry_is_first(admin_client, entries):
    assert shown(admin_client)[:2] != sorted(shown(admin_client)[:2])
    assert shown(admin_client, q="flights feed") == []


def test_an_entry_is_read_only(admin_client, entries):
    entry = AuditEntry.objects.get(actor="ada")

    assert "read" in admin_client.get(f"{AUDIT}{entry.pk}/change/").content.decode()
    assert admin_client.post(f"{AUDIT}{entry.pk}/change/", {"actor": "bob"}).status_code == 403
    assert admin_client.post(f"{AUDIT}{entry.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.get(f"{AUDIT}add/").status_code == 403
    admin_client.post(AUDIT, {"action": "delete_selected", "_selected_action": [entry.pk], "post": "yes"})
    assert AuditEntry.objects.filter(pk=entry.pk, actor="ada").exists()


def edits() -> list[AuditEntry]:
    return list(AuditEntry.objects.exclude(action="user.sign_in").order_by("id"))


def test_adding_changing_and_deleting_a_row_are_recorded(admin_client):
    admin_client.post(f"{GROUPS}add/", {"name": "own"} | UNRESTRICTED)
    address = f"{GROUPS}{Group.objects.get(name='own').pk}"
    admin_client.post(f"{address}/change/", {"name": "mine"} | UNRESTRICTED)
    admin_client.post(f"{address}/delete/", {"post": "yes"})

    assert [(entry.action, entry.target, entry.actor) for entry in edits()] == [
        ("admin.add", "group own", "admin"),
        ("admin.change", "group mine", "admin"),
        ("admin.delete", "group mine", "admin"),
    ]


def test_a_change_is_recorded_with_its_fields_and_audited_values(admin_client):
    own = Group.objects.create(name="own")

    permission = Permission.objects.get(codename="view_state")
    admin_client.post(f"{GROUPS}{own.pk}/change/", {"name": "own", "permissions": [permission.pk]} | UNRESTRICTED)

    (entry,) = edits()
    assert entry.detail == {
        "changes": "Changed Permissions.",
        "permissions": ["states.view_state"],
        "restricted_to": {},
    }


def test_deleting_several_rows_is_recorded_for_each(admin_client):
    chosen = [Group.objects.create(name=name).pk for name in ("one", "two")]

    admin_client.post(GROUPS, {"action": "delete_selected", "_selected_action": chosen, "post": "yes"})

    assert {(entry.action, entry.target) for entry in edits()} == {
        ("admin.delete", "group one"),
        ("admin.delete", "group two"),
    }


def test_an_invalid_form_is_not_recorded(admin_client):
    admin_client.post(f"{GROUPS}add/", {"name": ""} | UNRESTRICTED)

    assert edits() == []


class RenamingAdmin(AuditedEdits):
    """Its action requires no permission, as those of third-party admins do."""

    actions = ("rename",)

    def rename(self, request, queryset):
        queryset.update(name="renamed")


class TestActions:
    def request(self, user):
        request = RequestFactory().post("/")
        request.user, request.session = user, {}
        request._messages = FallbackStorage(request)
        return request

    def actions(self, request):
        return RenamingAdmin(Group, admin.site).get_actions(request)

    def test_an_action_is_recorded_for_each_row_as_it_was_before(self, admin_user):
        request = self.request(admin_user)
        group = Group.objects.create(name="own")

        rename, *_ = self.actions(request)["rename"]
        rename(RenamingAdmin(Group, admin.site), request, Group.objects.filter(pk=group.pk))

        assert [(entry.action, entry.target) for entry in edits()] == [("admin.rename", "group own")]

    def test_a_user_who_may_only_view_has_no_actions(self, db):
        user = User.objects.create_user("viewer", is_staff=True)
        user.user_permissions.add(Permission.objects.get(codename="view_group"))

        assert "rename" not in self.actions(self.request(user))


class TestSchedule:
    TASKS = "/admin/django_celery_beat/periodictask/"

    def test_turning_a_task_off_is_recorded_with_its_actor(self, admin_client):
        task = PeriodicTask.objects.get(name="Compact all states")

        admin_client.post(
            "/admin/django_celery_beat/periodictask/", {"action": "turn_off", "_selected_action": task.pk}
        )

        (entry,) = edits()
        assert (entry.action, entry.target, entry.actor) == ("schedule.turn_off", f"schedule {task.name}", "admin")

    @pytest.mark.parametrize("group", ["viewer", None])
    def test_a_user_without_the_permission_cannot_turn_a_task_off(self, db, group):
        task = PeriodicTask.objects.get(name="Compact all states")
        user = User.objects.create_user("bob", is_staff=True)
        user.groups.set(Group.objects.filter(name=group))
        client = Client()
        client.force_login(user)

        client.post(self.TASKS, {"action": "turn_off", "_selected_action": task.pk})

        task.refresh_from_db()
        assert task.enabled
        assert edits() == []

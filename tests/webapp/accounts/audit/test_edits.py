"""Edits in the admin that no service of ours makes: of groups here, whose admin is like those of the others."""

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.contrib.messages.storage.fallback import FallbackStorage
from django.test import Client, RequestFactory
from django_celery_beat.models import PeriodicTask

from webapp.accounts.audit.admin import AuditedEdits
from webapp.accounts.audit.models import AuditEntry

GROUPS = "/admin/auth/group/"


def edits() -> list[AuditEntry]:
    return list(AuditEntry.objects.exclude(action="user.sign_in").order_by("id"))


def test_a_row_that_is_added_changed_and_deleted_is_noted_each_time(admin_client):
    admin_client.post(f"{GROUPS}add/", {"name": "own"})
    address = f"{GROUPS}{Group.objects.get(name='own').pk}"
    admin_client.post(f"{address}/change/", {"name": "mine"})
    admin_client.post(f"{address}/delete/", {"post": "yes"})

    assert [(entry.action, entry.target, entry.actor) for entry in edits()] == [
        ("admin.add", "group own", "admin"),
        ("admin.change", "group mine", "admin"),
        ("admin.delete", "group mine", "admin"),
    ]


def test_a_change_says_which_fields_and_what_the_admin_thinks_worth_noting(admin_client):
    own = Group.objects.create(name="own")

    permission = Permission.objects.get(codename="view_state")
    admin_client.post(f"{GROUPS}{own.pk}/change/", {"name": "own", "permissions": [permission.pk]})

    (entry,) = edits()
    assert entry.detail == {"changes": "Changed Permissions.", "permissions": ["states.view_state"]}


def test_deleting_many_is_noted_for_each(admin_client):
    chosen = [Group.objects.create(name=name).pk for name in ("one", "two")]

    admin_client.post(GROUPS, {"action": "delete_selected", "_selected_action": chosen, "post": "yes"})

    assert {(entry.action, entry.target) for entry in edits()} == {
        ("admin.delete", "group one"),
        ("admin.delete", "group two"),
    }


def test_a_form_that_does_not_fit_is_not_noted(admin_client):
    admin_client.post(f"{GROUPS}add/", {"name": ""})

    assert edits() == []


class Shouting(AuditedEdits):
    """Its action asks for no permission, as those of other people's admins do."""

    actions = ("shout",)

    def shout(self, request, queryset):
        queryset.update(name="LOUD")


class TestActions:
    def request(self, user):
        request = RequestFactory().post("/")
        request.user, request.session = user, {}
        request._messages = FallbackStorage(request)
        return request

    def actions(self, request):
        return Shouting(Group, admin.site).get_actions(request)

    def test_an_action_is_noted_for_each_row_as_it_was(self, admin_user):
        request = self.request(admin_user)
        group = Group.objects.create(name="own")

        shout, *_ = self.actions(request)["shout"]
        shout(Shouting(Group, admin.site), request, Group.objects.filter(pk=group.pk))

        assert [(entry.action, entry.target) for entry in edits()] == [("admin.shout", "group own")]

    def test_who_may_only_look_is_not_offered_it(self, db):
        user = User.objects.create_user("viewer", is_staff=True)
        user.user_permissions.add(Permission.objects.get(codename="view_group"))

        assert "shout" not in self.actions(self.request(user))


class TestSchedule:
    TASKS = "/admin/django_celery_beat/periodictask/"

    def test_a_task_that_is_turned_off_is_noted_with_who_did_it(self, admin_client):
        task = PeriodicTask.objects.get(name="Compact all states")

        admin_client.post(
            "/admin/django_celery_beat/periodictask/", {"action": "turn_off", "_selected_action": task.pk}
        )

        (entry,) = edits()
        assert (entry.action, entry.target, entry.actor) == ("schedule.turn_off", f"schedule {task.name}", "admin")

    @pytest.mark.parametrize("group", ["viewer", None])
    def test_who_may_not_change_the_schedule_turns_nothing_off(self, db, group):
        task = PeriodicTask.objects.get(name="Compact all states")
        user = User.objects.create_user("bob", is_staff=True)
        user.groups.set(Group.objects.filter(name=group))
        client = Client()
        client.force_login(user)

        client.post(self.TASKS, {"action": "turn_off", "_selected_action": task.pk})

        task.refresh_from_db()
        assert task.enabled
        assert edits() == []

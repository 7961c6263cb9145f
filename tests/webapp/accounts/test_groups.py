"""The three groups have the same permissions in the API, the dashboard and the admin."""

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.test import Client

from tidegauge.webapp.accounts.services import GROUPS, create_api_key
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.celery import app

STATE, PIPELINE = "flights_by_carrier", "flights"


def member(group: str | None) -> Client:
    user = User.objects.create_user(f"a {group}", is_staff=True)
    if group:
        user.groups.add(Group.objects.get(name=group))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def no_broker(monkeypatch):
    """Runs are not sent to a worker."""
    monkeypatch.setattr(app, "send_task", lambda name, args: None)


class TestGroups:
    def test_each_group_includes_the_one_before_it(self, db):
        viewer, operator, admin = [set(Group.objects.get(name=name).permissions.all()) for name in GROUPS]

        assert viewer < operator < admin

    def test_every_permission_of_the_groups_exists(self, db):
        for name, permissions in GROUPS.items():
            held = Group.objects.get(name=name).permissions.count()
            assert held == sum(map(len, permissions.values())), name

    def test_a_migration_resets_them(self, db):
        group = Group.objects.get(name="viewer")
        group.permissions.set(Permission.objects.filter(codename="delete_user"))
        Group.objects.get(name="admin").delete()

        call_command("migrate", verbosity=0)

        assert group.permissions.filter(codename="view_state").exists()
        assert not group.permissions.filter(codename="delete_user").exists()
        assert Group.objects.get(name="admin").permissions.filter(codename="add_apikey").exists()

    def test_a_migration_leaves_other_groups_unchanged(self, db):
        own = Group.objects.create(name="own")

        call_command("migrate", verbosity=0)

        assert not own.permissions.exists()


def confirmed(page) -> dict[str, str]:
    """Return what the form of a confirmation posts, also where the page was refused."""
    confirmation = (page.context or {}).get("confirmation")
    return dict(confirmation.posted) if confirmation else {"confirmed": "yes"}


@pytest.mark.parametrize(("group", "may"), [(None, False), ("viewer", False), ("operator", True), ("admin", True)])
class TestMaintenance:
    def test_the_api_agrees(self, filled, no_broker, group, may):
        answer = member(group).post(f"/api/v1/states/{STATE}/compaction")

        assert answer.status_code == (202 if may else 403)

    def test_the_admin_agrees(self, filled, no_broker, group, may):
        chosen, person = {"action": "compact", "_selected_action": [STATE]}, member(group)

        page = person.post("/admin/states/state/", chosen)
        person.post("/admin/states/state/", confirmed(page) | chosen)

        assert MaintenanceRun.objects.exists() == may

    def test_the_same_users_may_cancel_a_run(self, filled, group, may):
        run = MaintenanceRun.objects.create(kind="compaction", state_id=STATE, requested_by="schedule")

        answer = member(group).delete(f"/api/v1/maintenance/{run.id}")

        assert answer.status_code == (202 if may else 403)

    def test_the_same_users_may_cancel_a_run_in_the_admin(self, filled, group, may):
        run = MaintenanceRun.objects.create(kind="compaction", state_id=STATE, requested_by="schedule")

        answer = member(group).post(f"/admin/states/maintenancerun/{run.id}/cancel/")

        assert answer.status_code == (302 if may else 403)


@pytest.mark.parametrize(("group", "may"), [(None, False), ("viewer", False), ("operator", True), ("admin", True)])
class TestPausing:
    def test_the_api_agrees(self, filled, group, may):
        answer = member(group).post(f"/api/v1/pipelines/{PIPELINE}/pause")

        assert answer.status_code == (202 if may else 403)

    def test_the_dashboard_agrees(self, filled, group, may):
        answer = member(group).post(f"/pipelines/{PIPELINE}/pause")

        assert answer.status_code == (302 if may else 403)


@pytest.mark.parametrize(("group", "may"), [(None, False), ("viewer", False), ("operator", True), ("admin", True)])
class TestReplay:
    def test_the_api_agrees(self, filled, group, may):
        answer = member(group).post(f"/api/v1/pipelines/{PIPELINE}/dead-letters/replay", {}, "application/json")

        assert answer.json()["code"] == ("nothing_to_replay" if may else "permission_denied")

    def test_the_dashboard_agrees(self, filled, group, may):
        answer = member(group).post(f"/pipelines/{PIPELINE}/dead-letters/replay")

        assert answer.status_code == (200 if may else 403)


@pytest.mark.parametrize(("group", "may"), [(None, False), ("viewer", False), ("operator", False), ("admin", True)])
class TestKeysAndUsers:
    @pytest.mark.parametrize(
        "address", ["/admin/api_keys/apikey/", "/admin/auth/user/", "/admin/auth/group/", "/admin/audit/auditentry/"]
    )
    def test_only_an_admin_sees_them(self, db, group, may, address):
        assert member(group).get(address).status_code == (200 if may else 403)

    def test_only_an_admin_revokes_a_key(self, db, group, may):
        key, _ = create_api_key("feed", ["read"])

        page = (person := member(group)).get(address := f"/admin/api_keys/apikey/{key.pk}/revoke/")
        person.post(address, confirmed(page))

        key.refresh_from_db()
        assert (key.status == "revoked") == may


class TestReading:
    @pytest.mark.parametrize("group", [None, *GROUPS])
    def test_every_signed_in_user_may_read(self, filled, group):
        client = member(group)

        assert client.get("/api/v1/states").status_code == client.get("/").status_code == 200

    def test_a_viewer_may_view_the_tables_and_a_user_without_a_group_may_not(self, filled):
        assert member("viewer").get("/admin/states/state/").status_code == 200
        assert member(None).get("/admin/states/state/").status_code == 403

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.utils import timezone

from tests.webapp.api.saved_queries.published import TOP, published
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.authentication import verified
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.services import create_api_key, revoke_api_key
from tidegauge.webapp.api.saved_queries.services import create_version

SECRET = re.compile(r"tmk_[0-9a-f]{8}_[\w-]{43}")
KEYS = "/admin/api_keys/apikey/"


def test_a_new_key_is_shown_once_and_not_stored(admin_client):
    page = admin_client.post(f"{KEYS}add/", {"name": "feed", "scopes": ["read", "maintain"]})

    secret = SECRET.search(page.content.decode())[0]
    key = verified(secret)
    assert (key.name, key.scopes, key.created_by.username) == ("feed", ["maintain", "read"], "admin")
    assert "no-store" in page.headers["Cache-Control"]
    for address in (KEYS, f"{KEYS}{key.pk}/change/"):
        assert secret not in admin_client.get(address).content.decode()
    assert ApiKey.objects.count() == 1


def test_a_key_without_scopes_is_refused(admin_client):
    page = admin_client.post(f"{KEYS}add/", {"name": "feed"})

    assert "This field is required." in page.content.decode()
    assert not ApiKey.objects.exists()


def test_a_key_is_created_with_all_options(filled, admin_client):
    admin_client.post(
        f"{KEYS}add/",
        {
            "name": "feed",
            "scopes": ["read"],
            "states": ["flights_by_carrier"],
            "key_prefix": '["JFK"]',
            "rate": "600",
            "burst": "20",
            "expires_at_0": "2999-01-01",
            "expires_at_1": "12:00",
        },
    )

    key = ApiKey.objects.get()
    assert (key.states, key.key_prefix, key.rate, key.burst) == (["flights_by_carrier"], ["JFK"], 600, 20)
    assert key.expires_at == datetime(2999, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"key_prefix": '{"JFK": 1}'}, "enter a list"),
        ({"key_prefix": "JFK"}, "Enter a valid JSON."),
        ({"key_prefix": '[["JFK"]]'}, "a key prefix is a list of strings, numbers and booleans"),
        ({"key_prefix": '["JFK"]', "scopes": ["maintain"]}, "maintenance concerns every key of a state"),
        ({"states": ["nowhere"]}, "nowhere is not one of the available choices"),
        ({"expires_at_0": "2020-01-01", "expires_at_1": "12:00"}, "is in the past"),
        ({"burst": "0"}, "allows nothing"),
    ],
)
def test_an_invalid_form_shows_the_error(admin_client, options, error):
    page = admin_client.post(f"{KEYS}add/", {"name": "feed", "scopes": ["read"], **options})

    assert error in page.content.decode()
    assert not ApiKey.objects.exists()


def test_a_form_left_empty_restricts_nothing(admin_client):
    shown = admin_client.get(f"{KEYS}add/").context["adminform"].form

    admin_client.post(f"{KEYS}add/", {"name": "feed", "scopes": ["read"], "key_prefix": shown["key_prefix"].value()})

    key = ApiKey.objects.get()
    assert (key.states, key.key_prefix, key.rate, key.expires_at) == ([], [], None, None)


def test_a_key_is_neither_changed_nor_deleted(admin_client):
    key, secret = create_api_key("feed", ["read"])

    assert admin_client.post(f"{KEYS}{key.pk}/change/", {"name": "other", "scopes": ["maintain"]}).status_code == 403
    assert admin_client.post(f"{KEYS}{key.pk}/delete/", {"post": "yes"}).status_code == 403
    assert verified(secret) == key


class TestRevoking:
    def test_one_key_is_revoked_after_a_confirmation_and_recorded(self, admin_client):
        key, secret = create_api_key("feed", ["read"])

        page = admin_client.get(f"{KEYS}{key.pk}/revoke/")
        assert f"Revoke {key}?" in page.content.decode()
        assert verified(secret) == key

        admin_client.post(f"{KEYS}{key.pk}/revoke/", dict(page.context["confirmation"].posted))
        assert verified(secret) is None
        assert AuditEntry.objects.filter(action="key.revoke", actor="admin").count() == 1

    def test_several_keys_are_revoked_after_a_confirmation(self, admin_client):
        keys, secrets = zip(*[create_api_key(name, ["read"]) for name in ("feed", "other")], strict=True)
        chosen = {"action": "revoke_selected", "_selected_action": [key.pk for key in keys]}

        page = admin_client.post(KEYS, chosen)
        assert "Revoke 2 API keys?" in page.content.decode()
        assert all(verified(secret) for secret in secrets)

        admin_client.post(KEYS, dict(page.context["confirmation"].posted) | chosen)
        assert not any(verified(secret) for secret in secrets)


class TestRotating:
    def test_a_new_secret_is_shown_once_and_the_old_one_stays_valid_for_the_grace_period(self, admin_client):
        key, old = create_api_key("feed", ["read"])

        assert "one week" in admin_client.get(f"{KEYS}{key.pk}/rotate/").content.decode()
        page = admin_client.post(f"{KEYS}{key.pk}/rotate/", {"confirmed": "yes", "grace": "3600"})

        new = SECRET.search(page.content.decode())[0]
        assert verified(new) == verified(old) == key
        assert "no-store" in page.headers["Cache-Control"]
        key.refresh_from_db()
        assert key.previous_until - key.rotated_at == timedelta(hours=1)
        assert new not in admin_client.get(f"{KEYS}{key.pk}/change/").content.decode()
        assert AuditEntry.objects.filter(action="key.rotate", actor="admin").count() == 1

    def test_another_grace_period_is_refused(self, admin_client):
        key, _ = create_api_key("feed", ["read"])

        admin_client.post(f"{KEYS}{key.pk}/rotate/", {"confirmed": "yes", "grace": "999999999"})

        key.refresh_from_db()
        assert key.rotated_at is None

    def test_a_revoked_key_is_not_rotated(self, admin_client):
        key, _ = create_api_key("feed", ["read"])
        revoke_api_key(key)

        page = admin_client.post(f"{KEYS}{key.pk}/rotate/", {"confirmed": "yes", "grace": "3600"}, follow=True)

        assert "is revoked; create another one" in page.content.decode()


@pytest.mark.parametrize("lookup", ["secret_sha512__gt", "secret_sha512", "previous_sha512__isnull"])
def test_keys_are_not_filtered_by_what_no_page_shows(admin_client, lookup):
    assert admin_client.get("/admin/api_keys/apikey/", {lookup: "1"}).status_code == 400
    assert admin_client.get("/admin/api_keys/apikey/", {"prefix": "1"}).status_code == 200


class TestPermissions:
    @pytest.fixture
    def viewer(self, django_user_model):
        """A user who may only view keys."""
        user = django_user_model.objects.create_user("viewer", is_staff=True)
        user.user_permissions.add(Permission.objects.get(codename="view_apikey"))
        client = Client()
        client.force_login(user)
        return client

    def test_a_user_who_may_only_view_keys_cannot_change_them(self, viewer):
        key, secret = create_api_key("feed", ["read"])

        assert viewer.get(f"{KEYS}{key.pk}/change/").status_code == 200
        assert viewer.post(f"{KEYS}{key.pk}/revoke/", {"confirmed": "yes"}).status_code == 403
        assert viewer.post(f"{KEYS}{key.pk}/rotate/", {"confirmed": "yes", "grace": "0"}).status_code == 403
        assert viewer.post(f"{KEYS}add/", {"name": "feed", "scopes": ["read"]}).status_code == 403
        viewer.post(KEYS, {"action": "revoke_selected", "_selected_action": [key.pk], "confirmed": "yes"})
        assert verified(secret) == key

    def test_who_may_revoke_keys_gets_no_secret_by_rotating_one(self, viewer):
        key, secret = create_api_key("feed", ["read"])
        User.objects.get().user_permissions.add(Permission.objects.get(codename="change_apikey"))

        page = viewer.post(f"{KEYS}{key.pk}/rotate/", {"confirmed": "yes", "grace": "0"})

        assert page.status_code == 403
        assert verified(secret) == key

    def test_who_may_not_give_a_scope_gets_no_secret_by_rotating_a_key_with_it(self, viewer):
        key, secret = create_api_key("feed", ["read", "dead_letters"])
        for codename in ("change_apikey", "add_apikey"):
            User.objects.get().user_permissions.add(Permission.objects.get(codename=codename))

        page = viewer.post(f"{KEYS}{key.pk}/rotate/", {"confirmed": "yes", "grace": "0"}, follow=True)

        assert "which you may not give: you lack states.view_dead_letters" in page.content.decode()
        assert SECRET.search(page.content.decode()) is None
        assert verified(secret) == key


@pytest.mark.parametrize(("status", "name"), [("active", "good"), ("expired", "old"), ("revoked", "bad")])
def test_keys_are_filtered_by_status(admin_client, status, name):
    create_api_key("good", ["read"], expires_at=timezone.now() + timedelta(days=1))
    old, _ = create_api_key("old", ["read"])
    ApiKey.objects.filter(pk=old.pk).update(expires_at=timezone.now() - timedelta(days=1))
    revoke_api_key(create_api_key("bad", ["read"])[0])

    page = admin_client.get(KEYS, {"status": status})

    assert [key.name for key in page.context["cl"].result_list] == [name]


def test_the_list_shows_key_scope_and_limit(admin_client):
    create_api_key("feed", ["read"], states=["routes"], key_prefix=["JFK"], rate=600, burst=20)

    page = admin_client.get(KEYS).content.decode()

    assert "routes, keys [&quot;JFK&quot;, ..]" in page
    assert "600 a minute, 20 at once" in page


def test_a_key_is_created_for_published_queries_alone(filled, admin_client):
    published("top")
    create_version("draft", TOP)

    page = admin_client.post(f"{KEYS}add/", {"name": "page", "scopes": ["read"], "queries": ["draft"]})
    assert "draft is not one of the available choices" in page.content.decode()
    admin_client.post(f"{KEYS}add/", {"name": "page", "scopes": ["read"], "queries": ["top"]})

    assert ApiKey.objects.get().queries == ["top"]
    assert "query top" in admin_client.get(KEYS).content.decode()


@pytest.mark.parametrize("address", ["/admin/auth/user/", "/admin/auth/user/add/", "/admin/auth/group/", "/admin/"])
def test_users_and_groups_have_pages(admin_client, address):
    assert admin_client.get(address).status_code == 200


class TestUsers:
    @pytest.fixture
    def admin(self, db):
        """A member of the group admin who is not a superuser."""
        user = User.objects.create_user("ada", is_staff=True)
        user.groups.add(Group.objects.get(name="admin"))
        client = Client()
        client.force_login(user)
        return client

    def edit(self, client, user, **fields):
        joined = {"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
        unrestricted = {"restriction-TOTAL_FORMS": 0, "restriction-INITIAL_FORMS": 0}
        given = {"username": user.username, "is_active": "on", **joined, **unrestricted, **fields}
        return client.post(f"/admin/auth/user/{user.pk}/change/", given)

    def test_a_change_of_groups_is_recorded_with_the_new_groups(self, admin):
        bob = User.objects.create_user("bob")

        self.edit(admin, bob, groups=[Group.objects.get(name="viewer").pk])

        entry = AuditEntry.objects.get(action="admin.change")
        assert (entry.actor, entry.target) == ("ada", "user bob")
        assert entry.detail["groups"] == ["viewer"]
        assert "Groups" in entry.detail["changes"]

    def test_an_admin_cannot_make_a_user_a_superuser(self, admin):
        bob = User.objects.create_user("bob")

        self.edit(admin, bob, is_superuser="on", user_permissions=[Permission.objects.first().pk])

        bob.refresh_from_db()
        assert not bob.is_superuser
        assert not bob.user_permissions.exists()

    def test_an_admin_cannot_edit_a_superuser(self, admin, admin_user):
        assert self.edit(admin, admin_user, email="x@example.org").status_code == 403
        assert admin.post(f"/admin/auth/user/{admin_user.pk}/delete/", {"post": "yes"}).status_code == 403
        password = {"password1": "a long one 4 u", "password2": "a long one 4 u"}
        assert admin.post(f"/admin/auth/user/{admin_user.pk}/password/", password).status_code == 403

    def test_an_admin_cannot_delete_a_superuser_by_an_action(self, admin, admin_user):
        chosen = {"action": "delete_selected", "_selected_action": [admin_user.pk], "post": "yes"}

        admin.post("/admin/auth/user/", chosen)

        assert User.objects.filter(pk=admin_user.pk).exists()

    def test_a_password_is_not_recorded(self, admin_client, db):
        bob = User.objects.create_user("bob")
        password = {"password1": "a long one 4 u", "password2": "a long one 4 u", "usable_password": "true"}

        admin_client.post(f"/admin/auth/user/{bob.pk}/password/", password)

        entry = AuditEntry.objects.get(action="admin.change")
        assert "password" in entry.detail["changes"].lower()
        assert "a long one" not in str(entry.detail)

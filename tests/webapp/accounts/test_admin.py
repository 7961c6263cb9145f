import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.utils import timezone

from webapp.accounts.audit.models import AuditEntry
from webapp.accounts.authentication import verified
from webapp.accounts.models import ApiKey
from webapp.accounts.services import create_api_key, revoke_api_key

SECRET = re.compile(r"tmk_[0-9a-f]{8}_[\w-]{43}")
KEYS = "/admin/api_keys/apikey/"


def test_a_new_key_is_shown_once_and_kept_by_nobody(admin_client):
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


def test_a_key_is_made_with_all_that_it_is_limited_to(filled, admin_client):
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
        ({"key_prefix": '{"JFK": 1}'}, "a list is needed"),
        ({"key_prefix": "JFK"}, "Enter a valid JSON."),
        ({"key_prefix": '[["JFK"]]'}, "a key prefix is a list of texts, numbers and booleans"),
        ({"key_prefix": '["JFK"]', "scopes": ["maintain"]}, "maintenance concerns every key of a state"),
        ({"states": ["nowhere"]}, "nowhere is not one of the available choices"),
        ({"expires_at_0": "2020-01-01", "expires_at_1": "12:00"}, "it would have expired already"),
        ({"burst": "0"}, "admits nothing"),
    ],
)
def test_a_form_that_cannot_be_says_why(admin_client, options, error):
    page = admin_client.post(f"{KEYS}add/", {"name": "feed", "scopes": ["read"], **options})

    assert error in page.content.decode()
    assert not ApiKey.objects.exists()


def test_an_untouched_form_confines_to_nothing(admin_client):
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
    def test_one_is_asked_before_and_it_is_noted_who_said_yes(self, admin_client):
        key, secret = create_api_key("feed", ["read"])

        page = admin_client.get(f"{KEYS}{key.pk}/revoke/")
        assert f"Revoke {key}?" in page.content.decode()
        assert verified(secret) == key

        admin_client.post(f"{KEYS}{key.pk}/revoke/", {"confirmed": "yes"})
        assert verified(secret) is None
        assert AuditEntry.objects.filter(action="key.revoke", actor="admin").count() == 1

    def test_so_one_is_before_many_are(self, admin_client):
        keys, secrets = zip(*[create_api_key(name, ["read"]) for name in ("feed", "other")], strict=True)
        chosen = {"action": "revoke_selected", "_selected_action": [key.pk for key in keys]}

        page = admin_client.post(KEYS, chosen)
        assert "Revoke 2 API keys?" in page.content.decode()
        assert all(verified(secret) for secret in secrets)

        admin_client.post(KEYS, {**chosen, "confirmed": "yes"})
        assert not any(verified(secret) for secret in secrets)


class TestRotating:
    def test_a_new_secret_is_shown_once_and_the_old_one_lasts_as_long_as_was_chosen(self, admin_client):
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

    def test_a_grace_of_ones_own_is_not_on_offer(self, admin_client):
        key, _ = create_api_key("feed", ["read"])

        admin_client.post(f"{KEYS}{key.pk}/rotate/", {"confirmed": "yes", "grace": "999999999"})

        key.refresh_from_db()
        assert key.rotated_at is None

    def test_a_revoked_key_is_told_so(self, admin_client):
        key, _ = create_api_key("feed", ["read"])
        revoke_api_key(key)

        page = admin_client.post(f"{KEYS}{key.pk}/rotate/", {"confirmed": "yes", "grace": "3600"}, follow=True)

        assert "is revoked, and stays so" in page.content.decode()


class TestRights:
    @pytest.fixture
    def viewer(self, django_user_model):
        """Somebody who may see keys and no more."""
        user = django_user_model.objects.create_user("viewer", is_staff=True)
        user.user_permissions.add(Permission.objects.get(codename="view_apikey"))
        client = Client()
        client.force_login(user)
        return client

    def test_who_may_only_see_keys_does_nothing_to_them(self, viewer):
        key, secret = create_api_key("feed", ["read"])

        assert viewer.get(f"{KEYS}{key.pk}/change/").status_code == 200
        assert viewer.post(f"{KEYS}{key.pk}/revoke/", {"confirmed": "yes"}).status_code == 403
        assert viewer.post(f"{KEYS}{key.pk}/rotate/", {"confirmed": "yes", "grace": "0"}).status_code == 403
        assert viewer.post(f"{KEYS}add/", {"name": "feed", "scopes": ["read"]}).status_code == 403
        viewer.post(KEYS, {"action": "revoke_selected", "_selected_action": [key.pk], "confirmed": "yes"})
        assert verified(secret) == key


@pytest.mark.parametrize(("status", "name"), [("in force", "good"), ("expired", "old"), ("revoked", "bad")])
def test_keys_are_narrowed_down_to_those_of_one_status(admin_client, status, name):
    create_api_key("good", ["read"], expires_at=timezone.now() + timedelta(days=1))
    old, _ = create_api_key("old", ["read"])
    ApiKey.objects.filter(pk=old.pk).update(expires_at=timezone.now() - timedelta(days=1))
    revoke_api_key(create_api_key("bad", ["read"])[0])

    page = admin_client.get(KEYS, {"status": status})

    assert [key.name for key in page.context["cl"].result_list] == [name]


def test_the_list_says_what_a_key_is_good_for(admin_client):
    create_api_key("feed", ["read"], states=["routes"], key_prefix=["JFK"], rate=600, burst=20)

    page = admin_client.get(KEYS).content.decode()

    assert "routes, keys [&quot;JFK&quot;, ..]" in page
    assert "600 a minute, 20 at once" in page


@pytest.mark.parametrize("address", ["/admin/auth/user/", "/admin/auth/user/add/", "/admin/auth/group/", "/admin/"])
def test_people_have_their_pages(admin_client, address):
    assert admin_client.get(address).status_code == 200


class TestPeople:
    @pytest.fixture
    def admin(self, db):
        """A member of the group admin who is no superuser."""
        user = User.objects.create_user("ada", is_staff=True)
        user.groups.add(Group.objects.get(name="admin"))
        client = Client()
        client.force_login(user)
        return client

    def edit(self, client, user, **fields):
        joined = {"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
        given = {"username": user.username, "is_active": "on", **joined, **fields}
        return client.post(f"/admin/auth/user/{user.pk}/change/", given)

    def test_who_joins_a_group_is_noted_with_the_groups_that_there_are(self, admin):
        bob = User.objects.create_user("bob")

        self.edit(admin, bob, groups=[Group.objects.get(name="viewer").pk])

        entry = AuditEntry.objects.get(action="admin.change")
        assert (entry.actor, entry.target) == ("ada", "user bob")
        assert entry.detail["groups"] == ["viewer"]
        assert "Groups" in entry.detail["changes"]

    def test_nobody_makes_a_superuser_who_is_none(self, admin):
        bob = User.objects.create_user("bob")

        self.edit(admin, bob, is_superuser="on", user_permissions=[Permission.objects.first().pk])

        bob.refresh_from_db()
        assert not bob.is_superuser
        assert not bob.user_permissions.exists()

    def test_nor_edits_one(self, admin, admin_user):
        assert self.edit(admin, admin_user, email="x@example.org").status_code == 403
        assert admin.post(f"/admin/auth/user/{admin_user.pk}/delete/", {"post": "yes"}).status_code == 403
        password = {"password1": "a long one 4 u", "password2": "a long one 4 u"}
        assert admin.post(f"/admin/auth/user/{admin_user.pk}/password/", password).status_code == 403

    def test_not_even_among_many(self, admin, admin_user):
        chosen = {"action": "delete_selected", "_selected_action": [admin_user.pk], "post": "yes"}

        admin.post("/admin/auth/user/", chosen)

        assert User.objects.filter(pk=admin_user.pk).exists()

    def test_a_password_is_not_noted(self, admin_client, db):
        bob = User.objects.create_user("bob")
        password = {"password1": "a long one 4 u", "password2": "a long one 4 u", "usable_password": "true"}

        admin_client.post(f"/admin/auth/user/{bob.pk}/password/", password)

        entry = AuditEntry.objects.get(action="admin.change")
        assert "password" in entry.detail["changes"].lower()
        assert "a long one" not in str(entry.detail)

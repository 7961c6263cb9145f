"""API keys that are created and revoked in the dashboard."""

import re

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.webapp.api.saved_queries.published import published
from tests.webapp.confirming import confirm
from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.authentication import verified
from tidegauge.webapp.accounts.models import ApiKey, Restriction
from tidegauge.webapp.accounts.services import create_api_key, rotate_api_key

NEW = "/keys/new"
SECRET = re.compile(r"tmk_[0-9a-f]{8}_[\w-]{43}")
KEEPER = ["view_apikey", "add_apikey", "change_apikey"]
GIVES_ALL = [*KEEPER, "add_maintenancerun", "change_pipeline", "view_dead_letters", "replay_dead_letters"]


@pytest.fixture
def person(django_user_model):
    """Makes the client of a user who is not staff and has these permissions."""

    def made(*codenames: str) -> Client:
        user = django_user_model.objects.create_user("keeper")
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        client = Client()
        client.force_login(user)
        return client

    return made


class TestCreating:
    def test_the_secret_is_shown_once_with_a_request_that_works(self, filled, person, client):
        keeper = person(*KEEPER)

        page = keeper.post(NEW, {"name": "feed", "scopes": ["read"], "states": ["flights_by_carrier"]})

        secret = SECRET.search(page.content.decode())[0]
        [address] = re.findall(r"curl -fsS (http://testserver\S+)", text(page))
        answer = client.get(address, headers={"Authorization": f"Bearer {secret}"})
        assert answer.json()["name"] == "flights_by_carrier"
        assert "no-store" in page.headers["Cache-Control"]
        assert secret not in keeper.get("/keys").content.decode()
        entry = AuditEntry.objects.get(action="key.create")
        assert (entry.actor, entry.detail) == ("keeper", {"scopes": ["read"], "states": ["flights_by_carrier"]})

    def test_every_option_is_kept(self, filled, person):
        options = {"key_prefix": '["JFK"]', "rate": "600", "burst": "20", "expires_at": "2999-01-01T12:00"}

        person(*KEEPER).post(NEW, {"name": "feed", "scopes": ["read"], "states": ["flights_by_carrier"], **options})

        key = ApiKey.objects.get()
        assert (key.scopes, key.states, key.key_prefix) == (["read"], ["flights_by_carrier"], ["JFK"])
        assert (key.rate, key.burst, f"{key.expires_at:%Y-%m-%d %H:%M %Z}") == (600, 20, "2999-01-01 12:00 UTC")

    def test_a_key_for_a_saved_query_gets_a_request_of_this(self, filled, person):
        query = published()

        page = person(*KEEPER).post(NEW, {"name": "feed", "scopes": ["read"], "queries": [query.name]})

        assert f"curl -fsS http://testserver/api/v1/saved-queries/{query.name}" in text(page)

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"name": ""}, "This field is required."),
            ({"scopes": []}, "This field is required."),
            ({"key_prefix": "JFK"}, "Enter a valid JSON."),
            ({"states": ["nowhere"]}, "nowhere is not one of the available choices"),
            ({"expires_at": "2020-01-01T12:00"}, "is in the past"),
            ({"expires_at": "soon"}, "Enter a valid date/time."),
        ],
    )
    def test_an_invalid_form_shows_the_error_and_what_was_entered(self, filled, person, options, error):
        page = person(*KEEPER).post(NEW, {"name": "feed", "scopes": ["read"], "rate": "77"} | options)

        assert page.status_code == 400
        assert error in text(page)
        assert 'value="77"' in page.content.decode()
        assert not ApiKey.objects.exists()


class TestWhoMay:
    @pytest.mark.parametrize("codenames", [[], ["view_apikey"], ["add_apikey"], ["view_apikey", "change_apikey"]])
    def test_without_the_permissions_no_key_is_created(self, filled, person, codenames):
        client = person(*codenames)

        assert client.get(NEW).status_code == 403
        assert client.post(NEW, {"name": "feed", "scopes": ["read"]}).status_code == 403
        assert Client().get(NEW).status_code == 302
        assert not ApiKey.objects.exists()

    @pytest.mark.parametrize("scope", ["maintain", "dead_letters"])
    def test_nobody_gives_a_key_what_they_may_not_do(self, filled, person, scope):
        keeper = person(*KEEPER)

        page = keeper.post(NEW, {"name": "feed", "scopes": ["read", scope]})

        assert f'value="{scope}"' not in keeper.get(NEW).content.decode()
        assert f"{scope} is not one of the available choices" in text(page)
        assert not ApiKey.objects.exists()

    def test_the_admin_names_what_the_giver_lacks(self, filled, person, django_user_model):
        client = person(*KEEPER)
        django_user_model.objects.update(is_staff=True)

        page = client.post("/admin/api_keys/apikey/add/", {"name": "feed", "scopes": ["dead_letters"]})

        refusal = "you may not give the scope &#x27;dead_letters&#x27;: you lack states.view_dead_letters"
        assert refusal in page.content.decode()
        assert not ApiKey.objects.exists()

    def test_who_may_do_all_gives_all(self, filled, person):
        person(*GIVES_ALL).post(NEW, {"name": "feed", "scopes": ["read", "maintain", "dead_letters", "issue_tokens"]})

        assert ApiKey.objects.get().scopes == ["dead_letters", "issue_tokens", "maintain", "read"]

    def test_a_restricted_person_neither_creates_nor_revokes(self, filled, person, django_user_model):
        client = person(*GIVES_ALL)
        key, secret = create_api_key("feed", ["read"])
        Restriction.objects.create(user=django_user_model.objects.get(username="keeper"), states=["totals"])

        assert client.post(NEW, {"name": "feed", "scopes": ["read"]}).status_code == 403
        assert client.post(f"/keys/{key.pk}/revoke", {"confirmed": "yes"}).status_code == 403
        assert verified(secret) == key


class TestRevoking:
    def test_a_key_is_revoked_once_it_is_confirmed(self, db, person):
        keeper = person(*KEEPER)
        key, secret = create_api_key("feed", ["read"])

        asked = keeper.get(f"/keys/{key.pk}/revoke")
        unconfirmed = keeper.post(f"/keys/{key.pk}/revoke")
        before = verified(secret)
        done = confirm(keeper, f"/keys/{key.pk}/revoke", follow=True)

        assert f"Revoke {key}?" in text(asked)
        assert f"Revoke {key}?" in text(unconfirmed)
        assert (before, verified(secret)) == (key, None)
        assert f"{key} is revoked." in text(done)
        assert AuditEntry.objects.get(action="key.revoke").actor == "keeper"

    def test_a_key_that_was_rotated_since_is_looked_at_again(self, db, person):
        keeper = person(*KEEPER)
        key, _ = create_api_key("feed", ["read"])
        form = dict(keeper.get(f"/keys/{key.pk}/revoke").context["confirmation"].posted)
        secret = rotate_api_key(key)

        refused = text(keeper.post(f"/keys/{key.pk}/revoke", form))

        assert "has changed since this page was drawn: secret was of " in refused
        assert verified(secret) == key

    def test_others_are_not_offered_it(self, db, person):
        key, secret = create_api_key("feed", ["read"])
        client = person("view_apikey", "add_apikey")

        assert "Revoke" not in text(client.get("/keys"))
        assert client.post(f"/keys/{key.pk}/revoke", {"confirmed": "yes"}).status_code == 403
        assert verified(secret) == key

    def test_unknown_and_revoked_keys_have_no_page(self, db, person):
        keeper = person(*KEEPER)
        key, _ = create_api_key("feed", ["read"])
        confirm(keeper, f"/keys/{key.pk}/revoke")

        assert keeper.get("/keys/999999/revoke").status_code == 404
        assert "is already revoked." in text(keeper.get(f"/keys/{key.pk}/revoke", follow=True))

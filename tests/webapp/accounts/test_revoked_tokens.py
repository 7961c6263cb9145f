"""A single token is revoked, by its API key or by an admin, without a query per request."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from tests.webapp.api.checked_client import CheckedClient
from tidegauge.webapp.accounts import authentication, revoked_tokens, tokens
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.authentication import verified
from tidegauge.webapp.accounts.issuing import issue
from tidegauge.webapp.accounts.models import ApiKey, RevokedToken
from tidegauge.webapp.accounts.revoked_tokens import TooManyRevokedError, revoke_token
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.accounts.tokens import RefusedTokenError

KEYS = "/admin/api_keys/apikey/"


@pytest.fixture(autouse=True)
def empty_cache():
    authentication.clear_cache()


@pytest.fixture
def key(db) -> ApiKey:
    return create_api_key("backend", ["issue_tokens", "read"])[0]


def is_revoked(text: str) -> bool:
    try:
        return verified(text) is None
    except RefusedTokenError as error:
        return "was revoked" in str(error)


class TestRevoking:
    def test_a_revoked_token_is_refused_and_the_others_of_its_key_are_not(self, key):
        revoked, other = issue(key), issue(key)
        assert not is_revoked(revoked.text)

        revoke_token(revoked.token.id, by=key)

        assert (is_revoked(revoked.text), is_revoked(other.text)) == (True, False)

    def test_in_another_process_it_ends_when_the_key_is_read_again(self, key, settings, monkeypatch):
        settings.TIDEGAUGE_API_KEY_CACHE_SECONDS = 3_600
        issued = issue(key)
        verified(issued.text)
        monkeypatch.setattr(tokens, "forget_key", lambda prefix: None)
        revoke_token(issued.token.id, by=key)
        assert not is_revoked(issued.text)

        tokens._keys.clear()

        assert is_revoked(issued.text)

    def test_revoked_tokens_cost_no_query(self, key, django_assert_num_queries):
        made = [issue(key) for _ in range(5)]
        for each in made[:3]:
            revoke_token(each.token.id, by=key)

        with django_assert_num_queries(2):  # the key with its revoked tokens, and its last use
            assert [is_revoked(each.text) for each in made] == [True] * 3 + [False] * 2

    def test_it_is_recorded_once(self, key):
        token_id = issue(key).token.id

        revoke_token(token_id, by=key)
        revoke_token(token_id, by=key)

        entry = AuditEntry.objects.get(action="token.revoke")
        assert (entry.actor, entry.detail) == ("API key backend", {"token": token_id})

    def test_rows_go_when_the_token_has_expired_and_not_before(self, key):
        for token_id in (issue(key, lifetime_seconds=86_400).token.id, issue(key).token.id):
            revoke_token(token_id, by=key)
        assert min(RevokedToken.objects.values_list("expires_at", flat=True)) > timezone.now() + timedelta(hours=24)
        RevokedToken.objects.filter(id=token_id).update(expires_at=timezone.now())

        revoked_tokens.forget_expired()

        assert RevokedToken.objects.exclude(id=token_id).count() == RevokedToken.objects.count() == 1

    def test_an_api_key_has_so_many_at_most(self, key, monkeypatch):
        monkeypatch.setattr(revoked_tokens, "MOST_REVOKED", 1)
        revoke_token(issue(key).token.id, by=key)

        with pytest.raises(TooManyRevokedError, match="rotate it without a grace period"):
            revoke_token(issue(key).token.id, by=key)


class TestRequests:
    @pytest.fixture
    def backend(self, filled) -> CheckedClient:
        return CheckedClient(create_api_key("backend", ["issue_tokens", "read"])[1])

    def made(self, backend: CheckedClient) -> dict:
        return backend.ask("POST", "/tokens", {}).json()

    def test_the_key_that_made_it_revokes_it_by_its_id(self, backend):
        made = self.made(backend)
        page = CheckedClient(made["token"])
        assert page.ask("GET", "/states").status_code == 200

        assert backend.ask("DELETE", f"/tokens/{made['id']}").status_code == 204

        refused = page.ask("GET", "/states")
        assert (refused.status_code, refused.json()["code"]) == (401, "token_refused")
        assert backend.ask("DELETE", f"/tokens/{made['id']}").status_code == 204

    @pytest.mark.parametrize("scopes", [["issue_tokens", "read"], ["read", "maintain"]])
    def test_another_key_does_not(self, backend, scopes):
        made = self.made(backend)
        other = CheckedClient(create_api_key("other", scopes)[1])

        refused = other.ask("DELETE", f"/tokens/{made['id']}")

        assert refused.json()["code"] == ("unknown_token" if "issue_tokens" in scopes else "permission_denied")
        assert CheckedClient(made["token"]).ask("GET", "/states").status_code == 200

    def test_a_token_does_not(self, backend):
        made = self.made(backend)

        assert CheckedClient(made["token"]).ask("DELETE", f"/tokens/{made['id']}").status_code == 403

    @pytest.mark.parametrize("token_id", ["1", "tokens", "00000000-0123456789abcdef", "x" * 500])
    def test_what_is_no_token_is_unknown(self, backend, token_id):
        response = backend.ask("DELETE", f"/tokens/{token_id}")

        assert (response.status_code, response.json()["code"]) == (404, "unknown_token")

    def test_a_user_who_may_revoke_keys_revokes_any(self, backend, admin_client, django_user_model):
        made = self.made(backend)
        viewer = Client()
        viewer.force_login(django_user_model.objects.create_user("viewer"))

        assert viewer.delete(f"/api/v1/tokens/{made['id']}").status_code == 403
        assert admin_client.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
        assert CheckedClient(made["token"]).ask("GET", "/states").status_code == 401


class TestAdmin:
    def test_the_page_of_a_key_revokes_a_token_that_is_pasted(self, key, admin_client):
        issued = issue(key)
        address = f"{KEYS}{key.pk}/revoke-token/"

        assert "The token, or its id" in admin_client.get(address).content.decode()
        admin_client.post(address, {"token": f" {issued.text} "})

        assert is_revoked(issued.text)

    @pytest.mark.parametrize("text", ["", "nothing", "a.b.c"])
    def test_what_is_no_token_of_the_key_is_explained(self, key, admin_client, text):
        other = issue(create_api_key("other", ["issue_tokens", "read"])[0])

        page = admin_client.post(f"{KEYS}{key.pk}/revoke-token/", {"token": text or other.text})

        assert "belongs to no API key, or to another one" in page.content.decode()
        assert not RevokedToken.objects.exists()

    def test_a_viewer_does_not(self, key, django_user_model):
        viewer = Client()
        viewer.force_login(django_user_model.objects.create_user("viewer", is_staff=True))

        assert viewer.post(f"{KEYS}{key.pk}/revoke-token/", {"token": issue(key).text}).status_code == 403
        assert not RevokedToken.objects.exists()


class TestCommand:
    def test_a_token_is_revoked(self, key):
        issued = issue(key)

        call_command("api_keys", "revoke-token", issued.token.id, stderr=StringIO())

        assert is_revoked(issued.text)

    def test_what_is_no_token_is_a_usage_error(self, db):
        with pytest.raises(CommandError, match="belongs to no API key") as error:
            call_command("api_keys", "revoke-token", "1")

        assert error.value.returncode == 2

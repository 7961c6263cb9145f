"""Signing in at an identity provider, against a real one."""

import importlib
import re
from collections.abc import Iterator
from datetime import timedelta

import jwt
import pytest
import requests
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import clear_url_caches
from django.utils import timezone

from tests.webapp.accounts.oidc_provider import Provider, identity_provider
from tidegauge.webapp import urls
from tidegauge.webapp.accounts import oidc, oidc_views
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.models import OidcIdentity, Restriction

BACKEND, PASSWORDS = "tidegauge.webapp.accounts.oidc.OidcBackend", "tidegauge.webapp.accounts.sign_in.PasswordBackend"


@pytest.fixture
def provider(db, settings) -> Iterator[Provider]:
    with identity_provider() as found:
        settings.OIDC_ISSUER, settings.OIDC_RP_CLIENT_ID = found.issuer, "tidegauge"
        settings.OIDC_RP_CLIENT_SECRET = "of-the-client"
        settings.AUTHENTICATION_BACKENDS = [*settings.AUTHENTICATION_BACKENDS, BACKEND]
        oidc.provider.cache_clear()
        reload_urls()
        found.set_claims("s-1", preferred_username="ada", email="ada@example.com", groups=["ops", "unknown"])
        yield found
    settings.OIDC_ISSUER, settings.PASSWORD_SIGN_IN = "", True
    reload_urls()


def reload_urls() -> None:
    importlib.reload(urls)
    clear_url_caches()


def test_a_person_signs_in_with_code_and_pkce(provider, settings):
    settings.OIDC_GROUPS = {"ops": "operator"}
    client = Client()

    answer = provider.sign_in(client, "s-1", "/oidc/sign-in?next=/maintenance")

    assert (answer.status_code, answer.headers["Location"], provider.exchanged) == (302, "/maintenance", 1)
    ada = User.objects.get(username="ada")
    assert (ada.email, ada.has_usable_password()) == ("ada@example.com", False)
    assert [group.name for group in ada.groups.all()] == ["operator"]
    assert (ada.is_staff, ada.is_superuser) == (False, False)
    assert client.get("/api/v1/states").status_code == 200
    assert AuditEntry.objects.filter(action="user.sign_in", actor="ada").exists()


def test_groups_are_those_of_the_claim_at_each_sign_in(provider, settings):
    settings.OIDC_STAFF_GROUPS = ["admin"]
    provider.set_claims("s-1", preferred_username="ada", groups=["viewer", "admin"])
    provider.sign_in(Client(), "s-1")
    assert User.objects.get().is_staff

    provider.set_claims("s-1", preferred_username="ada", groups=["viewer"])
    provider.sign_in(Client(), "s-1")

    assert [group.name for group in User.objects.get().groups.all()] == ["viewer"]
    assert not User.objects.get().is_staff


def test_a_restriction_of_a_group_applies_to_those_who_come_with_it(provider):
    team = Group.objects.create(name="team")
    Restriction.objects.create(group=team, states=["flights_by_carrier"])
    provider.set_claims("s-1", preferred_username="ada", groups=["team"])
    client = Client()

    provider.sign_in(client, "s-1")

    assert client.get("/api/v1/states/totals").status_code == 403


def test_a_restriction_stays_where_the_claim_is_absent_and_permissions_do_not(provider):
    Restriction.objects.create(group=Group.objects.create(name="team"), states=["flights_by_carrier"])
    for groups in ({"groups": ["team", "operator"]}, {}):
        provider.set_claims("s-1", preferred_username="ada", **groups)
        provider.sign_in(Client(), "s-1")

    assert [group.name for group in User.objects.get().groups.all()] == ["team"]

    provider.set_claims("s-1", preferred_username="ada", groups=[])
    provider.sign_in(Client(), "s-1")

    assert not User.objects.get().groups.exists()


def test_a_person_stays_the_same_under_another_name_and_address(provider):
    provider.sign_in(Client(), "s-1")
    provider.set_claims("s-1", preferred_username="lovelace", email="other@example.com")

    provider.sign_in(Client(), "s-1")

    assert User.objects.get().username == "ada"
    assert OidcIdentity.objects.values_list("issuer", "subject").get() == (provider.issuer, "s-1")


def test_an_existing_account_is_not_taken_over(provider):
    User.objects.create_superuser("ada", email="ada@example.com")
    client = Client()

    answer = provider.sign_in(client, "s-1")

    assert answer.status_code == 403
    assert "another user here has the name &#x27;ada&#x27;" in answer.content.decode()
    assert "sessionid" not in client.cookies or "_auth_user_id" not in client.session
    assert not OidcIdentity.objects.exists()


def test_only_allowed_groups_may_sign_in(provider, settings):
    settings.OIDC_ALLOWED_GROUPS = ["staff"]

    refused = provider.sign_in(Client(), "s-1")
    assert refused.status_code == 403
    assert "you are not in a group that may sign in here" in refused.content.decode()
    assert not User.objects.exists()

    settings.OIDC_ALLOWED_GROUPS = ["ops"]
    assert provider.sign_in(Client(), "s-1").status_code == 302


def test_a_deactivated_user_may_not_sign_in_and_is_out_at_once(provider):
    client = Client()
    provider.sign_in(client, "s-1")
    User.objects.update(is_active=False)

    assert [client.get(path).status_code for path in ("/", "/maintenance", "/api/v1/states")] == [302, 302, 401]
    refused = provider.sign_in(Client(), "s-1")
    assert refused.status_code == 403
    assert "your account here is deactivated" in refused.content.decode()


def test_who_is_in_no_group_here_sees_nothing(provider, filled):
    provider.set_claims("s-1", preferred_username="ada", groups=["unknown"])
    client = Client()

    provider.sign_in(client, "s-1")

    assert client.get("/api/v1/states").json() == {"states": []}
    refused = client.get("/api/v1/states/totals")
    assert refused.status_code == 403
    assert refused.json()["detail"].startswith("you are in no group here, so you are restricted")
    page = client.get("/").content.decode()
    assert "in no group here" in page
    assert "/pipelines/flights" not in page
    assert "flights_by_carrier" not in page

    User.objects.get().groups.add(Group.objects.get(name="viewer"))
    assert client.get("/api/v1/states/totals").status_code == 200


@pytest.mark.parametrize("given", ["a setting", "a restriction"])
def test_who_is_in_no_group_sees_what_a_setting_or_a_restriction_gives(provider, filled, settings, given):
    provider.set_claims("s-1", preferred_username="ada")
    client = Client()
    provider.sign_in(client, "s-1")

    if given == "a setting":
        settings.OIDC_GROUP_REQUIRED = False
    else:
        Restriction.objects.create(user=User.objects.get(), states=["totals"])

    assert client.get("/api/v1/states/totals").status_code == 200
    assert client.get("/api/v1/states/flights_by_carrier").status_code == (200 if given == "a setting" else 403)


def test_a_user_with_a_password_needs_no_group(provider, filled, client):
    client.force_login(User.objects.create_user("bob"), PASSWORDS)

    assert client.get("/api/v1/states/totals").status_code == 200


def test_with_other_names_a_group_of_the_same_name_does_not_count(provider, settings):
    settings.OIDC_GROUPS = {"ops": "operator"}
    provider.set_claims("s-1", preferred_username="ada", groups=["ops", "admin"])

    provider.sign_in(Client(), "s-1")

    assert [group.name for group in User.objects.get().groups.all()] == ["operator"]


@pytest.mark.parametrize(("claim", "held"), [("viewer", ["viewer"]), (["viewer", None, 7, {}], ["viewer"]), (None, [])])
def test_a_claim_may_be_one_name_and_hold_what_is_no_name(provider, claim, held):
    provider.set_claims("s-1", preferred_username="ada", groups=claim)

    assert provider.sign_in(Client(), "s-1").status_code == 302
    assert [group.name for group in User.objects.get().groups.all()] == held


@pytest.mark.parametrize("claim", [7, True, {"viewer": {}}])
def test_a_claim_that_is_no_list_is_refused(provider, claim):
    provider.set_claims("s-1", preferred_username="ada", groups=claim)

    assert provider.sign_in(Client(), "s-1").status_code == 403
    assert not User.objects.exists()


def test_thousands_of_groups_are_looked_up_once(provider, django_assert_max_num_queries):
    provider.set_claims("s-1", preferred_username="ada", groups=["viewer", *(f"g{n}" for n in range(5_000))])

    with django_assert_max_num_queries(40):
        assert provider.sign_in(Client(), "s-1").status_code == 302
    assert [group.name for group in User.objects.get().groups.all()] == ["viewer"]


@pytest.mark.parametrize(
    ("address", "stored"),
    [
        ({"email": "ada@example.com"}, "ada@example.com"),
        ({"email": "boss@example.com", "email_verified": False}, ""),
        ({"email": "a" * 300 + "@example.com"}, ""),
    ],
)
def test_an_address_identifies_nobody_and_is_kept_if_verified(provider, address, stored):
    owner = User.objects.create_user("owner", email=address["email"][:254])
    provider.set_claims("s-1", preferred_username="ada", groups=["viewer"], **address)
    provider.set_claims("s-2", preferred_username="eve", groups=["viewer"], **address)

    for subject in ("s-1", "s-2"):
        assert provider.sign_in(Client(), subject).status_code == 302

    assert list(User.objects.exclude(pk=owner.pk).order_by("username").values_list("username", "email")) == [
        ("ada", stored),
        ("eve", stored),
    ]


def test_a_session_ends_some_hours_after_the_sign_in_however_it_is_used(provider, settings):
    client = Client()
    provider.sign_in(client, "s-1")
    session = Session.objects.get()
    assert timedelta(hours=11) < session.expire_date - timezone.now() <= timedelta(hours=12)

    changed = client.session
    changed["used"] = True
    changed.save()
    assert Session.objects.get().expire_date == session.expire_date

    settings.OIDC_SESSION_HOURS = 0
    provider.sign_in(client, "s-1")
    assert client.get("/").status_code == 302


def test_who_signs_out_may_sign_out_at_the_provider_too(provider):
    client = Client()
    provider.sign_in(client, "s-1")

    page = client.post("/logout").content.decode()

    [address] = re.findall(r'href="(http[^"]+)"', page)
    assert address == f"{provider.issuer}/oauth2/end_session?client_id=tidegauge"
    assert requests.get(address, timeout=10).status_code == 200
    assert client.get("/").status_code == 302


@pytest.mark.parametrize("path", ["/logout", "/admin/logout/"])
def test_who_signed_in_with_a_password_or_finds_no_provider_signs_out_here_alone(provider, settings, path):
    user = User.objects.create_user("bob")
    for backend, issuer in ((PASSWORDS, provider.issuer), (BACKEND, "http://localhost:1")):
        client = Client()
        client.force_login(user, backend)
        settings.OIDC_ISSUER = issuer

        oidc.provider.cache_clear()
        assert client.post(path).status_code == 302
        assert client.get("/").status_code == 302


def test_an_error_of_the_provider_is_a_page_and_signs_nobody_out(provider):
    client = Client()
    provider.sign_in(client, "s-1")

    answer = client.get("/oidc/callback?error=access_denied&state=x")

    assert answer.status_code == 403
    assert client.get("/").status_code == 200
    assert not AuditEntry.objects.filter(action="user.sign_out").exists()


def test_a_code_works_once_and_in_its_own_browser_alone(provider):
    browser = Client()
    callback = provider.callback(browser, "s-1")

    assert Client().get(callback).status_code == 403
    assert browser.get(callback).status_code == 302
    assert Client().get(callback).status_code == 403


def test_a_sign_in_that_is_not_completed_leaves_no_row(provider):
    browser = Client()

    for _ in range(7):
        browser.get("/oidc/sign-in")
    browser.get("/oidc/callback?code=x&state=y")

    assert not Session.objects.exists()
    assert len(browser.cookies[oidc_views.COOKIE].value) < 3_000


def test_two_sign_ins_may_be_under_way_in_one_browser(provider):
    browser = Client()
    browser.get("/oidc/sign-in?next=/maintenance")

    assert provider.sign_in(browser, "s-1", "/oidc/sign-in?next=/problems").headers["Location"] == "/problems"
    assert len(oidc_views.PendingSignIns(browser.cookies[oidc_views.COOKIE].value)["oidc_states"]) == 1


@pytest.mark.parametrize(("claim", "value"), [("iss", "http://other.example"), ("aud", "another-client")])
def test_a_token_of_another_issuer_or_for_another_client_is_refused(provider, monkeypatch, claim, value):
    original = oidc.OIDCAuthenticationBackend.verify_token
    monkeypatch.setattr(
        oidc.OIDCAuthenticationBackend, "verify_token", lambda *args, **more: original(*args, **more) | {claim: value}
    )

    assert provider.sign_in(Client(), "s-1").status_code == 403
    assert not User.objects.exists()


def test_a_token_of_another_time_is_a_page_and_not_an_error(provider, monkeypatch):
    def refused(*args, **options):
        raise jwt.ImmatureSignatureError("The token is not yet valid (iat)")

    monkeypatch.setattr(jwt, "decode", refused)

    answer = provider.sign_in(Client(), "s-1")

    assert answer.status_code == 403
    assert "Sign-in failed" in answer.content.decode()


def test_an_unavailable_provider_is_a_page_and_not_an_error(provider, settings):
    settings.OIDC_ISSUER = "http://localhost:1"
    oidc.provider.cache_clear()

    answer = Client().get("/oidc/sign-in")

    assert answer.status_code == 503
    assert "is not responding" in answer.content.decode()
    assert "sign in with a password" in answer.content.decode()
    assert Client().get("/login").status_code == 200


def test_without_passwords_the_page_offers_the_provider_alone(provider, settings):
    settings.PASSWORD_SIGN_IN, settings.AUTHENTICATION_BACKENDS = False, [BACKEND]
    reload_urls()
    User.objects.create_user("bob", password="a long one 4 u")
    client = Client()

    page = client.get("/login").content.decode()
    assert "/oidc/sign-in" in page
    assert 'name="password"' not in page
    client.post("/login", {"username": "bob", "password": "a long one 4 u"})
    assert client.get("/").status_code == 302


def test_without_an_issuer_there_are_passwords_alone(db):
    page = Client().get("/login").content.decode()

    assert "oidc" not in page
    assert 'name="password"' in page
    assert Client().get("/oidc/sign-in").status_code == 404

"""The rail of dashboard and admin: navigation, strip, search, sign-in and errors are the same in both."""

import re
from contextlib import ExitStack

import pytest
from django.contrib import admin
from django.test import Client

from tests.webapp.committed_flights import no_database
from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.catalog import queries

ADMIN_LIST = "/admin/states/state/"
LIVE = (
    '<button id="pause" class="quiet" type="button" aria-pressed="false" hidden>'
    '<span class="pulse" aria-hidden="true"></span><span>Live</span></button> '
)


def bar(response) -> str:
    found = re.search('<header class="rail">.*?</header>', response.content.decode(), re.S)[0]
    return " ".join(re.sub(r' value="[^"]*"| aria-current="\w+"', "", found).split())


@pytest.fixture
def visitor() -> Client:
    return Client(raise_request_exception=False)


def test_the_bar_of_the_admin_is_that_of_the_dashboard(filled, admin_client):
    assert bar(admin_client.get(ADMIN_LIST)) == bar(admin_client.get("/maintenance")).replace(LIVE, "")


def test_the_admin_has_the_strip_the_title_and_the_search(filled, admin_client):
    filled.report("failed", "no disk")

    page = admin_client.get(ADMIN_LIST).content.decode()

    assert 'title="flights"><span class="dot" aria-hidden="true"></span>1 failed</a>' in page
    assert re.search(r"<title>\s*1 failed — .* · Tidegauge\s*</title>", page)
    assert '<dialog id="search-dialog"' in page
    assert "command-results" not in page


def test_the_admin_has_no_page_of_its_own_to_sign_in(db, visitor):
    refused = visitor.get(ADMIN_LIST, follow=True)

    assert refused.redirect_chain[-1][0] == "/login?next=/admin/states/state/"
    assert "Sign in to continue." in text(refused)


def test_who_is_signed_in_and_may_not_use_the_admin_is_told_so(django_user_model, visitor):
    visitor.force_login(django_user_model.objects.create_user("ann"))

    refused = visitor.get("/admin/", follow=True)

    assert refused.status_code == 403
    assert "Your account may not use the admin." in text(refused)
    assert "You are signed in as ann" in text(refused)


def test_staff_who_open_the_address_of_the_former_page_are_in_the_admin(admin_client):
    assert admin_client.get("/admin/login/").headers["Location"] == "/admin/"


def test_signing_out_in_the_admin_is_signing_out(admin_client):
    assert admin_client.post("/admin/logout/").headers["Location"] == "/"
    assert admin_client.get("/").headers["Location"] == "/login?next=/"


@pytest.mark.parametrize("address", ["/nowhere", "/admin/nowhere/", "/states/nothing/", "/pipelines/nothing/"])
def test_what_is_missing_is_said_below_the_bar(filled, admin_client, address):
    missing = admin_client.get(address)

    assert missing.status_code == 404
    assert bar(missing) == bar(admin_client.get("/search"))
    assert 'id="search-dialog"' in missing.content.decode()


@pytest.mark.parametrize("address", ["/", "/admin/", ADMIN_LIST, "/nowhere", "/admin/nowhere/"])
@pytest.mark.django_db(transaction=True)
def test_without_a_database_every_page_says_so_below_the_bar(admin_client, address):
    admin_client.raise_request_exception = False
    with no_database():
        away = admin_client.get(address)

    assert (away.status_code, away.headers["Refresh"]) == (503, "5")
    assert "The database is unavailable" in text(away)
    assert '<a href="/maintenance" title="Maintenance">' in bar(away)


@pytest.mark.django_db(transaction=True)
def test_a_refusal_after_which_the_database_goes_away_is_a_503(django_user_model, visitor, monkeypatch):
    visitor.force_login(django_user_model.objects.create_user("ann"))
    with ExitStack() as until_the_end:

        def is_refused(request):
            assert request.user.is_authenticated
            until_the_end.enter_context(no_database())
            return False

        monkeypatch.setattr(admin.site, "has_permission", is_refused)
        refused = visitor.get("/admin/login/")

    assert (refused.status_code, refused.headers["Refresh"]) == (503, "5")


@pytest.mark.django_db(transaction=True)
def test_an_expired_form_without_a_database_is_a_503(django_user_model):
    visitor = Client(raise_request_exception=False, enforce_csrf_checks=True)
    visitor.force_login(django_user_model.objects.create_user("ann"))
    with no_database():
        expired = visitor.post("/login")

    assert expired.status_code == 503
    assert "Refresh" not in expired.headers


@pytest.mark.parametrize("address", ["/", "/admin/states/pipeline/"])
def test_an_error_of_the_server_is_said_below_the_bar(filled, admin_client, address, monkeypatch):
    admin_client.raise_request_exception = False
    monkeypatch.setattr(queries, "pipelines", lambda: 1 / 0)

    failed = admin_client.get(address)

    assert failed.status_code == 500
    assert "Committed data is not affected" in text(failed)
    assert '<a href="/maintenance" title="Maintenance">' in bar(failed)

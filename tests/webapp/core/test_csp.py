import pytest
from django.http import HttpResponse
from django.test import Client, RequestFactory

from tests.webapp.fixtures import connection, filled, flights, reader
from tidegauge.webapp.core.csp import ContentSecurityPolicy

__all__ = ["connection", "filled", "flights", "reader"]


def policy(response) -> dict[str, str]:
    parts = response.headers["Content-Security-Policy"].split("; ")
    return dict(part.split(" ", 1) for part in parts)


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["/", "/login", "/nowhere", "/static/dashboard/tidegauge.css", "/healthz"])
def test_pages_run_only_files_of_this_server(filled, reader, address):
    held = policy(reader.get(address))

    assert held["default-src"] == "'self'"
    assert held["base-uri"] == held["object-src"] == held["frame-ancestors"] == "'none'"
    assert held["form-action"] == "'self'"
    assert "unsafe" not in str(held)


def test_the_admin_may_evaluate_expressions_and_nothing_inline_runs(admin_client):
    held = policy(admin_client.get("/admin/"))

    assert held["script-src"] == "'self' 'unsafe-eval'"
    assert held["frame-ancestors"] == "'none'"


def test_an_unknown_url_of_the_admin_has_the_admins_policy(admin_client):
    assert "unsafe-eval" in policy(admin_client.get("/admin/nowhere/"))["script-src"]


def test_the_documentation_has_no_inline_script(db):
    answer = Client().get("/api/docs")

    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert b"<script>" not in answer.content


@pytest.mark.parametrize("address", ["/api/v1/states", "/api/schema", "/api/v1/nowhere"])
def test_an_answer_of_the_api_may_load_nothing(db, address):
    assert policy(Client().get(address)) == {"default-src": "'none'", "frame-ancestors": "'none'"}


@pytest.mark.parametrize(
    ("url", "allowed"),
    [("", None), ("/events", None), ("https://live.example:8443/events", "'self' https://live.example:8443")],
)
def test_pages_may_connect_to_the_events_process(rf, settings, url, allowed):
    settings.TIDEGAUGE_EVENTS_URL = url

    assert policy(Client().get("/login")).get("connect-src") == allowed


def test_a_view_may_set_a_policy_of_its_own():
    middleware = ContentSecurityPolicy(lambda request: HttpResponse(headers={"Content-Security-Policy": "own own"}))

    assert middleware(RequestFactory().get("/")).headers["Content-Security-Policy"] == "own own"


def test_every_answer_has_the_other_security_headers(db):
    headers = Client().get("/login").headers

    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "geolocation=()" in headers["Permissions-Policy"]


def test_scripts_cannot_read_the_session_cookie(db, django_user_model):
    django_user_model.objects.create_user("ada", password="a long one 4 u")

    answer = Client().post("/login", {"username": "ada", "password": "a long one 4 u"})

    assert answer.cookies["sessionid"]["httponly"]
    assert answer.cookies["sessionid"]["samesite"] == "Lax"

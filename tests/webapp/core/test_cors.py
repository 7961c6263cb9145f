"""What the web process tells browsers about pages of other origins."""

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.core.installation import checked_origins

PAGE, OTHER = "https://app.example", "https://other.example"
LOOKUP = "/api/v1/states/flights_by_carrier/lookup"


@pytest.fixture(autouse=True)
def origins(settings):
    settings.TIDEGAUGE_CORS_ORIGINS = [PAGE]
    authentication.clear_cache()


@pytest.fixture
def secret(filled) -> str:
    return create_api_key("page", ["read"])[1]


def ask(secret: str | None, path: str = LOOKUP, *, origin: str | None = PAGE, method: str = "POST", **headers: str):
    sent = {"Authorization": f"Bearer {secret}"} if secret else {}
    sent |= {"Origin": origin} if origin else {}
    body = b'{"keys": [["JFK", "C01"]]}' if method == "POST" else b""
    return Client().generic(method, path, body, content_type="application/json", headers=sent | headers)


def of_cors(response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("Access-Control")}


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_page_of_a_listed_origin_may_read_answers(secret, method):
    response = ask(secret, LOOKUP if method == "POST" else "/api/v1/states", method=method)

    assert response.headers["Access-Control-Allow-Origin"] == PAGE
    assert {"ETag", "Retry-After", "RateLimit", "Link", "X-Request-ID"} <= set(
        response.headers["Access-Control-Expose-Headers"].split(", ")
    )
    assert "Access-Control-Allow-Credentials" not in response.headers
    assert "Origin" in response.headers["Vary"]


@pytest.mark.parametrize(
    ("path", "status"), [("/api/v1/states/nothing/lookup", 404), ("/api/v1/nothing", 404), ("/api/v1/states", 405)]
)
def test_it_may_read_problems(secret, path, status):
    response = ask(secret, path)

    assert (response.status_code, response.headers["Access-Control-Allow-Origin"]) == (status, PAGE)


def test_it_may_read_that_its_key_is_wrong(db):
    response = ask("tmk_00000000_wrong")

    assert (response.status_code, response.headers["Access-Control-Allow-Origin"]) == (401, PAGE)


def test_it_may_read_a_304(secret):
    etag = ask(secret).headers["ETag"]

    response = ask(secret, **{"If-None-Match": etag})

    assert (response.status_code, response.headers["Access-Control-Allow-Origin"]) == (304, PAGE)
    assert "Origin" in response.headers["Vary"]


@pytest.mark.parametrize("origin", [OTHER, None, "null", f"{PAGE}.evil.example", f"{PAGE}/", PAGE.upper()])
def test_a_page_of_another_origin_may_not(secret, origin):
    response = ask(secret, origin=origin)

    assert (response.status_code, of_cors(response)) == (200, {})
    assert "Origin" in response.headers["Vary"]


def test_a_preflight_is_answered_without_an_api_key(db, settings):
    settings.SECURE_SSL_REDIRECT = True

    response = ask(None, method="OPTIONS", **{"Access-Control-Request-Method": "POST"})

    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["Access-Control-Allow-Origin"] == PAGE
    assert "POST" in response.headers["Access-Control-Allow-Methods"]
    assert {"Authorization", "Content-Type", "If-None-Match"} <= set(
        response.headers["Access-Control-Allow-Headers"].split(", ")
    )


def test_a_preflight_of_another_origin_allows_nothing(db):
    assert of_cors(ask(None, origin=OTHER, method="OPTIONS", **{"Access-Control-Request-Method": "POST"})) == {}


def test_pages_of_the_dashboard_are_not_opened(admin_client):
    assert of_cors(admin_client.get("/", headers={"Origin": PAGE})) == {}
    assert of_cors(admin_client.get("/admin/", headers={"Origin": PAGE})) == {}


def test_without_the_setting_nothing_changes(secret, settings):
    settings.TIDEGAUGE_CORS_ORIGINS = []

    response = ask(secret)

    assert of_cors(response) == {}
    assert "Origin" not in response.headers.get("Vary", "")


@pytest.mark.parametrize(
    "origin", ["https://app.example", "http://localhost:5173", "http://[::1]:80", "http://10.0.0.1"]
)
def test_origins_are_accepted(origin):
    assert checked_origins("TIDEGAUGE_CORS_ORIGINS", [origin]) == [origin]


@pytest.mark.parametrize(
    "text",
    ["*", "app.example", "https://app.example/", "https://App.example", "https://*.example", "null", "", "ws://a"],
)
def test_what_no_browser_sends_is_refused(text):
    with pytest.raises(ImproperlyConfigured, match="TIDEGAUGE_CORS_ORIGINS"):
        checked_origins("TIDEGAUGE_CORS_ORIGINS", [text])

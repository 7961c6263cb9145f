"""POST /tokens, and what a token may do: read within its restrictions, and nothing else."""

import orjson
import pytest

from tests.webapp.api.checked_client import CheckedClient
from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.issuing import issue
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.services import create_api_key

JFK, EWR = ["JFK", "C01"], ["EWR", "C01"]
CARRIER = "/states/flights_by_carrier"


@pytest.fixture(autouse=True)
def empty_cache():
    authentication.clear_cache()


@pytest.fixture
def backend(filled) -> CheckedClient:
    """The program with the API key. It may maintain, too."""
    return CheckedClient(create_api_key("backend", ["issue_tokens", "maintain", "read"])[1])


@pytest.fixture
def page(backend):
    """Make a token; give a client that sends it."""

    def page(**restrictions) -> CheckedClient:
        response = backend.ask("POST", "/tokens", restrictions)
        assert response.status_code == 201, response.content
        return CheckedClient(response.json()["token"])

    return page


def test_the_answer_says_what_the_token_allows(backend):
    response = backend.ask("POST", "/tokens", {"states": ["totals"], "rate": 60, "sub": "user-17"})

    document = response.json()
    assert document.pop("token").count(".") == 2
    assert document.pop("id").startswith(ApiKey.objects.get().prefix)
    assert document.pop("expires_at") > "2026"
    assert document == {
        "token_type": "Bearer", "states": ["totals"], "key_prefix": [], "queries": [], "rate": 60, "burst": None,
        "sub": "user-17",
    }  # fmt: skip
    assert response.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([], "must be an object"),
        ({"state": "totals"}, "unknown member 'state'"),
        ({"states": "totals"}, "states must be a list"),
        ({"states": ["a\0"]}, "states must be a list"),
        ({"states": [""]}, "states must be a list"),
        ({"states": ["a"] * 101}, "states must be a list"),
        ({"key_prefix": "JFK"}, "key_prefix must be a list"),
        ({"key_prefix": [["JFK"]]}, "key_prefix must be a list"),
        ({"key_prefix": [None]}, "key_prefix must be a list"),
        ({"key_prefix": ["x" * 8_000]}, "over the limit of 8000; name fewer states"),
        ({"rate": 0}, "rate must be a whole number from 1"),
        ({"burst": 5}, "burst needs a rate"),
        ({"lifetime_seconds": 9}, "lifetime_seconds must be a whole number from 10 to 86400"),
        ({"lifetime_seconds": 86_401}, "lifetime_seconds must be"),
        ({"lifetime_seconds": "600"}, "lifetime_seconds must be"),
        ({"sub": "x" * 201}, "sub must be text of at most 200"),
        ({"sub": 17}, "sub must be text"),
    ],
)
def test_an_invalid_request_is_a_400(backend, body, text):
    response = backend.ask("POST", "/tokens", body)

    assert (response.status_code, text in response.json()["detail"]) == (400, True), response.json()


def test_a_wider_token_is_a_403(filled):
    client = CheckedClient(create_api_key("backend", ["issue_tokens", "read"], states=["totals"])[1])

    assert client.ask("POST", "/tokens", {"states": ["flights_by_carrier"]}).status_code == 403


def test_a_key_without_the_scope_makes_none(filled):
    response = CheckedClient(create_api_key("reader", ["read", "maintain"])[1]).ask("POST", "/tokens", {})

    assert (response.status_code, "'issue_tokens'" in response.json()["detail"]) == (403, True)


def test_a_session_makes_none(filled, admin_client):
    assert admin_client.post("/api/v1/tokens", {}, content_type="application/json").status_code == 403


READS = [
    ("GET", "/states", None),
    ("GET", CARRIER, None),
    ("POST", f"{CARRIER}/lookup", {"keys": [JFK]}),
    ("POST", "/lookup", {"lookups": [{"state": "flights_by_carrier", "keys": [JFK]}]}),
    ("GET", f"{CARRIER}/entries", None),
    ("GET", f'{CARRIER}/history?key=["JFK","C01"]', None),
    ("GET", "/pipelines", None),
    ("GET", "/pipelines/flights", None),
    ("GET", "/pipelines/flights/batches", None),
    ("GET", "/maintenance", None),
]


@pytest.mark.parametrize(("method", "path", "body"), READS)
def test_a_token_reads(page, method, path, body):
    assert page().ask(method, path, body).status_code == 200
    assert page(states=["flights_by_carrier"], key_prefix=["JFK"]).ask(method, path, body).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/tokens"),
        ("POST", f"{CARRIER}/compaction"),
        ("POST", f"{CARRIER}/expiry"),
        ("DELETE", "/maintenance/1"),
        ("POST", "/pipelines/flights/pause"),
        ("POST", "/pipelines/flights/resume"),
    ],
)
def test_a_token_does_nothing_else(page, method, path):
    response = page().ask(method, path, {} if method == "POST" else None)

    assert response.status_code == 403
    assert response.json()["detail"].startswith("this token lacks the scope")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{CARRIER}/lookup", {"keys": [JFK, EWR]}),
        ("POST", "/lookup", {"lookups": [{"state": "flights_by_carrier", "keys": [EWR]}]}),
        ("GET", f'{CARRIER}/entries?prefix=["EWR"]', None),
        ("GET", f'{CARRIER}/history?key=["EWR","C01"]', None),
        ("GET", "/states/totals", None),
        ("POST", "/states/totals/lookup", {"keys": [[]]}),
        ("GET", "/states/totals/entries", None),
    ],
)
def test_what_is_outside_of_its_restrictions_is_a_403(page, method, path, body):
    client = page(states=["flights_by_carrier"], key_prefix=["JFK"])

    assert client.ask(method, path, body).status_code == 403


def test_a_page_holds_its_own_keys_only(page):
    entries = page(key_prefix=["JFK"]).ask("GET", f"{CARRIER}/entries?limit=1000").json()["entries"]

    assert ({entry["key"][0] for entry in entries}, len(entries)) == ({"JFK"}, 30)


def test_a_file_holds_its_own_keys_only(lasting):
    key, _ = create_api_key("backend", ["issue_tokens", "read"])
    client = CheckedClient(issue(key, key_prefix=["JFK"]).text)

    lines = b"".join(client.ask("GET", f"{CARRIER}/export?format=ndjson")).splitlines()
    outside = client.ask("GET", f'{CARRIER}/export?format=ndjson&prefix=["EWR"]')

    assert ({orjson.loads(line)["origin"] for line in lines}, len(lines)) == ({"JFK"}, 30)
    assert outside.status_code == 403


def test_a_token_ends_with_its_key(page):
    client = page()
    assert client.ask("GET", "/states").status_code == 200

    ApiKey.objects.all().delete()
    authentication.clear_cache()

    assert client.ask("GET", "/states").status_code == 401

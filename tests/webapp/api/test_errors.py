import pytest
from django.test import Client

from tests.webapp.api.checked_client import CheckedClient
from tests.webapp.committed_flights import no_database
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog import queries

PROBLEM = "application/problem+json"


def body_of(response):
    assert response.headers["Content-Type"] == PROBLEM
    problem = response.json()
    assert (problem["type"], problem["status"]) == (f"/problems#{problem['code']}", response.status_code)
    return problem


def test_no_key_is_a_401_that_says_how_to_authenticate(db):
    response = CheckedClient().ask("GET", "/states")

    assert body_of(response)["code"] == "unauthenticated"
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="tidegauge"'


def test_a_missing_scope_is_a_403_that_names_it(filled, api):
    response = api.ask("POST", "/states/totals/compaction")

    assert body_of(response)["detail"] == "this API key lacks the scope 'maintain'; it has read"


def test_a_wrong_method_is_a_405(api):
    response = api.delete("/api/v1/states")

    assert body_of(response)["detail"] == 'Method "DELETE" not allowed.'


@pytest.mark.parametrize("path", ["/api/v1/stats", "/api/v2", "/api/v1/states/a%00b", "/api/v1/maintenance/x"])
def test_an_unknown_address_of_the_api_is_a_404_problem(api, path):
    assert body_of(api.get(path))["code"] == "not_found"


def test_an_unexpected_error_is_a_500_problem_without_its_text(api, monkeypatch):
    def fail():
        raise RuntimeError("secret")

    monkeypatch.setattr(queries, "states", fail)
    api.raise_request_exception = False

    response = api.get("/api/v1/states")

    assert "secret" not in body_of(response)["detail"]


def test_a_database_that_is_gone_is_a_503_problem(transactional_db):
    client = Client(headers={"X-Api-Key": create_api_key("reader", ["read"])[1]})
    assert client.get("/api/v1/states").status_code == 200

    with no_database():
        response = client.get("/api/v1/states")

    assert response.status_code == 503
    assert response.headers["Retry-After"] == "1"
    assert body_of(response)["detail"] == "the database does not answer; try again shortly"


def test_a_page_that_does_not_exist_is_not_a_problem_document(client, db):
    assert client.get("/nowhere").headers["Content-Type"].startswith("text/html")

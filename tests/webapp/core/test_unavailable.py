import psycopg
import pytest
from django.db import OperationalError
from django.test import Client

from tests.webapp.committed_flights import no_database
from tests.webapp.dashboard.page_text import text
from webapp.states import queries


@pytest.fixture
def visitor() -> Client:
    """A browser with a session, which cannot be looked up."""
    client = Client()
    client.cookies["sessionid"] = "a" * 32
    return client


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("address", ["/", "/pipelines/flights/", "/states/totals/", "/maintenance", "/keys"])
def test_a_page_without_its_database_says_so_and_tries_again(visitor, address):
    with no_database():
        response = visitor.get(address)

    assert response.status_code == 503
    assert (response.headers["Retry-After"], response.headers["Refresh"]) == ("5", "5")
    assert "The database is unavailable Committed data is not affected" in text(response)


@pytest.mark.django_db(transaction=True)
def test_signing_in_without_a_database_says_so_and_posts_nothing_again(visitor):
    with no_database():
        response = visitor.post("/login", {"username": "ann", "password": "tide"})

    assert response.status_code == 503
    assert "Refresh" not in response.headers


@pytest.mark.django_db(transaction=True)
def test_a_poll_without_a_database_fails_as_polls_do(visitor):
    with no_database():
        assert visitor.get("/", {"v": "x"}, headers={"HX-Request": "true"}).status_code == 503


def test_a_slow_query_is_distinguished_from_an_unavailable_database(reader, monkeypatch):
    def never_ends():
        raise OperationalError from psycopg.errors.QueryCanceled()

    monkeypatch.setattr(queries, "pipelines", never_ends)

    assert "The query took too long" in text(reader.get("/"))


def test_other_failures_are_no_missing_database(reader, monkeypatch):
    monkeypatch.setattr(queries, "pipelines", lambda: 1 / 0)
    reader.raise_request_exception = False

    assert reader.get("/").status_code == 500

"""Every request has an id and a log line without secrets; without a database, pages answer 503."""

import logging
import re
import threading

import psycopg
import pytest
from django.db import OperationalError
from django.http import HttpResponse, StreamingHttpResponse
from django.test import Client, RequestFactory
from structlog.contextvars import bind_contextvars, get_contextvars

from tests.webapp.committed_flights import no_database
from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.serving.observer import RequestObserver

LOOKUP = "/api/v1/states/flights_by_carrier/lookup"


def ask(client, key, keys=(("JFK", "C01"),), **headers):
    return client.post(
        LOOKUP, {"keys": keys}, content_type="application/json", headers={"Authorization": f"Bearer {key}", **headers}
    )


class TestIds:
    def test_a_clients_own_id_comes_back(self, client, db):
        response = client.get("/healthz", headers={"X-Request-ID": "checkout-17:a.b_c"})

        assert response["X-Request-ID"] == "checkout-17:a.b_c"

    @pytest.mark.parametrize("invalid", ["", "x" * 65, "two words", "line\nbreak", "é", "<script>", '"', "a\n"])
    def test_an_invalid_one_is_replaced(self, client, db, invalid):
        response = client.get("/healthz", headers={"X-Request-ID": invalid})

        assert re.fullmatch("[0-9a-f]{24}", response["X-Request-ID"])

    def test_each_request_without_one_gets_its_own(self, client, db):
        assert client.get("/healthz")["X-Request-ID"] != client.get("/healthz")["X-Request-ID"]

    def test_an_error_has_one_too(self, client, db, lines):
        response = client.get("/api/v1/nothing", headers={"X-Request-ID": "lost"})

        assert (response.status_code, response["X-Request-ID"]) == (404, "lost")
        assert [line["request_id"] for line in lines() if line["logger"] == "tidegauge.requests"] == ["lost"]


class TestBinding:
    """A thread answers many requests, and none has the fields of another."""

    def test_lines_of_libraries_have_the_request_id(self, lines):
        answer_with(lambda request: logging.getLogger("some.library").warning("odd"), HTTP_X_REQUEST_ID="r-1")

        assert [line["request_id"] for line in lines()] == ["r-1", "r-1"]

    def test_nothing_stays_bound(self):
        answer_with(lambda request: bind_contextvars(left="behind") and None)

        assert get_contextvars() == {}

    def test_what_was_bound_before_is_gone(self):
        bind_contextvars(request_id="r-0", state="other")
        seen = {}

        answer_with(lambda request: seen.update(get_contextvars()), HTTP_X_REQUEST_ID="r-2")

        assert seen == {"request_id": "r-2"}

    def test_requests_at_the_same_time_keep_apart(self):
        both, seen = threading.Barrier(2), {}

        def view(request):
            both.wait(10)
            seen[request.META["HTTP_X_REQUEST_ID"]] = get_contextvars()["request_id"]

        threads = [threading.Thread(target=answer_with, args=[view], kwargs={"HTTP_X_REQUEST_ID": i}) for i in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert seen == {"a": "a", "b": "b"}

    def test_a_stream_is_bound_until_its_end_and_then_logged(self, db, request_lines):
        seen = []

        def parts():
            seen.append(get_contextvars())
            yield b"1"

        answer = RequestObserver(lambda request: StreamingHttpResponse(parts()))
        response = answer(RequestFactory().get("/", headers={"X-Request-ID": "long"}))
        before = request_lines()
        body = b"".join(response)
        response.close()

        assert (body, seen, before) == (b"1", [{"request_id": "long"}], [])
        assert [line["request_id"] for line in request_lines()] == ["long"]
        assert get_contextvars() == {}

    @pytest.mark.parametrize("parts_read", [0, 1])
    def test_a_stream_whose_client_disconnects_is_logged_too(self, db, request_lines, parts_read):
        answer = RequestObserver(lambda request: StreamingHttpResponse(iter([b"1", b"2"])))
        response = answer(RequestFactory().get("/"))
        for _ in range(parts_read):
            next(iter(response))

        response.close()

        assert [line["status"] for line in request_lines()] == [200]


class TestLines:
    def test_the_line_of_a_lookup_names_actor_state_and_number_of_keys(self, client, filled, key, request_lines):
        ask(client, key, [("JFK", "C01"), ("EWR", "C00")])

        (line,) = request_lines()
        assert line["ms"] > 0
        assert {name: line[name] for name in ("event", "level", "method", "route", "status", "actor")} == {
            "event": "request",
            "level": "info",
            "method": "POST",
            "route": "lookup:lookup",
            "status": 200,
            "actor": "API key reader",
        }
        assert (line["state"], line["keys"]) == ("flights_by_carrier", 2)

    def test_the_line_of_a_page_names_the_user(self, reader, filled, request_lines):
        reader.get("/")

        assert [(line["route"], line["actor"]) for line in request_lines()] == [("dashboard:index", "reader")]

    def test_an_unknown_url_is_not_logged(self, client, db, written):
        client.get("/no/such/place/JFK-secret-key?key=another-secret")

        assert "secret" not in written()
        assert '"route":"-"' in written()

    def test_polls_without_news_are_logged_at_debug(self, client, filled, key, request_lines):
        tag = ask(client, key)["ETag"]

        response = ask(client, key, **{"If-None-Match": tag})

        assert response.status_code == 304
        assert [(line["status"], line["level"]) for line in request_lines()] == [(200, "info"), (304, "debug")]

    def test_a_503_is_logged_as_an_error(self, request_lines):
        answer_with(lambda request: HttpResponse(status=503))

        assert [line["level"] for line in request_lines()] == ["error"]

    @pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
    def test_health_checks_and_scrapes_are_logged_at_debug(self, client, db, request_lines, path):
        client.get(path)

        assert [line["level"] for line in request_lines()] == ["debug"]


class TestSecrets:
    """No API key and no password is logged, even at DEBUG."""

    def test_neither_valid_nor_invalid_keys_are_logged(self, client, filled, key, written):
        wrong = key[:-6] + "wrong1"

        assert ask(client, key).status_code == 200
        assert ask(client, wrong).status_code == 401
        client.get("/api/v1/states", headers={"X-Api-Key": key})

        secret, wrong_secret = key.split("_", 2)[2], wrong.split("_", 2)[2]
        assert written().count('"route":"lookup:lookup"') == 2
        assert secret not in written()
        assert wrong_secret not in written()

    def test_the_password_of_a_sign_in_is_not_logged(self, client, db, written):
        client.post("/login", {"username": "ada", "password": "hunter2-is-secret"})

        assert '"route":"login"' in written()
        assert "hunter2" not in written()

    def test_the_password_in_a_url_is_not_logged_even_in_a_traceback(self, written):
        try:
            raise ConnectionError("redis://:s3cret@redis:6379/0 does not answer")
        except ConnectionError:
            logging.getLogger("webapp").exception("no store at %s", "postgresql://tidegauge:s3cret@db:5432/tidegauge")

        assert "s3cret" not in written()
        assert "redis:6379" in written()


def answer_with(view, **meta):
    """Answer one request by `view`, or with an empty answer if it returns None."""
    RequestObserver(lambda request: view(request) or HttpResponse())(RequestFactory().get("/", **meta))


@pytest.fixture
def visitor() -> Client:
    """A client with a session, which cannot be read."""
    client = Client()
    client.cookies["sessionid"] = "a" * 32
    return client


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["/", "/pipelines/flights/", "/states/totals/", "/maintenance", "/keys"])
def test_without_a_database_a_page_is_a_503_that_reloads(visitor, path):
    with no_database():
        response = visitor.get(path)

    assert response.status_code == 503
    assert (response.headers["Retry-After"], response.headers["Refresh"]) == ("5", "5")
    assert "The database is unavailable Committed data is not affected" in text(response)


@pytest.mark.django_db(transaction=True)
def test_without_a_database_a_sign_in_is_a_503_that_does_not_post_again(visitor):
    with no_database():
        response = visitor.post("/login", {"username": "ann", "password": "wrong"})

    assert response.status_code == 503
    assert "Refresh" not in response.headers


@pytest.mark.django_db(transaction=True)
def test_without_a_database_a_poll_is_a_503(visitor):
    with no_database():
        assert visitor.get("/", {"v": "x"}, headers={"HX-Request": "true"}).status_code == 503


def test_a_query_that_takes_too_long_is_reported_as_slow(reader, monkeypatch):
    def times_out():
        raise OperationalError from psycopg.errors.QueryCanceled()

    monkeypatch.setattr(queries, "pipelines", times_out)

    assert "The query took too long" in text(reader.get("/"))


def test_other_errors_are_a_500(reader, monkeypatch):
    monkeypatch.setattr(queries, "pipelines", lambda: 1 / 0)
    reader.raise_request_exception = False

    assert reader.get("/").status_code == 500

"""Every request has an id and a line, and neither says what it should not."""

import logging
import re
import threading

import pytest
from django.http import HttpResponse, StreamingHttpResponse
from django.test import RequestFactory
from structlog.contextvars import bind_contextvars, get_contextvars

from webapp.core.requests import ObservedRequests

QUERY = "/api/v1/states/flights_by_carrier/query"


def ask(client, key, keys=(("JFK", "C01"),), **headers):
    return client.post(
        QUERY, {"keys": keys}, content_type="application/json", headers={"Authorization": f"Bearer {key}", **headers}
    )


class TestIds:
    def test_a_clients_own_id_comes_back(self, client, db):
        response = client.get("/healthz", headers={"X-Request-ID": "checkout-17:a.b_c"})

        assert response["X-Request-ID"] == "checkout-17:a.b_c"

    @pytest.mark.parametrize("insane", ["", "x" * 65, "two words", "line\nbreak", "é", "<script>", '"', "a\n"])
    def test_an_insane_one_is_replaced(self, client, db, insane):
        response = client.get("/healthz", headers={"X-Request-ID": insane})

        assert re.fullmatch("[0-9a-f]{24}", response["X-Request-ID"])

    def test_each_request_without_one_gets_its_own(self, client, db):
        assert client.get("/healthz")["X-Request-ID"] != client.get("/healthz")["X-Request-ID"]

    def test_an_error_has_one_too(self, client, db, lines):
        response = client.get("/api/v1/nothing", headers={"X-Request-ID": "lost"})

        assert (response.status_code, response["X-Request-ID"]) == (404, "lost")
        assert [line["request_id"] for line in lines() if line["logger"] == "tidemark.requests"] == ["lost"]


class TestBinding:
    """A thread answers one request after the other, and none finds what another has bound."""

    def test_lines_of_others_carry_the_request(self, lines):
        answer_with(lambda request: logging.getLogger("some.library").warning("odd"), HTTP_X_REQUEST_ID="r-1")

        assert [line["request_id"] for line in lines()] == ["r-1", "r-1"]

    def test_nothing_stays_bound(self):
        answer_with(lambda request: bind_contextvars(left="behind") and None)

        assert get_contextvars() == {}

    def test_what_was_bound_before_is_gone(self):
        bind_contextvars(request_id="of yesterday", state="other")
        seen = {}

        answer_with(lambda request: seen.update(get_contextvars()), HTTP_X_REQUEST_ID="r-2")

        assert seen == {"request_id": "r-2"}

    def test_requests_at_the_same_time_keep_apart(self):
        both, seen = threading.Barrier(2), {}

        def look(request):
            both.wait(10)
            seen[request.META["HTTP_X_REQUEST_ID"]] = get_contextvars()["request_id"]

        threads = [threading.Thread(target=answer_with, args=[look], kwargs={"HTTP_X_REQUEST_ID": i}) for i in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert seen == {"a": "a", "b": "b"}

    def test_a_stream_is_bound_until_its_end_and_then_noted(self, db, request_lines):
        seen = []

        def parts():
            seen.append(get_contextvars())
            yield b"1"

        answer = ObservedRequests(lambda request: StreamingHttpResponse(parts()))
        response = answer(RequestFactory().get("/", headers={"X-Request-ID": "long"}))
        before = request_lines()
        body = b"".join(response)
        response.close()

        assert (body, seen, before) == (b"1", [{"request_id": "long"}], [])
        assert [line["request_id"] for line in request_lines()] == ["long"]
        assert get_contextvars() == {}

    @pytest.mark.parametrize("parts_read", [0, 1])
    def test_a_stream_whose_reader_goes_away_is_noted_as_well(self, db, request_lines, parts_read):
        answer = ObservedRequests(lambda request: StreamingHttpResponse(iter([b"1", b"2"])))
        response = answer(RequestFactory().get("/"))
        for _ in range(parts_read):
            next(iter(response))

        response.close()

        assert [line["status"] for line in request_lines()] == [200]


class TestLines:
    def test_a_lookup_says_who_asked_what_of_whom(self, client, filled, key, request_lines):
        ask(client, key, [("JFK", "C01"), ("EWR", "C00")])

        (line,) = request_lines()
        assert line["ms"] > 0
        assert {name: line[name] for name in ("event", "level", "method", "route", "status", "actor")} == {
            "event": "request",
            "level": "info",
            "method": "POST",
            "route": "lookup:query",
            "status": 200,
            "actor": "API key reader",
        }
        assert (line["state"], line["keys"]) == ("flights_by_carrier", 2)

    def test_a_page_says_who_looked(self, reader, filled, request_lines):
        reader.get("/")

        assert [(line["route"], line["actor"]) for line in request_lines()] == [("dashboard:index", "reader")]

    def test_an_address_that_nobody_answers_to_is_not_quoted(self, client, db, written):
        client.get("/no/such/place/JFK-secret-key?key=another-secret")

        assert "secret" not in written()
        assert '"route":"-"' in written()

    def test_polls_that_find_nothing_new_are_for_debugging(self, client, filled, key, request_lines):
        tag = ask(client, key)["ETag"]

        response = ask(client, key, **{"If-None-Match": tag})

        assert response.status_code == 304
        assert [(line["status"], line["level"]) for line in request_lines()] == [(200, "info"), (304, "debug")]

    def test_an_answer_of_our_own_making_that_went_wrong_is_an_error(self, request_lines):
        answer_with(lambda request: HttpResponse(status=503))

        assert [line["level"] for line in request_lines()] == ["error"]

    @pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
    def test_what_machines_ask_all_day_is_for_debugging(self, client, db, request_lines, path):
        client.get(path)

        assert [line["level"] for line in request_lines()] == ["debug"]


class TestSecrets:
    """At DEBUG, whatever is asked and however it ends, no key and no password is written down."""

    def test_neither_a_right_key_nor_a_wrong_one(self, client, filled, key, written):
        wrong = key[:-6] + "wrong1"

        assert ask(client, key).status_code == 200
        assert ask(client, wrong).status_code == 401
        client.get("/api/v1/states", headers={"X-Api-Key": key})

        secret, mistaken = key.rpartition("_")[2], wrong.rpartition("_")[2]
        assert written().count('"route":"lookup:query"') == 2
        assert secret not in written()
        assert mistaken not in written()

    def test_no_password_of_somebody_who_signs_in(self, client, db, written):
        client.post("/login", {"username": "somebody", "password": "hunter2-is-secret"})

        assert '"route":"login"' in written()
        assert "hunter2" not in written()

    def test_no_url_with_a_password_even_in_a_trace(self, written):
        try:
            raise ConnectionError("redis://:s3cret@redis:6379/0 does not answer")
        except ConnectionError:
            logging.getLogger("webapp").exception("no store at %s", "postgresql://tidemark:s3cret@db:5432/tidemark")

        assert "s3cret" not in written()
        assert "redis:6379" in written()


def answer_with(view, **meta):
    """Answer one request by `view`, whose result is the answer unless it has none."""
    ObservedRequests(lambda request: view(request) or HttpResponse())(RequestFactory().get("/", **meta))

"""What all answers share: packing, methods, limits, routes on their way out, the id of the request."""

import gzip

import orjson
import pytest
from django.test import Client
from structlog.contextvars import bind_contextvars

from webapp.api.errors import problem

QUERY = "/states/flights_by_carrier/query"
PACKED = {"Accept-Encoding": "gzip"}


class TestPacking:
    def test_a_large_answer_is_packed_for_who_takes_it(self, filled, api):
        plain = api.get("/api/v1/states")
        packed = api.get("/api/v1/states", headers=PACKED)

        assert packed.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(packed.content) == plain.content
        assert "Accept-Encoding" in packed.headers["Vary"]
        assert packed.headers["ETag"] == f"W/{plain.headers['ETag']}"

    def test_a_small_answer_is_not(self, filled, api):
        response = api.get("/api/v1/states/totals", headers=PACKED)

        assert 200 < len(response.content) < 1_024  # Django itself packs from 200 on
        assert "Content-Encoding" not in response.headers

    def test_a_packed_answer_costs_a_304_the_next_time(self, filled, api):
        etag = api.get("/api/v1/states", headers=PACKED).headers["ETag"]

        assert api.get("/api/v1/states", headers=PACKED | {"If-None-Match": etag}).status_code == 304

    def test_pages_with_a_csrf_token_are_never_packed(self, db, client):
        page = client.get("/login", headers=PACKED)

        assert b"csrfmiddlewaretoken" in page.content
        assert "Content-Encoding" not in page.headers

    def test_streams_are_not_packed(self, lasting, api):
        response = api.get("/api/v1/states/flights_by_carrier/entries?format=csv", headers=PACKED)

        assert "Content-Encoding" not in response.headers
        assert len(response.getvalue()) > 1_024


class TestPackedBodies:
    def post(self, api, body, encoding="gzip"):
        return api.ask("POST", QUERY, body, headers={"Content-Encoding": encoding})

    def test_a_body_may_come_packed(self, filled, api):
        response = self.post(api, gzip.compress(orjson.dumps({"keys": [["JFK", "C01"]]})))

        assert response.json()["results"][0]["status"] == "found"

    @pytest.mark.parametrize("body", [b"{}", gzip.compress(b'{"keys": []}')[:-9]])
    def test_one_that_is_not_what_it_says_is_a_400(self, filled, api, body):
        response = self.post(api, body)

        assert response.status_code == 400
        assert "the body is no gzip" in response.json()["detail"]

    def test_another_packing_is_a_415_that_names_ours(self, filled, api):
        response = self.post(api, b"{}", "br")

        assert (response.status_code, response.json()["detail"]) == (
            415, "Content-Encoding 'br' is not known here; there is gzip",
        )  # fmt: skip

    def test_the_limit_is_on_what_is_unpacked(self, filled, api, settings):
        settings.TIDEMARK_REQUEST_MAX_BYTES = 10_000
        bomb = gzip.compress(b" " * 10_000_000)
        settings.TIDEMARK_REQUEST_MAX_BYTES = 20_000

        assert len(bomb) < 20_000
        assert self.post(api, bomb).status_code == 413


class TestMethods:
    def test_another_method_is_a_405_that_names_those_there_are(self, filled, api):
        response = api.delete("/api/v1/states/totals/query")

        assert (response.status_code, response.headers["Content-Type"]) == (405, "application/problem+json")
        assert response.headers["Allow"] == "POST, OPTIONS"

    @pytest.mark.parametrize("path", ["/states", "/states/totals/entries", "/query"])
    def test_options_names_them_without_a_body(self, filled, api, path):
        response = api.options(f"/api/v1{path}")

        assert (response.status_code, response.content) == (204, b"")
        assert response.headers["Allow"] in ("GET, HEAD, OPTIONS", "POST, OPTIONS")

    def test_head_tells_what_get_would(self, filled, api):
        got, head = api.get("/api/v1/states/totals"), api.head("/api/v1/states/totals")

        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["ETag"] == got.headers["ETag"]

    def test_what_cannot_be_accepted_is_a_406_problem(self, filled, api):
        response = api.get("/api/v1/states", headers={"Accept": "text/html"})

        assert (response.status_code, response.headers["Content-Type"]) == (406, "application/problem+json")
        assert "Allow" in response.headers

    @pytest.mark.parametrize("accept", ["*/*", "application/json", "application/*;q=0.5, text/html", "text/html, */*"])
    def test_what_can_be_accepted_is_json(self, filled, api, accept):
        assert api.get("/api/v1/states", headers={"Accept": accept}).headers["Content-Type"] == "application/json"


def test_a_question_that_takes_too_long_is_a_504_that_says_so(filled, api):
    api.ask("GET", "/states")
    filled.conn.execute("SAVEPOINT before")
    filled.conn.execute("SET LOCAL statement_timeout = '1ms'")
    keys = [["JFK", f"C{n}"] for n in range(1_000)]

    response = api.ask("POST", QUERY, {"keys": keys, "combine": True, "as_of": 1})
    filled.conn.execute("ROLLBACK TO SAVEPOINT before")

    assert response.status_code == 504
    assert response.json()["detail"] == "the question took longer than one may here; ask for less at a time"


class TestDeprecation:
    @pytest.fixture
    def marked(self, settings):
        settings.TIDEMARK_DEPRECATED = {
            "entries": {"since": "2027-01-31", "sunset": "2027-12-31", "link": "https://example.org/entries"},
            "history": {"since": "2027-01-31"},
        }

    def test_a_route_on_its_way_out_says_since_when_until_when_and_where_to_go(self, filled, api, marked):
        headers = api.ask("GET", "/states/totals/entries").headers

        assert headers["Deprecation"] == "@1801353600"
        assert headers["Sunset"] == "Fri, 31 Dec 2027 00:00:00 GMT"
        assert headers["Link"] == '<https://example.org/entries>; rel="deprecation"; type="text/html"'

    def test_it_says_so_beside_a_link_of_its_own_and_in_a_304_and_a_problem(self, filled, api, marked):
        page = api.ask("GET", "/states/flights_by_carrier/entries?limit=1")
        same = api.ask(
            "GET", "/states/flights_by_carrier/entries?limit=1", headers={"If-None-Match": page.headers["ETag"]}
        )
        wrong = api.ask("GET", "/states/flights_by_carrier/entries?limit=0")

        assert 'rel="next", <https://example.org/entries>' in page.headers["Link"]
        assert (same.status_code, wrong.status_code) == (304, 400)
        assert [response.headers["Deprecation"] for response in (same, wrong)] == ["@1801353600"] * 2

    def test_what_is_not_known_is_not_said(self, filled, api, marked):
        headers = api.ask("GET", "/states/totals/history").headers

        assert "Deprecation" in headers
        assert not {"Sunset", "Link"} & set(headers)

    def test_other_routes_say_nothing(self, filled, api, marked):
        assert "Deprecation" not in api.ask("GET", "/states").headers


class TestRequestId:
    def test_a_problem_carries_the_id_that_the_answer_has(self, filled, api):
        response = api.ask("GET", "/states/nothing", headers={"X-Request-ID": "mine-42"})

        assert response.json()["request_id"] == response.headers["X-Request-ID"] == "mine-42"

    def test_so_does_one_that_no_view_answers(self, db):
        response = Client().get("/api/v1/nothing", headers={"X-Request-ID": "mine-43"})

        assert response.json()["request_id"] == "mine-43"

    def test_a_problem_outside_of_a_request_has_none(self):
        bind_contextvars(request_id="")

        assert "request_id" not in problem(404, "nothing")

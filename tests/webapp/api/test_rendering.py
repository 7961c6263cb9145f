"""What all answers share: compression, methods, formats, time limit, the id of the request."""

import gzip

import orjson
import pytest
from django.test import Client
from structlog.contextvars import bind_contextvars

from tidegauge.webapp.api.problems import problem

LOOKUP = "/states/flights_by_carrier/lookup"
GZIP = {"Accept-Encoding": "gzip"}


class TestCompression:
    def test_a_large_answer_is_compressed_for_clients_that_accept_gzip(self, filled, api):
        plain = api.get("/api/v1/states")
        compressed = api.get("/api/v1/states", headers=GZIP)

        assert compressed.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(compressed.content) == plain.content
        assert "Accept-Encoding" in compressed.headers["Vary"]
        assert compressed.headers["ETag"] == f"W/{plain.headers['ETag']}"

    def test_a_small_answer_is_not(self, filled, api):
        response = api.get("/api/v1/states/totals", headers=GZIP)

        assert 200 < len(response.content) < 1_024  # Django itself packs from 200 on
        assert "Content-Encoding" not in response.headers

    def test_the_etag_of_a_compressed_answer_gets_a_304(self, filled, api):
        etag = api.get("/api/v1/states", headers=GZIP).headers["ETag"]

        assert api.get("/api/v1/states", headers=GZIP | {"If-None-Match": etag}).status_code == 304

    def test_streams_are_not_compressed(self, lasting, api):
        response = api.get("/api/v1/states/flights_by_carrier/export?format=csv", headers=GZIP)

        assert "Content-Encoding" not in response.headers
        assert len(response.getvalue()) > 1_024


class TestCompressedBodies:
    def post(self, api, body, encoding="gzip"):
        return api.ask("POST", LOOKUP, body, headers={"Content-Encoding": encoding})

    def test_a_body_may_be_compressed(self, filled, api):
        response = self.post(api, gzip.compress(orjson.dumps({"keys": [["JFK", "C01"]]})))

        assert response.json()["results"][0]["status"] == "found"

    @pytest.mark.parametrize("body", [b"{}", gzip.compress(b'{"keys": []}')[:-9]], ids=["not gzip", "cut off"])
    def test_a_body_that_is_not_gzip_is_a_400(self, filled, api, body):
        response = self.post(api, body)

        assert response.status_code == 400
        assert "the body is not gzip" in response.json()["detail"]

    def test_another_encoding_is_a_415_that_names_gzip(self, filled, api):
        response = self.post(api, b"{}", "br")

        assert (response.status_code, response.json()["detail"]) == (
            415, "Content-Encoding 'br' is not supported; use gzip",
        )  # fmt: skip

    def test_the_limit_applies_to_the_decompressed_body(self, filled, api, settings):
        settings.TIDEGAUGE_REQUEST_MAX_BYTES = 10_000
        bomb = gzip.compress(b" " * 10_000_000)
        settings.TIDEGAUGE_REQUEST_MAX_BYTES = 20_000

        assert len(bomb) < 20_000
        assert self.post(api, bomb).status_code == 413


class TestMethods:
    def test_another_method_is_a_405_that_names_the_allowed_ones(self, filled, api):
        response = api.delete("/api/v1/states/totals/lookup")

        assert (response.status_code, response.headers["Content-Type"]) == (405, "application/problem+json")
        assert response.headers["Allow"] == "POST, OPTIONS"

    @pytest.mark.parametrize("path", ["/states", "/states/totals/entries", "/lookup"])
    def test_options_names_them_without_a_body(self, filled, api, path):
        response = api.options(f"/api/v1{path}")

        assert (response.status_code, response.content) == (204, b"")
        assert response.headers["Allow"] in ("GET, HEAD, OPTIONS", "GET, POST, HEAD, OPTIONS", "POST, OPTIONS")

    def test_head_has_the_etag_of_get(self, filled, api):
        got, head = api.get("/api/v1/states/totals"), api.head("/api/v1/states/totals")

        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["ETag"] == got.headers["ETag"]

    def test_an_accept_header_without_json_is_a_406_problem(self, filled, api):
        response = api.get("/api/v1/states", headers={"Accept": "text/html"})

        assert (response.status_code, response.headers["Content-Type"]) == (406, "application/problem+json")
        assert "Allow" in response.headers

    @pytest.mark.parametrize("accept", ["*/*", "application/json", "application/*;q=0.5, text/html", "text/html, */*"])
    def test_an_accept_header_with_json_gets_json(self, filled, api, accept):
        assert api.get("/api/v1/states", headers={"Accept": accept}).headers["Content-Type"] == "application/json"


def test_a_request_that_takes_too_long_is_a_504_that_says_so(filled, api):
    api.ask("GET", "/states")
    filled.conn.execute("SAVEPOINT before")
    filled.conn.execute("SET LOCAL statement_timeout = '1ms'")
    keys = [["JFK", f"C{n}"] for n in range(1_000)]

    response = api.ask("POST", LOOKUP, {"keys": keys, "combine": True, "at_txid": 1})
    filled.conn.execute("ROLLBACK TO SAVEPOINT before")

    assert response.status_code == 504
    assert response.json()["detail"] == "the request exceeded the time limit; request less at a time"


class TestRequestId:
    def test_a_problem_carries_the_id_that_the_answer_has(self, filled, api):
        response = api.ask("GET", "/states/nothing", headers={"X-Request-ID": "mine-42"})

        assert response.json()["request_id"] == response.headers["X-Request-ID"] == "mine-42"

    def test_so_does_one_that_no_view_answers(self, db):
        response = Client().get("/api/v1/nothing", headers={"X-Request-ID": "mine-43"})

        assert response.json()["request_id"] == "mine-43"

    def test_a_problem_outside_of_a_request_has_none(self):
        bind_contextvars(request_id="")

        assert "request_id" not in problem("not_found", "nothing")

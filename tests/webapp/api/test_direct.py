"""A request with an API key gets the same answer whether or not it goes past Django's and DRF's work for browsers."""

import gzip

import orjson
import pytest
from django.test import Client

from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.api import direct
from tidegauge.webapp.catalog.visible import UNSEEN

LOOKUP = "/api/v1/states/flights_by_carrier/lookup"
TOGETHER = "/api/v1/lookup"
ASKED = {"keys": [["JFK", "C01"], ["JFK", "none"]]}

# They differ from request to request.
OWN_HEADERS = {"X-Request-ID", "RateLimit"}


@pytest.fixture
def client_with(db):
    """Create an API key; give a client that sends it."""
    authentication.clear_cache()

    def client(scopes=("read",), **options) -> Client:
        return Client(headers={"X-Api-Key": create_api_key("reader", list(scopes), **options)[1]})

    return client


@pytest.fixture
def in_both_ways(monkeypatch):
    """Send a request the direct way and the long way; give both answers without what differs each time."""

    def send(client, path=LOOKUP, body=ASKED, content_type="application/json", **options):
        def answer():
            data = body if isinstance(body, bytes) else orjson.dumps(body)
            response = client.generic("POST", path, data, content_type=content_type, **options)
            headers = {name: value for name, value in response.headers.items() if name not in OWN_HEADERS}
            document = orjson.loads(response.content) if response.content else {}
            document.pop("request_id", None)
            return response.status_code, headers, document

        directly = answer()
        with monkeypatch.context() as patch:
            patch.setattr(direct, "has_api_key", lambda meta: False)
            return directly, answer()

    return send


def test_an_answer(filled, client_with, in_both_ways):
    directly, long = in_both_ways(client_with())

    assert directly == long
    assert (directly[0], len(directly[2]["results"])) == (200, 2)


def test_an_answer_of_several_states(filled, client_with, in_both_ways):
    directly, long = in_both_ways(client_with(), TOGETHER, {"lookups": [{"state": "totals", "keys": [[]]}]})

    assert directly == long
    assert directly[0] == 200


@pytest.mark.parametrize("path", [LOOKUP, TOGETHER])
def test_a_304(filled, client_with, in_both_ways, path):
    client = client_with()
    body = ASKED if path == LOOKUP else {"lookups": [{"state": "flights_by_carrier", **ASKED}]}
    etag = client.post(path, body, content_type="application/json").headers["ETag"]

    directly, long = in_both_ways(client, path, body, headers={"If-None-Match": etag})

    assert directly == long
    assert directly[0] == 304


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (LOOKUP, {"keys": [["JFK"]]}, 400),
        (LOOKUP, {"key": []}, 400),
        (LOOKUP, b"no JSON", 400),
        (LOOKUP, b"", 400),
        (LOOKUP, b'"\xff"', 400),
        (TOGETHER, {"lookups": []}, 400),
        ("/api/v1/states/unknown/lookup", ASKED, 404),
        ("/api/v1/states/unknown/lookup/", ASKED, 404),
        (LOOKUP, ASKED | {"epoch": "other", "min_txid": 99}, 409),
        (LOOKUP, b" " * 20_000, 413),
    ],
)
def test_a_refused_body(filled, client_with, in_both_ways, settings, path, body, status):
    settings.TIDEGAUGE_REQUEST_MAX_BYTES = 10_000

    directly, long = in_both_ways(client_with(), path, body)

    assert directly == long
    assert directly[0] == status


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"content_type": "application/json; charset=utf-8"}, 200),
        ({"content_type": "text/plain"}, 415),
        ({"headers": {"Accept": "application/json"}}, 200),
        ({"headers": {"Accept": "text/html"}}, 406),
        ({"headers": {"Accept-Encoding": "gzip"}}, 200),
        ({"headers": {"Content-Encoding": "br"}}, 415),
        ({"headers": {"Content-Encoding": "gzip"}, "body": gzip.compress(orjson.dumps(ASKED))}, 200),
        ({"headers": {"Host": "elsewhere.example"}}, 400),
    ],
)
def test_other_headers(filled, client_with, in_both_ways, options, status):
    directly, long = in_both_ways(client_with(), **options)

    assert directly == long
    assert directly[0] == status


def test_an_invalid_key(filled, client_with, in_both_ways):
    directly, long = in_both_ways(Client(headers={"X-Api-Key": "tmk_00000000_wrong"}))

    assert directly == long
    assert directly[0] == 401


def test_a_key_without_the_scope(filled, client_with, in_both_ways):
    directly, long = in_both_ways(client_with(["maintain"]))

    assert directly == long
    assert (directly[0], directly[2]["detail"]) == (403, "this API key lacks the scope 'read'; it has maintain")


@pytest.mark.parametrize("options", [{"states": ["totals"]}, {"key_prefix": ["EWR"]}])
def test_a_key_for_other_states_or_keys(filled, client_with, in_both_ways, options):
    directly, long = in_both_ways(client_with(**options))

    assert directly == long
    assert directly[0] == 403


def test_a_restricted_key_and_an_unknown_state(filled, client_with, in_both_ways):
    directly, long = in_both_ways(client_with(key_prefix=["EWR"]), "/api/v1/states/unknown/lookup")

    assert directly == long
    assert (directly[0], directly[2]["detail"]) == (
        404,
        UNSEEN,
    )


def test_a_key_beyond_its_rate(filled, client_with, in_both_ways):
    client = client_with(rate=6, burst=1)
    client.get("/api/v1/states")

    directly, long = in_both_ways(client)

    assert directly == long
    assert directly[0] == 429


def test_an_unexpected_error_is_a_500(filled, client_with, in_both_ways, monkeypatch):
    monkeypatch.setattr("tidegauge.webapp.api.views.lookups.look_up", lambda *args: 1 / 0)
    client = client_with()
    client.raise_request_exception = False

    directly, long = in_both_ways(client)

    assert directly == long
    assert directly[0] == 500


def test_a_request_with_a_key_has_no_session(filled, client_with):
    response = client_with().get("/api/v1/states")

    assert not hasattr(response.wsgi_request, "session")


def test_other_requests_have_a_session(filled, reader, client_with):
    assert hasattr(reader.get("/api/v1/states").wsgi_request, "session")
    assert hasattr(client_with().get("/login").wsgi_request, "session")

"""JSON that is nested so deeply that it could not be written again is a 400, wherever a client may send JSON."""

from urllib.parse import urlencode

import pytest

DEEP = "[" * 900 + "]" * 900
OBJECTS = '{"a":' * 900 + "1" + "}" * 900
STATE = "/states/flights_by_carrier"


@pytest.fixture(params=[DEEP, OBJECTS], ids=["lists", "objects"])
def deep(request) -> str:
    return request.param


def refusal(response) -> str:
    assert response.status_code == 400
    return response.json()["detail"]


@pytest.mark.parametrize("body", ['{"keys": [%s]}', '{"keys": [["JFK", %s]]}', '{"keys": [], "measures": [%s]}', "%s"])
def test_in_a_lookup(filled, api, deep, body):
    assert "nested over 254 levels deep" in refusal(api.ask("POST", f"{STATE}/lookup", (body % deep).encode()))


def test_in_a_lookup_of_several_states(filled, api, deep):
    body = '{"lookups": [{"state": "flights_by_carrier", "keys": [' + deep + "]}]}"

    assert "nested over 254 levels deep" in refusal(api.ask("POST", "/lookup", body.encode()))


@pytest.mark.parametrize(
    ("path", "parameter"), [("/entries", "prefix"), ("/entries", "from"), ("/export", "to"), ("/history", "key")]
)
def test_in_a_parameter(filled, api, path, parameter):
    assert "nested over 254" in refusal(api.ask("GET", f"{STATE}{path}?{urlencode({parameter: DEEP})}"))


def test_what_is_nested_less_is_refused_as_a_key(filled, api):
    body = b'{"keys": [["JFK", ' + b"[" * 250 + b"]" * 250 + b"]]}"

    assert "carrier must be text" in refusal(api.ask("POST", f"{STATE}/lookup", body))


@pytest.mark.parametrize("text", [DEEP, OBJECTS])
def test_in_an_address_of_a_page_it_is_left_out(filled, reader, text):
    asked = urlencode({"after": text, "prefix": text})

    assert reader.get(f"/states/flights_by_carrier/?{asked}").status_code == 200
    assert reader.get(f"/states/flights_by_carrier/key?{urlencode({'key': text})}").status_code in (200, 404)

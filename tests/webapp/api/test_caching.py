"""An answer that depends on an API key or a session is stored by no shared cache, whatever the answer is."""

import pytest
from django.test import Client

VARY = {"Authorization", "X-Api-Key", "Cookie", "Accept-Encoding"}
STATE = "/states/flights_by_carrier"
LOOKUP = ("POST", f"{STATE}/lookup", {"keys": [["JFK", "C01"]]})


def vary(response):
    return {name.strip() for name in response.headers["Vary"].split(",")}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        LOOKUP,
        ("POST", "/lookup", {"lookups": [{"state": "totals", "keys": [[]]}]}),
        ("GET", "/states", None),
        ("GET", f"{STATE}/entries", None),
        ("GET", f"{STATE}/history?key=%5B%22JFK%22,%22C01%22%5D", None),
    ],
)
def test_an_answer_with_an_etag_is_asked_for_again(filled, api, method, path, body):
    answer = api.ask(method, path, body)
    again = api.ask(method, path, body, headers={"If-None-Match": answer.headers["ETag"]})

    assert (answer.status_code, again.status_code) == (200, 304)
    for response in (answer, again):
        assert response.headers["Cache-Control"] == "private, no-cache"
        assert vary(response) >= VARY


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"{STATE}/entries?limit=0", 400),
        ("GET", "/states/nothing", 404),
        ("GET", "/nothing", 404),
        ("POST", f"{STATE}/compaction", 403),
        ("DELETE", "/states", 405),
    ],
)
def test_an_answer_without_one_is_not_stored(filled, api, method, path, status):
    response = api.generic(method, f"/api/v1{path}")

    assert (response.status_code, response.headers["Cache-Control"]) == (status, "no-store")
    assert vary(response) >= VARY


def test_a_refusal_of_a_stranger_is_not_stored(db):
    response = Client().get("/api/v1/states")

    assert (response.status_code, response.headers["Cache-Control"]) == (401, "no-store")
    assert vary(response) >= VARY


def test_an_export_is_not_stored(lasting, api):
    response = api.get(f"/api/v1{STATE}/export?format=csv")
    response.close()

    assert response.headers["Cache-Control"] == "no-store"
    assert vary(response) >= VARY


def test_a_session_gets_the_same(filled, reader):
    response = reader.get("/api/v1/states")

    assert response.headers["Cache-Control"] == "private, no-cache"
    assert vary(response) >= VARY

"""What the page of a state reads is limited as searches of the API are."""

import json
from collections import Counter

import pytest

from tests.webapp.console.dashboard.page_text import text
from tidegauge.webapp.accounts.concurrency import SEARCHES

CARRIERS = "/states/flights_by_carrier/"


SEARCHED = [f"{CARRIERS}?q=JFK", f"{CARRIERS}?order=-flights", f"{CARRIERS}explore?where=flights>1"]


@pytest.fixture
def searching(reader, settings, monkeypatch):
    """The reader has as many searches running as one may."""
    settings.TIDEGAUGE_SEARCHES_EACH = 1
    monkeypatch.setattr(SEARCHES, "_held", Counter({f"user {reader.session['_auth_user_id']}": 1}))


@pytest.mark.parametrize("address", SEARCHED)
def test_searches_of_a_person_are_limited(filled, reader, searching, address):
    refused = reader.get(address)

    assert (refused.status_code, refused["Retry-After"]) == (429, "1")
    assert "Too many at once. You have 1 searches running, which is your limit" in text(refused)
    assert reader.get(address.partition("?")[0]).status_code == 200


@pytest.mark.parametrize("address", SEARCHED)
def test_a_refresh_shows_the_reason_and_is_repeated(filled, reader, searching, monkeypatch, address):
    refused = reader.get(address, headers={"HX-Request": "true"})
    monkeypatch.setattr(SEARCHES, "_held", Counter())
    again = reader.get(f"{address}&v={json.loads(refused.context['poll'])['v']}", headers={"HX-Request": "true"})

    assert refused.status_code == 200
    assert "Too many at once." in text(refused)
    assert "Too many at once." not in text(again)


@pytest.mark.parametrize("address", SEARCHED)
def test_all_together_are_limited(filled, reader, settings, address):
    settings.TIDEGAUGE_SEARCHES = 0

    refused = reader.get(address)

    assert (refused.status_code, refused["Retry-After"]) == (503, "1")
    assert "Too many at once. This process has 0 searches running" in text(refused)


def test_the_charts_of_the_explorer_say_when_to_ask_again(filled, reader, searching):
    refused = reader.get("/states/flights_by_hour/explore/series")

    assert (refused.status_code, refused["Retry-After"]) == (429, "1")
    assert refused.json()["detail"].startswith("you have 1 searches running")


def test_a_state_that_is_too_large_is_not_sorted(filled, reader, settings):
    settings.TIDEGAUGE_SORT_MAX_KEYS = 59

    page = reader.get(CARRIERS)
    assert "No top keys: state 'flights_by_carrier': to sort by a measure" in text(page)
    assert len(page.context["entries"].entries) == 25
    assert "Not available. State 'flights_by_carrier': to sort" in text(reader.get(f"{CARRIERS}?order=-flights"))
    assert "Top keys" in text(reader.get(f"{CARRIERS}?prefix=JFK"))

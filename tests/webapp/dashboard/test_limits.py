"""What the page of a state reads is limited as searches of the API are."""

from collections import Counter

import pytest

from tests.webapp.dashboard.page_text import text
from webapp.accounts.concurrency import SEARCHES

CARRIERS = "/states/flights_by_carrier/"


@pytest.mark.parametrize("asked", ["q=JFK", "order=-flights", "where=flights>1"])
def test_searches_of_a_person_are_limited(filled, reader, django_user_model, settings, monkeypatch, asked):
    settings.TIDEMARK_SEARCHES_EACH = 1
    user = django_user_model.objects.get(pk=reader.session["_auth_user_id"])
    monkeypatch.setattr(SEARCHES, "_held", Counter({f"user {user.pk}": 1}))

    refused = text(reader.get(f"{CARRIERS}?{asked}"))

    assert "you have 1 searches under way, your limit" in refused.lower()
    assert "Not available" not in text(reader.get(CARRIERS))


def test_a_state_that_is_too_large_is_not_sorted(filled, reader, settings):
    settings.TIDEMARK_SORT_MAX_KEYS = 59

    page = reader.get(CARRIERS)
    assert "No top keys: state 'flights_by_carrier': to sort by a measure" in text(page)
    assert len(page.context["entries"].entries) == 25
    assert "Not available. State 'flights_by_carrier': to sort" in text(reader.get(f"{CARRIERS}?order=-flights"))
    assert "Top keys" in text(reader.get(f"{CARRIERS}?prefix=JFK"))

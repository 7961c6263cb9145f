"""Bodies and query parameters: what is absent, what is null, what is read at each request."""

import pytest
from rest_framework.exceptions import ParseError

from tidegauge.webapp.api.parameters import EntriesParameters, RunsParameters
from tidegauge.webapp.api.requests import Lookup, When, read_lookup


def test_null_is_as_good_as_absent_except_for_keys_and_combine(settings):
    settings.TIDEGAUGE_MAX_WAIT_MS = 7

    body = {"keys": [1], "measures": None, "at_txid": None, "min_txid": None, "wait_ms": None}

    assert read_lookup("pages", body) == read_lookup("pages", {"keys": [1]}) == (Lookup("pages", [1]), When(wait_ms=7))
    for name in ("keys", "combine"):
        with pytest.raises(ParseError, match=f"{name} must be"):
            read_lookup("pages", {"keys": [1]} | {name: None})


def test_limits_follow_the_settings_at_each_request(settings):
    settings.TIDEGAUGE_LOOKUP_MAX_KEYS = 1
    assert read_lookup("pages", {"keys": [1]})

    settings.TIDEGAUGE_LOOKUP_MAX_KEYS = 0
    with pytest.raises(ParseError, match="1 keys are over the limit of 0"):
        read_lookup("pages", {"keys": [1]})


def test_parameters_are_read_by_type():
    asked = EntriesParameters.read({"prefix": '["JFK"]', "from": "A", "measures": "a,b", "at_txid": "7"})

    assert asked == {"prefix": ["JFK"], "from": "A", "measures": ["a", "b"], "at_txid": 7}


def test_an_empty_filter_counts_as_absent():
    assert RunsParameters.read({"kind": "", "state": ""}) == {"limit": 50, "kind": "", "state": ""}

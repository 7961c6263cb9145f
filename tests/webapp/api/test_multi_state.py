"""Lookups in several states of one pipeline, at one batch."""

import pytest

from tests.webapp.api.states import add_state
from tests.webapp.redis_views import redis_views
from tidegauge.state_backends import Catalog, Count, StateSpec

KEYS = {"keys": [["JFK", "C01"]], "measures": ["flights"]}


def ask(api, *lookups, **when):
    return api.ask("POST", "/lookup", {"lookups": list(lookups), **when})


OF_CARRIER = {"state": "flights_by_carrier", **KEYS}
OF_TOTALS = {"state": "totals", "keys": [[]]}


def test_all_are_answered_at_one_batch_in_the_order_asked(filled, api):
    answer = ask(api, OF_TOTALS, OF_CARRIER, OF_CARRIER | {"combine": True}).json()

    assert (answer["txid"], answer["batch_time"] is None) == (2, False)
    assert [each["state"] for each in answer["answers"]] == ["totals", "flights_by_carrier", "flights_by_carrier"]
    assert answer["answers"][0]["results"][0]["value"] == {"flights": 6130}
    assert answer["answers"][1]["results"][0]["value"] == {"flights": 99}
    assert answer["answers"][2]["combined"]["value"] == {"flights": 99}


def test_all_are_answered_as_of_one_earlier_batch(filled, api):
    filled.commit({("JFK", "C01"): 1})

    answer = ask(api, OF_TOTALS, OF_CARRIER, at_txid=2).json()

    assert answer["txid"] == 2
    assert answer["answers"][0]["results"][0]["value"] == {"flights": 6130}


def test_a_batch_is_waited_for(filled, api, while_waiting):
    while_waiting(lambda: filled.commit({("JFK", "C01"): 1}))

    reached, missed = ask(api, OF_TOTALS, min_txid=3), ask(api, OF_TOTALS, min_txid=9, wait_ms=10)

    assert (reached.json()["txid"], missed.status_code, missed.json()["txid"]) == (3, 409, 3)


def test_states_of_two_pipelines_are_refused(filled, api):
    Catalog(filled.conn).register_pipeline("other", spout="opaque", description="")
    add_state(filled.conn, StateSpec("elsewhere", measures={"n": Count()}), {(): {"n": 1}}, pipeline="other")

    response = ask(api, OF_TOTALS, {"state": "elsewhere", "keys": [[]]})

    assert response.status_code == 400
    assert "'flights'" in response.json()["detail"]
    assert "'other'" in response.json()["detail"]


def test_a_state_in_redis_and_one_in_postgresql_are_answered_at_one_batch(api, connection):
    with redis_views(connection) as views:
        views.commit({"home": 4})
        views.commit({"home": 1})

        of_page = {"state": views.name, "keys": ["home"], "measures": ["views"]}
        answer = ask(api, of_page, {"state": views.total.name, "keys": [[]]}).json()

    assert answer["txid"] == 2
    assert [each["results"][0]["value"] for each in answer["answers"]] == [{"views": 5}, {"views": 5}]


def test_a_wrong_key_names_its_lookup_and_its_index(filled, api):
    response = ask(api, OF_TOTALS, {"state": "flights_by_carrier", "keys": [["JFK", "AA"], ["JFK"]]})

    problem = response.json()
    assert (response.status_code, problem["lookup"], problem["index"]) == (400, 1, 1)
    assert problem["detail"].startswith("lookup 1: key 1: expected 2 parts")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ([], "the body must be an object"),
        ({}, "lookups must be a list of 1 to 20 lookups"),
        ({"lookups": []}, "lookups must be a list of 1 to 20 lookups"),
        ({"lookups": [OF_TOTALS] * 21}, "lookups must be a list of 1 to 20 lookups"),
        ({"lookups": [{"keys": [[]]}]}, "lookup 0: state must be the name of a state"),
        ({"lookups": [OF_TOTALS, "totals"]}, "lookup 1: the body must be an object"),
        ({"lookups": [OF_TOTALS | {"at_txid": 1}]}, "lookup 0: unknown member 'at_txid'"),
        ({"lookups": [{"state": "totals", "keys": 3}]}, "lookup 0: keys must be a list"),
        ({"lookups": [OF_TOTALS], "wait": 1}, "unknown member 'wait'"),
    ],
)
def test_a_body_that_does_not_fit_is_a_400_that_says_why(filled, api, body, why):
    response = api.ask("POST", "/lookup", body)

    assert response.status_code == 400
    assert why in response.json()["detail"]


def test_keys_are_counted_over_all_queries(filled, api, settings):
    settings.TIDEGAUGE_LOOKUP_MAX_KEYS = 2

    response = ask(api, OF_TOTALS, OF_TOTALS, OF_TOTALS)

    assert response.json()["detail"].startswith("3 keys are over the limit of 2")


def test_an_unknown_state_is_a_404(filled, api):
    assert ask(api, OF_TOTALS, {"state": "flihgts", "keys": []}).status_code == 404

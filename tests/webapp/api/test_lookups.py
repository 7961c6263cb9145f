from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from django.db import connection as django_connection
from django.test.utils import CaptureQueriesContext

from tests.webapp.api.states import add_state
from tests.webapp.flights import BY_CARRIER, BY_HOUR, SPECS, TOTALS
from tidegauge.state_backends import Catalog, Count, StateSpec
from tidegauge.webapp.catalog import readers

LOOKUP = "/states/flights_by_carrier/lookup"

GUARANTEES = {spec.name: "exactly once" for spec in SPECS}

RIGHT = {"flights_by_carrier": ["JFK", "C01"], "flights_by_hour": ["2013-01-01T10:00:00Z", "JFK"], "totals": []}


def query(api, keys, state="flights_by_carrier", **body):
    return api.ask("POST", f"/states/{state}/lookup", {"keys": keys, **body})


def let_time_pass(conn):
    conn.execute("UPDATE tidegauge_state.flights_by_carrier SET updated_at = updated_at - interval '401 days'")


def test_each_key_is_answered_in_the_order_asked_and_as_often(filled, api):
    answer = query(api, [["JFK", "C01"], ["LGA", "ZZ"], ["JFK", "C01"]], measures=["flights"]).json()

    found = {"key": ["JFK", "C01"], "status": "found", "value": {"flights": 99}}
    assert answer["results"] == [found, {"key": ["LGA", "ZZ"], "status": "missing", "value": None}, found]


def test_the_answer_names_its_batch(filled, api):
    answer = query(api, [["EWR", "C00"]]).json()

    assert answer["state"] == "flights_by_carrier"
    assert (answer["txid"], answer["isolation"]) == (2, "committed")
    assert answer["results"][0]["value"] == {"flights": 1100, "mean_delay": 12.5, "max_delay": 1040}


def test_an_open_batch_is_not_seen_until_it_commits(filled, api):
    before = query(api, [["EWR", "C00"], ["LGA", "NEW"]]).json()

    filled.open({("EWR", "C00"): 5, ("LGA", "NEW"): 1})

    assert query(api, [["EWR", "C00"], ["LGA", "NEW"]]).json() == before


def test_a_global_state_has_the_empty_key(filled, api):
    answer = query(api, [[]], state="totals").json()

    assert answer["results"] == [{"key": [], "status": "found", "value": {"flights": 6130}}]


def test_a_key_past_its_ttl_is_expired_and_not_missing(filled, api):
    let_time_pass(filled.conn)

    results = query(api, [["EWR", "C00"], ["EWR", "??"]]).json()["results"]

    assert [result["status"] for result in results] == ["expired", "missing"]


def test_a_bare_value_stands_for_a_key_of_one_part(filled, api):
    pages = StateSpec("pages", key={"page": "text"}, measures={"views": Count()})
    add_state(filled.conn, pages, {("/a",): {"views": 3}})

    answer = query(api, ["/a", ["/a"]], state="pages").json()

    assert answer["results"] == [{"key": ["/a"], "status": "found", "value": {"views": 3}}] * 2


def test_a_json_state_answers_its_value(filled, api):
    add_state(filled.conn, StateSpec("profiles", key={"id": "bigint"}, value="jsonb"), {(7,): {"a": [1, None]}})

    assert query(api, [7], state="profiles").json()["results"][0]["value"] == {"a": [1, None]}


def test_timestamps_are_iso_text(filled, api):
    answer = query(api, [["2013-01-01T10:00:00Z", "JFK"]], state="flights_by_hour").json()

    assert answer["results"][0]["status"] == "found"


@pytest.mark.parametrize(
    ("state", "wrong", "why"),
    [
        ("flights_by_carrier", ["JFK", 9], "carrier must be text, got 9"),
        ("flights_by_carrier", ["JFK"], "expected 2 parts (origin, carrier), got 1"),
        ("flights_by_carrier", ["JFK", "A", "B"], "expected 2 parts (origin, carrier), got 3"),
        ("flights_by_carrier", "JFK", "expected a list of 2 parts, got 'JFK'"),
        ("flights_by_carrier", {"origin": "JFK"}, "expected a list of 2 parts"),
        ("flights_by_carrier", ["JFK", "x" * 3000], "3003 bytes of text are over the limit of 2048"),
        ("flights_by_carrier", ["JFK", "a\0"], "carrier holds a NUL character"),
        ("flights_by_carrier", ["JFK", None], "carrier must be text, got None"),
        ("flights_by_hour", ["noon", "JFK"], "hour must be timestamptz, got 'noon'"),
        ("totals", ["JFK"], "expected 0 parts (none), got 1"),
    ],
)
def test_a_wrong_key_is_a_400_that_names_its_index_and_why(filled, api, state, wrong, why):
    right = RIGHT[state]

    response = query(api, [right, right, wrong], state=state)

    problem = response.json()
    assert (response.status_code, problem["index"]) == (400, 2)
    assert problem["detail"].startswith("key 2: ")
    assert why in problem["detail"]


def test_an_unknown_state_is_a_404_that_lists_the_existing_ones(filled, api):
    response = query(api, [["JFK", "C01"]], state="flight")

    assert response.status_code == 404
    assert response.json()["detail"] == (
        "state 'flight' does not exist; there are flights_by_carrier, flights_by_hour, totals"
    )


def test_an_unknown_measure_is_a_400_that_lists_the_existing_ones(filled, api):
    response = query(api, [["JFK", "C01"]], measures=["fligths"])

    assert response.status_code == 400
    assert "no measure 'fligths'; there are flights, mean_delay, max_delay" in response.json()["detail"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "the body is not JSON"),
        (b'{"keys": [["\\ud800", "a"]]}', "the body is not JSON"),
        ([["JFK"]], "the body must be an object"),
        ({}, "keys must be a list"),
        ({"keys": "JFK"}, "keys must be a list"),
        ({"keys": [], "measures": "flights"}, "measures must be a list of names"),
        ({"keys": [], "measures": [1]}, "measures must be a list of names"),
        ({"keys": [], "max_txid": 3}, "unknown member 'max_txid'; there are at_time, at_txid, combine, epoch, keys, "),
        ({"keys": [], "combine": 1}, "combine must be true or false"),
        ({"keys": [], "at_txid": True}, "at_txid must be a whole number from 0 to"),
        ({"keys": [], "at_txid": -1}, "at_txid must be a whole number from 0 to"),
        ({"keys": [], "min_txid": 2**63}, "min_txid must be a whole number from 0 to"),
        ({"keys": [], "min_txid": 1, "wait_ms": 5001}, "wait_ms must be a whole number from 0 to 5000, got '5001'"),
    ],
)
def test_a_body_that_does_not_fit_is_a_400_that_says_why(filled, api, body, why):
    response = api.ask("POST", LOOKUP, body)

    assert response.status_code == 400
    assert why in response.json()["detail"]


def test_too_many_keys_are_refused(filled, api, settings):
    settings.TIDEGAUGE_LOOKUP_MAX_KEYS = 2

    response = query(api, [["JFK", "C01"]] * 3)

    assert response.status_code == 400
    assert response.json()["detail"] == "3 keys are over the limit of 2; ask for them in several requests"


def test_a_body_that_is_too_large_is_a_413(filled, api, settings):
    settings.TIDEGAUGE_REQUEST_MAX_BYTES = 100

    assert query(api, [["JFK", "x" * 100]]).status_code == 413


def test_another_content_type_is_a_415(filled, api):
    assert api.ask("POST", LOOKUP, b"keys=JFK", content_type="text/plain").status_code == 415


def test_an_accept_header_without_json_is_a_406(filled, api):
    assert api.ask("POST", LOOKUP, {"keys": []}, headers={"Accept": "text/html"}).status_code == 406


def test_a_warm_lookup_makes_one_query_and_none_through_the_orm(filled, api, monkeypatch):
    query(api, [["JFK", "C01"]])
    asked = []
    execute = psycopg.Cursor.execute

    def record(cursor, statement, *args, **options):
        asked.append(statement)
        return execute(cursor, statement, *args, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", record)
    with CaptureQueriesContext(django_connection) as through_django:
        query(api, [["JFK", "C01"]])

    assert (len(asked), len(through_django)) == (1, 0)


def test_a_measure_that_was_added_is_served_within_a_second(filled, api, monkeypatch):
    query(api, [["JFK", "C01"]])
    held = Catalog(filled.conn).get("totals")
    grown = StateSpec("totals", measures={**held.measures, "late": Count("dep_delay > 0")})
    query(api, [[]], state="totals")
    Catalog(filled.conn).register_states("flights", [grown], {"totals": "exactly once"})
    monkeypatch.setattr(readers, "CHECK_SECONDS", 0)

    assert query(api, [[]], state="totals").json()["results"][0]["value"] == {"flights": 6130, "late": 0}


def test_the_ttl_of_a_state_is_in_seconds(filled, api):
    assert api.ask("GET", "/states/flights_by_carrier").json()["ttl_seconds"] == timedelta(days=400).total_seconds()


class TestStatesThatStandStill:
    """A release without the state, or one that was rolled back and lacks a measure."""

    def test_a_state_that_is_no_longer_fed_says_so_in_every_answer(self, filled, api):
        Catalog(filled.conn).register_states("flights", [BY_HOUR, TOTALS], GUARANTEES)

        answer = query(api, [["JFK", "C01"]]).json()
        queries = [{"state": "totals", "keys": [[]]}, {"state": "flights_by_carrier", "keys": []}]
        together = api.ask("POST", "/lookup", {"lookups": queries}).json()

        assert (answer["fed"], answer["last_fed_txid"]) == (False, 2)
        assert "fed" not in query(api, [[]], state="totals").json()
        assert [each.get("fed") for each in together["answers"]] == [None, False]
        document = api.ask("GET", "/states/flights_by_carrier").json()
        assert (document["fed"], document["last_fed_txid"]) == (False, 2)

    def test_a_measure_that_is_no_longer_fed_says_so(self, filled, api):
        grown = replace(TOTALS, measures={**TOTALS.measures, "late": Count("dep_delay > 0")})
        for release in ([BY_CARRIER, BY_HOUR, grown], SPECS):
            Catalog(filled.conn).register_states("flights", release, GUARANTEES)

        answer = query(api, [[]], state="totals").json()

        assert (answer["fed"], answer["measures_last_fed"]) == (False, {"late": 2})
        assert "last_fed_txid" not in answer
        measures = api.ask("GET", "/states/totals").json()["measures"]
        assert (measures["flights"]["last_fed_txid"], measures["late"]["last_fed_txid"]) == (None, 2)

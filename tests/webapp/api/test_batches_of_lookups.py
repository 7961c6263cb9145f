"""Which batch a lookup is answered at: the one that was waited for, an earlier one, and several states at one."""

import pytest
from django.test import Client

from state_backends import Catalog, Count, StateSpec
from tests.webapp.api.states import add_state
from tests.webapp.redis_views import redis_views
from webapp.api import lookups

QUERY = "/states/flights_by_carrier/query"
KEYS = {"keys": [["JFK", "C01"]], "measures": ["flights"]}


def asked(api: Client, **when):
    return api.ask("POST", QUERY, KEYS | when)


@pytest.fixture
def meanwhile(monkeypatch):
    """Have something happen while a request waits, once; returns the pauses that it made."""
    pauses = []

    def arrange(deed=lambda: None):
        def sleep(seconds):
            pauses.append(seconds)
            if len(pauses) == 1:
                deed()

        monkeypatch.setattr(lookups, "sleep", sleep)
        return pauses

    return arrange


class TestMinTxid:
    def test_a_batch_that_is_committed_is_not_waited_for(self, filled, api, meanwhile):
        pauses = meanwhile()

        response = asked(api, min_txid=2)

        assert (response.status_code, response.json()["txid"], pauses) == (200, 2, [])

    def test_a_batch_is_answered_as_soon_as_it_is_committed(self, filled, api, meanwhile):
        pauses = meanwhile(lambda: filled.commit({("JFK", "C01"): 1}))

        answer = asked(api, min_txid=3).json()

        assert (answer["txid"], answer["results"][0]["value"]) == (3, {"flights": 100})
        assert pauses == [lookups.FIRST_PAUSE_SECONDS]

    def test_a_batch_that_does_not_come_is_a_503_that_says_which_there_is(self, filled, api):
        response = asked(api, min_txid=4, wait_ms=30)

        problem = response.json()
        assert (response.status_code, problem["txid"], problem["min_txid"]) == (503, 2, 4)
        assert response.headers["Retry-After"] == "1"
        assert problem["detail"] == (
            "state 'flights_by_carrier': batch 4 was not committed within 30 ms, the newest one is 2; ask again"
        )

    def test_the_server_decides_how_long_one_may_wait(self, filled, api, settings):
        settings.TIDEMARK_MAX_WAIT_MS = 20

        response = asked(api, min_txid=4)

        assert "within 20 ms" in response.json()["detail"]
        assert asked(api, min_txid=2, wait_ms=21).status_code == 400

    def test_pauses_grow_up_to_a_tenth_of_a_second(self, filled, api, meanwhile, settings):
        settings.TIDEMARK_MAX_WAIT_MS = 100
        pauses = meanwhile()

        asked(api, min_txid=4)

        assert pauses[0] < pauses[1] < pauses[2] < pauses[8]
        assert max(pauses) <= lookups.LONGEST_PAUSE_SECONDS

    def test_of_a_state_in_redis_the_published_batch_counts(self, api, connection):
        with redis_views(connection) as views:
            views.commit({"home": 4})
            batch = views.begin()
            views.write(batch, {"home": 1})
            views.ledger.commit(batch)
            path, body = f"/states/{views.name}/query", {"keys": [["home"]], "min_txid": 2, "wait_ms": 20}

            before = api.ask("POST", path, body)
            views.backing.publish(2)
            after = api.ask("POST", path, body)

        assert (before.status_code, before.json()["txid"]) == (503, 1)
        assert (after.status_code, after.json()["txid"]) == (200, 2)


class TestAsOf:
    def test_an_earlier_batch_is_told_from_the_changelog(self, filled, api):
        filled.commit({("JFK", "C01"): 1})
        filled.commit({("JFK", "C01"): 1})

        answers = [asked(api, as_of=txid).json() for txid in (1, 2, 3, 4)]

        assert [(answer["txid"], answer["results"][0]["value"]["flights"]) for answer in answers] == [
            (1, 99), (2, 99), (3, 100), (4, 101),
        ]  # fmt: skip

    def test_a_batch_that_is_not_committed_yet_is_a_409_that_says_which_is(self, filled, api):
        response = asked(api, as_of=3)

        assert (response.status_code, response.json()["committed_txid"]) == (409, 2)

    def test_a_batch_out_of_reach_is_a_410_that_says_from_when_on_one_can_ask(self, filled, api):
        for _ in range(3):
            filled.commit({("JFK", "C01"): 1})

        response = api.ask("POST", "/states/totals/query", {"keys": [[]], "as_of": 1})

        assert (response.status_code, response.json()["oldest_txid"]) == (410, 4)

    def test_a_batch_may_be_waited_for_and_then_asked_about(self, filled, api, meanwhile):
        meanwhile(lambda: filled.commit({("JFK", "C01"): 1}))

        answer = asked(api, min_txid=3, as_of=3).json()

        assert (answer["txid"], answer["results"][0]["value"]["flights"]) == (3, 100)


class TestCombine:
    def test_many_keys_are_folded_into_one_value(self, filled, api):
        keys = [["JFK", "C01"], ["JFK", "C02"], ["JFK", "ZZ"], ["JFK", "C01"]]

        answer = api.ask("POST", QUERY, {"keys": keys, "combine": True, "measures": ["flights", "max_delay"]}).json()

        assert answer["combined"] == {
            "keys": 2, "missing": 1, "expired": 0, "value": {"flights": 99 + 98, "max_delay": 139},
        }  # fmt: skip
        assert "results" not in answer

    def test_it_may_be_asked_of_an_earlier_batch(self, filled, api):
        filled.commit({("JFK", "C01"): 5})

        body = {"keys": [["JFK", "C01"]], "combine": True, "as_of": 2}

        assert api.ask("POST", QUERY, body).json()["combined"]["value"]["flights"] == 99

    def test_json_values_are_not_folded(self, filled, api):
        add_state(filled.conn, StateSpec("profiles", key={"id": "bigint"}, value="jsonb"), {(7,): {"a": [1, None]}})

        response = api.ask("POST", "/states/profiles/query", {"keys": [7], "combine": True})

        assert response.status_code == 400
        assert "holds JSON values, which cannot be folded" in response.json()["detail"]


def together(api, *queries, **when):
    return api.ask("POST", "/query", {"queries": list(queries), **when})


OF_CARRIER = {"state": "flights_by_carrier", **KEYS}
OF_TOTALS = {"state": "totals", "keys": [[]]}


class TestSeveralStates:
    def test_all_are_answered_at_one_batch_in_the_order_asked(self, filled, api):
        answer = together(api, OF_TOTALS, OF_CARRIER, OF_CARRIER | {"combine": True}).json()

        assert (answer["txid"], answer["as_of"] is None) == (2, False)
        assert [told["state"] for told in answer["answers"]] == ["totals", "flights_by_carrier", "flights_by_carrier"]
        assert answer["answers"][0]["results"][0]["value"] == {"flights": 6130}
        assert answer["answers"][1]["results"][0]["value"] == {"flights": 99}
        assert answer["answers"][2]["combined"]["value"] == {"flights": 99}

    def test_all_are_answered_as_of_one_earlier_batch(self, filled, api):
        filled.commit({("JFK", "C01"): 1})

        answer = together(api, OF_TOTALS, OF_CARRIER, as_of=2).json()

        assert answer["txid"] == 2
        assert answer["answers"][0]["results"][0]["value"] == {"flights": 6130}

    def test_a_batch_is_waited_for(self, filled, api, meanwhile):
        meanwhile(lambda: filled.commit({("JFK", "C01"): 1}))

        reached, missed = together(api, OF_TOTALS, min_txid=3), together(api, OF_TOTALS, min_txid=9, wait_ms=10)

        assert (reached.json()["txid"], missed.status_code, missed.json()["txid"]) == (3, 503, 3)

    def test_states_of_two_pipelines_are_refused(self, filled, api):
        Catalog(filled.conn).register_pipeline("other", spout="opaque", description="")
        add_state(filled.conn, StateSpec("elsewhere", measures={"n": Count()}), {(): {"n": 1}}, pipeline="other")

        response = together(api, OF_TOTALS, {"state": "elsewhere", "keys": [[]]})

        assert response.status_code == 400
        assert "'flights'" in response.json()["detail"]
        assert "'other'" in response.json()["detail"]

    def test_a_state_in_redis_and_one_in_postgresql_are_answered_at_one_batch(self, api, connection):
        with redis_views(connection) as views:
            views.commit({"home": 4})
            views.commit({"home": 1})

            of_page = {"state": views.name, "keys": ["home"], "measures": ["views"]}
            answer = together(api, of_page, {"state": views.total.name, "keys": [[]]}).json()

        assert answer["txid"] == 2
        assert [told["results"][0]["value"] for told in answer["answers"]] == [{"views": 5}, {"views": 5}]

    def test_a_wrong_key_names_its_query_and_its_index(self, filled, api):
        response = together(api, OF_TOTALS, {"state": "flights_by_carrier", "keys": [["JFK", "AA"], ["JFK"]]})

        problem = response.json()
        assert (response.status_code, problem["query"], problem["index"]) == (400, 1, 1)
        assert problem["detail"].startswith("query 1: key 1: expected 2 parts")

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            ([], "the body must be an object"),
            ({}, "queries must be a list of 1 to 20 queries"),
            ({"queries": []}, "queries must be a list of 1 to 20 queries"),
            ({"queries": [OF_TOTALS] * 21}, "queries must be a list of 1 to 20 queries"),
            ({"queries": [{"keys": [[]]}]}, "query 0: state must be the name of one"),
            ({"queries": [OF_TOTALS, "totals"]}, "query 1: the body must be an object"),
            ({"queries": [OF_TOTALS | {"as_of": 1}]}, "query 0: unknown member 'as_of'"),
            ({"queries": [{"state": "totals", "keys": 3}]}, "query 0: keys must be a list"),
            ({"queries": [OF_TOTALS], "wait": 1}, "unknown member 'wait'"),
        ],
    )
    def test_a_body_that_does_not_fit_is_a_400_that_says_why(self, filled, api, body, why):
        response = api.ask("POST", "/query", body)

        assert response.status_code == 400
        assert why in response.json()["detail"]

    def test_keys_are_counted_over_all_queries(self, filled, api, settings):
        settings.TIDEMARK_LOOKUP_MAX_KEYS = 2

        response = together(api, OF_TOTALS, OF_TOTALS, OF_TOTALS)

        assert response.json()["detail"].startswith("3 keys are over the limit of 2")

    def test_an_unknown_state_is_a_404(self, filled, api):
        assert together(api, OF_TOTALS, {"state": "flihgts", "keys": []}).status_code == 404

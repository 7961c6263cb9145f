import pytest

from state_backends.journal.dead_letters import DeadLetter


def test_states_are_listed_with_schema_size_and_freshness(filled, api):
    states = {state["name"]: state for state in api.ask("GET", "/states").json()["states"]}

    assert list(states) == ["flights_by_carrier", "flights_by_hour", "totals"]
    by_carrier = states["flights_by_carrier"]
    assert by_carrier["key"] == {"origin": "text", "carrier": "text"}
    assert (by_carrier["keys_estimate"], by_carrier["txid"], by_carrier["kind"]) == (60, 2, "opaque")


def test_one_state_is_the_listed_one(filled, api):
    listed = api.ask("GET", "/states").json()["states"]

    assert api.ask("GET", "/states/totals").json() == listed[2]


def test_pipelines_are_listed_with_status_guarantee_and_lag(filled, api):
    (pipeline,) = api.ask("GET", "/pipelines").json()["pipelines"]

    assert (pipeline["name"], pipeline["status"], pipeline["guarantee"]) == ("flights", "running", "exactly once")
    assert (pipeline["committed_txid"], pipeline["lag_seconds"]) == (2, 0)
    assert api.ask("GET", "/pipelines/flights").json()["name"] == "flights"


def test_batches_come_newest_first(filled, api):
    filled.open({("JFK", "C01"): 1}, [DeadLetter("a.jsonl", "{", "malformed", 3)])

    batches = api.ask("GET", "/pipelines/flights/batches?limit=2").json()["batches"]

    assert [(batch["txid"], batch["status"], batch["rows_in"]) for batch in batches] == [
        (3, "open", None),
        (2, "committed", 1000),
    ]


@pytest.mark.parametrize("limit", ["0", "501", "many", ""])
def test_a_limit_out_of_range_is_a_400(filled, api, limit):
    response = api.ask("GET", f"/pipelines/flights/batches?limit={limit}")

    assert response.status_code == 400
    assert f"got {limit!r}" in response.json()["detail"]


@pytest.mark.parametrize("path", ["/pipelines/flihgts", "/pipelines/flihgts/batches", "/states/flihgts"])
def test_an_unknown_name_is_a_404_that_names_those_there_are(filled, api, path):
    response = api.ask("GET", path)

    assert response.status_code == 404
    assert "flights" in response.json()["detail"]

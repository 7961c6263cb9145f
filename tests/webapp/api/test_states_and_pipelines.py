from datetime import UTC, datetime, timedelta

import pytest

from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger import driver_status
from tidegauge.state_backends.ledger.batch import record_metrics


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


def test_a_batch_has_its_quality_figures_and_measurements(filled, api):
    watermark = datetime(2013, 1, 1, 10, tzinfo=UTC)
    spread = {"totals": {"tasks": 2, "largest": 1}}
    batch = filled.commit({("JFK", "C01"): 1}, late=4, dropped=3, tasks=spread, watermark=watermark)
    measured = {"duration_ms": {"addBatch": 12}, "input_rows": 1, "processed_rows_per_second": 83.5}
    record_metrics(filled.conn, batch, measured)

    document, _ = api.ask("GET", "/pipelines/flights/batches?limit=2").json()["batches"]

    assert (document["late"], document["dropped"], document["tasks"], document["metrics"]) == (4, 3, spread, measured)
    assert datetime.fromisoformat(document["watermark"]) == watermark
    pipeline = api.ask("GET", "/pipelines/flights").json()
    assert (pipeline["late"], pipeline["dropped"], pipeline["dead_letters"]) == (4, 3, 0)


def test_a_driver_that_restarts_says_why_and_when_it_tries_again(filled, api):
    at = datetime.now(UTC) + timedelta(seconds=30)
    filled.fail("no disk", 3, at)

    pipeline = api.ask("GET", "/pipelines/flights").json()

    assert (pipeline["status"], pipeline["message"]) == ("restarting", "no disk")
    assert (pipeline["failures"], pipeline["max_failures"]) == (3, 8)
    assert datetime.fromisoformat(pipeline["next_try_at"]) == at


class TestPause:
    def test_a_pause_is_recorded_with_its_requester_and_resumed(self, filled, keeper):
        paused = keeper.ask("POST", "/pipelines/flights/pause")
        resumed = keeper.ask("POST", "/pipelines/flights/resume")

        assert (paused.status_code, resumed.status_code) == (202, 202)
        assert [(answer.json()["wanted"], answer.json()["wanted_by"]) for answer in (paused, resumed)] == [
            ("paused", "API key keeper"),
            ("running", "API key keeper"),
        ]
        assert not driver_status.read_desired_state(filled.conn, "flights").paused

    def test_one_that_is_sent_again_with_its_key_pauses_no_pipeline_that_was_resumed_meanwhile(self, filled, keeper):
        pause = "/pipelines/flights/pause"
        keeper.ask("POST", pause, headers={"Idempotency-Key": "first"})
        keeper.ask("POST", "/pipelines/flights/resume")

        again = keeper.ask("POST", pause, headers={"Idempotency-Key": "first"})
        assert (again.status_code, again.headers["Idempotent-Replayed"]) == (202, "true")
        assert again.json()["wanted"] == "running"

        other = keeper.ask("POST", "/pipelines/flights/resume", headers={"Idempotency-Key": "first"})
        second = keeper.ask("POST", pause, headers={"Idempotency-Key": "second"})
        assert (other.status_code, second.json()["wanted"]) == (422, "paused")
        assert "Idempotent-Replayed" not in second.headers

    def test_one_that_was_refused_may_be_sent_again(self, filled, keeper):
        missing, there = "/pipelines/flihgts/pause", "/pipelines/flights/pause"

        answers = [keeper.ask("POST", path, headers={"Idempotency-Key": "once"}) for path in (missing, there)]

        assert [answer.status_code for answer in answers] == [404, 202]

    @pytest.mark.parametrize("act", ["pause", "resume"])
    def test_a_key_that_may_only_read_is_refused(self, filled, api, act):
        response = api.ask("POST", f"/pipelines/flights/{act}")

        assert response.status_code == 403
        assert driver_status.read_desired_state(filled.conn, "flights").since is None

    @pytest.mark.parametrize("act", ["pause", "resume"])
    def test_an_unknown_pipeline_is_a_404_that_lists_the_existing_ones(self, filled, keeper, act):
        response = keeper.ask("POST", f"/pipelines/flihgts/{act}")

        assert response.status_code == 404
        assert "there are flights" in response.json()["detail"]


@pytest.mark.parametrize("limit", ["0", "501", "many", ""])
def test_a_limit_out_of_range_is_a_400(filled, api, limit):
    response = api.ask("GET", f"/pipelines/flights/batches?limit={limit}")

    assert response.status_code == 400
    assert f"got {limit!r}" in response.json()["detail"]


@pytest.mark.parametrize("path", ["/pipelines/flihgts", "/pipelines/flihgts/batches", "/states/flihgts"])
def test_an_unknown_name_is_a_404_that_lists_the_existing_ones(filled, api, path):
    response = api.ask("GET", path)

    assert response.status_code == 404
    assert "flights" in response.json()["detail"]

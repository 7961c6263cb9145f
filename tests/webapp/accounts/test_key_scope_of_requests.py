"""Whether a confined key stays confined, whatever it asks the API for."""

import pytest
from django.test import Client

from tests.webapp.committed_flights import committed_flights
from webapp.accounts.services import create_api_key
from webapp.states.models import MaintenanceRun

API = "/api/v1"
STATE, OTHER, PIPELINE = "flights_by_carrier", "totals", "flights"


def holder(*scopes: str, **confinement) -> Client:
    return Client(headers={"X-Api-Key": create_api_key("feed", scopes or ["read"], **confinement)[1]})


@pytest.fixture
def of_state(filled) -> Client:
    """A key for one of the pipeline's states."""
    return holder("read", "maintain", states=[STATE])


@pytest.fixture
def of_jfk(filled) -> Client:
    """A key for some keys of any state."""
    return holder(key_prefix=["JFK"])


def query(client, state=STATE, *keys):
    return client.post(f"{API}/states/{state}/query", {"keys": keys}, content_type="application/json")


class TestStates:
    def test_its_own_state_is_served(self, of_state):
        assert query(of_state, STATE, ["EWR", "C00"]).status_code == 200

    @pytest.mark.parametrize("state", [OTHER, "nowhere"])
    def test_others_are_refused_alike_whether_they_exist_or_not(self, of_state, state):
        for answer in (
            query(of_state, state, []),
            of_state.get(f"{API}/states/{state}"),
            of_state.get(f"{API}/states/{state}/entries"),
            of_state.get(f"{API}/states/{state}/history", {"key": "[]"}),
            of_state.post(f"{API}/states/{state}/compaction"),
            of_state.post(f"{API}/states/{state}/expiry"),
        ):
            assert answer.status_code == 403
            assert answer.json()["detail"] == f"this API key is confined to the states {STATE}, not {state!r}"

    def test_one_among_several_is_refused(self, of_state):
        body = {"queries": [{"state": STATE, "keys": [["EWR", "C00"]]}, {"state": OTHER, "keys": [[]]}]}

        assert of_state.post(f"{API}/query", body, content_type="application/json").status_code == 403

    def test_lists_leave_the_others_out(self, of_state):
        MaintenanceRun.objects.create(kind="compaction", state_id=OTHER, requested_by="schedule")

        assert [state["name"] for state in of_state.get(f"{API}/states").json()["states"]] == [STATE]
        assert OTHER not in of_state.get(f"{API}/pipelines").content.decode()
        assert OTHER not in of_state.get(f"{API}/pipelines/{PIPELINE}").content.decode()
        assert OTHER not in of_state.get(f"{API}/pipelines/{PIPELINE}/batches").content.decode()
        assert of_state.get(f"{API}/maintenance").json()["runs"] == []

    def test_a_run_of_another_state_is_neither_seen_nor_called_off(self, of_state):
        run = MaintenanceRun.objects.create(kind="compaction", state_id=OTHER, requested_by="schedule")

        assert of_state.get(f"{API}/maintenance/{run.id}").status_code in (403, 404)
        assert of_state.delete(f"{API}/maintenance/{run.id}").status_code in (403, 404)

    def test_a_pipeline_feeds_others_too_and_is_not_paused(self, of_state):
        assert of_state.post(f"{API}/pipelines/{PIPELINE}/pause").status_code == 403
        assert of_state.post(f"{API}/pipelines/{PIPELINE}/resume").status_code == 403


class TestKeys:
    def test_its_own_keys_are_served(self, of_jfk):
        assert query(of_jfk, STATE, ["JFK", "C00"]).json()["results"][0]["status"] == "found"

    def test_the_first_key_outside_is_named_by_its_index(self, of_jfk):
        answer = query(of_jfk, STATE, ["JFK", "C00"], ["EWR", "C00"])

        assert (answer.status_code, answer.json().get("index", 1)) == (403, 1)
        assert answer.json()["detail"].startswith("key 1: this API key is confined to")

    def test_a_state_whose_keys_cannot_start_so_is_refused(self, of_jfk):
        assert query(of_jfk, OTHER, []).status_code == 403

    def test_entries_are_those_within(self, of_jfk):
        entries = of_jfk.get(f"{API}/states/{STATE}/entries", {"limit": 100}).json()["entries"]

        assert {entry["key"][0] for entry in entries} == {"JFK"}

    @pytest.mark.parametrize("asked", [{"prefix": '["EWR"]'}, {"prefix": '["EWR","C00"]'}])
    def test_a_prefix_outside_is_refused(self, of_jfk, asked):
        assert of_jfk.get(f"{API}/states/{STATE}/entries", asked).status_code == 403

    @pytest.mark.parametrize("asked", [{"from": '["A"]'}, {"order_by": "-flights"}, {"from": '["EWR"]', "to": '["F"]'}])
    def test_no_range_or_order_leads_outside(self, of_jfk, asked):
        answer = of_jfk.get(f"{API}/states/{STATE}/entries", {**asked, "limit": 100})

        assert answer.status_code in (200, 403)
        assert "EWR" not in {entry["key"][0] for entry in answer.json().get("entries", [])}

    def test_a_history_outside_is_refused(self, of_jfk):
        assert of_jfk.get(f"{API}/states/{STATE}/history", {"key": '["EWR","C00"]'}).status_code == 403


@pytest.mark.parametrize("media_type", ["text/csv", "application/x-ndjson"])
def test_a_stream_of_all_entries_is_within(transactional_db, media_type):
    with committed_flights():
        answer = holder(key_prefix=["JFK"]).get(f"{API}/states/{STATE}/entries", headers={"Accept": media_type})
        text = b"".join(answer.streaming_content).decode()

    assert text.count("JFK") == 30
    assert "EWR" not in text

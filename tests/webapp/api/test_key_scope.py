"""A restricted API key: no call shows it a row outside its scope, or the name of another state."""

from urllib.parse import urlencode

import pytest

from tests.webapp.api.checked_client import CheckedClient
from tidegauge.state_backends import Catalog
from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.visible import UNSEEN
from tidegauge.webapp.celery import app
from tidegauge.webapp.maintenance import services

JFK, EWR = ["JFK", "C01"], ["EWR", "C01"]
CARRIER = "/states/flights_by_carrier"
HOUR = "/states/flights_by_hour"


@pytest.fixture(autouse=True)
def quiet_queue(monkeypatch):
    monkeypatch.setattr(app, "send_task", lambda *args, **options: None)


def client(*scopes, **key_scope):
    authentication.clear_cache()
    return CheckedClient(create_api_key("restricted", scopes or ["read"], **key_scope)[1])


@pytest.fixture
def to_state(filled) -> CheckedClient:
    return client("read", "maintain", states=["flights_by_carrier"])


@pytest.fixture
def to_jfk(filled) -> CheckedClient:
    return client(key_prefix=["JFK"])


class TestScopeOfStates:
    @pytest.mark.parametrize("state", ["flights_by_hour", "no_such_state"])
    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("GET", "", None),
            ("POST", "/lookup", {"keys": []}),
            ("GET", "/entries", None),
            ("GET", "/export?format=csv", None),
            ("GET", "/history?key=[]", None),
            ("POST", "/compaction", None),
            ("POST", "/expiry", None),
        ],
    )
    def test_another_state_is_a_403_whether_it_exists_or_not(self, to_state, state, method, path, body):
        response = to_state.ask(method, f"/states/{state}{path}", body)

        assert response.status_code == 403
        assert response.json()["detail"] == (
            f"this API key is restricted to the states flights_by_carrier, not {state!r}"
        )

    def test_its_own_state_is_accessible(self, to_state):
        assert to_state.ask("POST", f"{CARRIER}/lookup", {"keys": [EWR]}).status_code == 200
        assert to_state.ask("GET", f"{CARRIER}/entries").status_code == 200
        assert to_state.ask("POST", f"{CARRIER}/expiry").status_code == 202

    def test_lists_leave_the_others_out(self, to_state):
        states = to_state.ask("GET", "/states").json()["states"]
        (pipeline,) = to_state.ask("GET", "/pipelines").json()["pipelines"]
        batches = to_state.ask("GET", "/pipelines/flights/batches").json()["batches"]

        assert [state["name"] for state in states] == ["flights_by_carrier"]
        assert pipeline["states"] == ["flights_by_carrier"]
        assert to_state.ask("GET", "/pipelines/flights").json()["states"] == ["flights_by_carrier"]
        assert [set(batch["keys_written"]) for batch in batches] == [{"flights_by_carrier"}] * 2

    def test_a_pipeline_of_none_of_its_states_is_a_404(self, to_state, filled):
        Catalog(filled.conn).register_pipeline("other", spout="opaque", description="")

        listed = to_state.ask("GET", "/pipelines").json()["pipelines"]

        assert [pipeline["name"] for pipeline in listed] == ["flights"]
        for path in (
            "/pipelines/other",
            "/pipelines/nothing",
            "/pipelines/other/batches",
            "/pipelines/nothing/batches",
        ):
            response = to_state.ask("GET", path)
            assert (response.status_code, response.json()["detail"]) == (404, "pipeline does not exist")

    def test_a_404_of_its_own_state_lists_no_other_state(self, filled):
        response = client(states=["gone"]).ask("GET", "/states/gone")

        assert (response.status_code, response.json()["detail"]) == (
            404,
            UNSEEN,
        )

    def test_several_states_are_refused_if_one_is_not_its_own(self, to_state):
        own = {"state": "flights_by_carrier", "keys": [EWR]}

        for other in ("totals", "no_such_state"):
            mixed = to_state.ask("POST", "/lookup", {"lookups": [own, {"state": other, "keys": []}]})
            assert mixed.status_code == 403

        assert to_state.ask("POST", "/lookup", {"lookups": [own]}).status_code == 200

    def test_a_pipeline_cannot_be_paused_or_resumed(self, to_state):
        assert to_state.ask("POST", "/pipelines/flights/pause").status_code == 403
        assert to_state.ask("POST", "/pipelines/flights/resume").status_code == 403

    def test_runs_of_other_states_are_a_404(self, to_state):
        own = services.request_maintenance(kind="expiry", state="flights_by_carrier", requested_by="x").id
        other = services.request_maintenance(kind="expiry", state="totals", requested_by="x").id

        listed = to_state.ask("GET", "/maintenance").json()["runs"]

        assert [run["id"] for run in listed] == [own]
        assert to_state.ask("GET", "/maintenance?state=totals").json()["runs"] == []
        assert [to_state.ask("GET", f"/maintenance/{run}").status_code for run in (own, other)] == [200, 404]
        assert to_state.ask("DELETE", f"/maintenance/{other}").status_code == 404
        assert to_state.ask("DELETE", f"/maintenance/{own}").status_code == 202

    def test_it_sees_that_something_failed_but_no_text_about_it(self, to_state, filled):
        filled.fail("key ('EWR', 'C01') of totals is out of range", failures=2)
        run = services.request_maintenance(kind="expiry", state="flights_by_carrier", requested_by="someone")
        MaintenanceRun.objects.filter(pk=run.pk).update(status="failed", error="('EWR', 'C01')")

        pipeline = to_state.ask("GET", "/pipelines/flights").json()
        [batch, *_] = to_state.ask("GET", "/pipelines/flights/batches").json()["batches"]
        [seen] = to_state.ask("GET", "/maintenance").json()["runs"]

        assert (pipeline["failures"], pipeline["message"], pipeline["wanted_by"]) == (2, "", "")
        assert (batch["rows_in"], batch["metrics"]) == (None, {})
        assert (seen["status"], seen["requested_by"]) == ("failed", "")
        assert seen["error"] == "the run has failed; the operators can see why"

    def test_a_repeated_request_shows_no_message_of_the_run(self, to_state):
        first = to_state.ask("POST", f"{CARRIER}/expiry", headers={"Idempotency-Key": "once"}).json()
        MaintenanceRun.objects.update(status="failed", error="totals: key 9 failed")

        again = to_state.ask("POST", f"{CARRIER}/expiry", headers={"Idempotency-Key": "once"}).json()

        assert (again["id"], again["error"]) == (first["id"], "the run has failed; the operators can see why")

    def test_an_unfinished_run_is_a_409_that_does_not_say_who_asked_for_it(self, to_state):
        services.request_maintenance(kind="expiry", state="flights_by_carrier", requested_by="someone")

        refused = to_state.ask("POST", f"{CARRIER}/expiry")

        assert (refused.status_code, "someone" in refused.json()["detail"]) == (409, False)

    def test_a_known_etag_gives_no_access(self, to_state, api):
        etag = api.ask("POST", "/states/totals/lookup", {"keys": [[]]}).headers["ETag"]

        response = to_state.ask("POST", "/states/totals/lookup", {"keys": [[]]}, headers={"If-None-Match": etag})

        assert response.status_code == 403


class TestScopeOfAKeyPrefix:
    def test_a_lookup_of_other_keys_is_a_403_that_names_the_first(self, to_jfk):
        response = to_jfk.ask("POST", f"{CARRIER}/lookup", {"keys": [JFK, EWR]})

        assert (response.status_code, response.json()["index"]) == (403, 1)
        assert to_jfk.ask("POST", f"{CARRIER}/lookup", {"keys": [JFK]}).status_code == 200

    def test_other_keys_cannot_be_combined_or_read_at_an_earlier_batch(self, to_jfk):
        for more in ({"combine": True}, {"at_txid": 1}, {"min_txid": 1}):
            assert to_jfk.ask("POST", f"{CARRIER}/lookup", {"keys": [EWR]} | more).status_code == 403

    def test_one_of_several_queries_for_other_keys_is_a_403(self, to_jfk):
        body = {"lookups": [{"state": "flights_by_carrier", "keys": [keys]} for keys in (JFK, EWR)]}

        assert to_jfk.ask("POST", "/lookup", body).status_code == 403

    def test_a_known_etag_gives_no_access(self, to_jfk, api):
        etag = api.ask("POST", f"{CARRIER}/lookup", {"keys": [EWR]}).headers["ETag"]

        response = to_jfk.ask("POST", f"{CARRIER}/lookup", {"keys": [EWR]}, headers={"If-None-Match": etag})

        assert response.status_code == 403

    def test_its_own_keys_get_a_304_too(self, to_jfk):
        etag = to_jfk.ask("POST", f"{CARRIER}/lookup", {"keys": [JFK]}).headers["ETag"]

        response = to_jfk.ask("POST", f"{CARRIER}/lookup", {"keys": [JFK]}, headers={"If-None-Match": etag})

        assert response.status_code == 304

    @pytest.mark.parametrize("order", [{}, {"order_by": "-flights"}, {"from": '["A"]'}, {"search": "C"}])
    def test_entries_are_its_own_on_every_page(self, to_jfk, order):
        first = to_jfk.ask("GET", f"{CARRIER}/entries?{urlencode({'limit': 20, **order})}").json()
        second = to_jfk.ask("GET", f"{CARRIER}/entries?{urlencode({'limit': 20, 'cursor': first['next']})}").json()

        keys = [entry["key"] for page in (first, second) for entry in page["entries"]]
        assert len(keys) == 30
        assert {origin for origin, _ in keys} == {"JFK"}

    def test_the_cursor_of_another_key_leads_to_its_own_entries_alone(self, to_jfk, api):
        cursor = api.ask("GET", f"{CARRIER}/entries?limit=5").json()["next"]

        entries = to_jfk.ask("GET", f"{CARRIER}/entries?{urlencode({'cursor': cursor})}").json()["entries"]

        assert {entry["key"][0] for entry in entries} == {"JFK"}

    def test_another_prefix_is_refused_and_a_narrower_one_is_not(self, to_jfk):
        other = to_jfk.ask("GET", f"{CARRIER}/entries?prefix=EWR")
        narrower = to_jfk.ask("GET", f"{CARRIER}/entries?" + urlencode({"prefix": '["JFK", "C01"]'}))

        assert other.status_code == 403
        assert [entry["key"] for entry in narrower.json()["entries"]] == [JFK]

    def test_lists_leave_out_states_whose_keys_cannot_have_the_prefix(self, to_jfk, filled):
        services.request_maintenance(kind="expiry", state="totals", requested_by="x")

        states = to_jfk.ask("GET", "/states").json()["states"]
        (pipeline,) = to_jfk.ask("GET", "/pipelines").json()["pipelines"]

        assert [state["name"] for state in states] == pipeline["states"] == ["flights_by_carrier"]
        assert to_jfk.ask("GET", "/maintenance").json()["runs"] == []
        assert to_jfk.ask("GET", "/states/totals").status_code == 404

    def test_a_history_is_of_its_own_keys(self, to_jfk):
        def status(key):
            return to_jfk.ask("GET", f"{CARRIER}/history?{urlencode({'key': key})}").status_code

        assert [status('["JFK", "C01"]'), status('["EWR", "C01"]')] == [200, 403]

    def test_a_state_whose_keys_cannot_have_the_prefix_is_a_404(self, to_jfk):
        assert to_jfk.ask("GET", f"{HOUR}/entries").status_code == 404
        assert to_jfk.ask("POST", f"{HOUR}/lookup", {"keys": []}).status_code == 404
        assert to_jfk.ask("POST", "/states/totals/lookup", {"keys": [[]]}).status_code == 404
        assert to_jfk.ask("GET", "/states/totals/history").status_code == 404
        assert to_jfk.ask("GET", f'{HOUR}/keys?key=["a","b","c"]').status_code == 404
        assert to_jfk.ask("GET", f"{HOUR}/keys?key=a").status_code == 404

    def test_maintenance_is_a_403(self, to_jfk):
        run = services.request_maintenance(kind="expiry", state="flights_by_carrier", requested_by="x").id
        # Such a key cannot be created; the views do not rely on that.
        ApiKey.objects.update(scopes=["read", "maintain"])

        assert to_jfk.ask("POST", f"{CARRIER}/compaction").status_code == 403
        assert to_jfk.ask("POST", "/pipelines/flights/pause").status_code == 403
        assert to_jfk.ask("DELETE", f"/maintenance/{run}").status_code == 403


def test_a_stream_holds_its_own_keys_alone(lasting):
    restricted = client(key_prefix=["JFK"])

    lines = restricted.ask("GET", f"{CARRIER}/export?format=csv").getvalue().decode().splitlines()
    other = restricted.ask("GET", f"{CARRIER}/export?format=csv&prefix=EWR")

    assert len(lines) == 31
    assert {line.partition(",")[0] for line in lines[1:]} == {"JFK"}
    assert other.status_code == 403

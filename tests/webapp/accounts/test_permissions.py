"""What a key scope allows: KeyScope, and requests to the API with a restricted API key."""

from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.webapp.committed_flights import committed_flights
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.webapp.accounts.permissions import KeyScope, OutsideError, key_scope
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog.models import MaintenanceRun

API = "/api/v1"
STATE, OTHER, PIPELINE = "flights_by_carrier", "totals", "flights"

ROUTES = StateSpec("routes", key={"origin": "text", "carrier": "text"}, measures={"flights": Count()})
HOURS = StateSpec("hours", key={"hour": "timestamptz", "origin": "text"}, measures={"flights": Count()})
TOTALS = StateSpec("totals", measures={"flights": Count()})

OF_JFK = KeyScope(key_prefix=("JFK",))


@pytest.mark.django_db
def test_a_request_has_the_key_scope_of_its_api_key():
    key, _ = create_api_key("feed", ["read"], states=["routes"], key_prefix=["JFK"])

    assert key_scope(SimpleNamespace(auth=key)) == KeyScope(frozenset({"routes"}), ("JFK",))


@pytest.mark.django_db
@pytest.mark.parametrize("without_key", [{"auth": None}, {}])
def test_a_session_of_a_person_without_a_restriction_is_unrestricted(without_key):
    scope = key_scope(SimpleNamespace(user=User.objects.create_user("ada"), **without_key))

    scope.check_unrestricted()
    scope.check_whole_state("routes")
    scope.check_keys(ROUTES, [("EWR", "AA")])
    assert scope.is_unrestricted
    assert scope.sees("routes")
    assert scope.prefix_of(ROUTES) == ()
    assert scope.check_prefix(ROUTES, ["EWR"]) == ("EWR",)


class TestStates:
    scope = KeyScope(states=frozenset({"routes", "airlines"}))

    def test_the_key_sees_its_states_and_no_others(self):
        assert [name for name in ("airlines", "routes", "totals") if self.scope.sees(name)] == ["airlines", "routes"]
        self.scope.check_state("routes")

    def test_a_refusal_names_the_state_and_those_of_the_key(self):
        with pytest.raises(OutsideError) as refused:
            self.scope.check_state("totals")

        assert str(refused.value) == "this API key is restricted to the states airlines, routes, not 'totals'"

    @pytest.mark.parametrize(
        "ask",
        [
            lambda scope: scope.prefix_of(TOTALS),
            lambda scope: scope.check_keys(TOTALS, [()]),
            lambda scope: scope.check_prefix(TOTALS, []),
            lambda scope: scope.check_whole_state("totals"),
            lambda scope: scope.check_unrestricted(),
        ],
    )
    def test_every_check_includes_the_state(self, ask):
        with pytest.raises(OutsideError):
            ask(self.scope)

    def test_every_key_of_such_a_state_is_allowed(self):
        self.scope.check_keys(ROUTES, [("EWR", "AA"), ("JFK", "AA")])
        self.scope.check_whole_state("routes")


class TestKeys:
    def test_keys_with_the_prefix_are_allowed(self):
        OF_JFK.check_keys(ROUTES, [("JFK", "AA"), ("JFK", "B6")])

    def test_a_key_outside_is_named_by_its_index_alone(self):
        with pytest.raises(OutsideError) as refused:
            OF_JFK.check_keys(ROUTES, [("JFK", "AA"), ("EWR", "AA")])

        assert refused.value.index == 1
        assert str(refused.value) == 'key 1: this API key is restricted to keys that start with ["JFK"]'

    def test_a_prefix_compares_whole_key_parts(self):
        with pytest.raises(OutsideError, match="key 0"):
            OF_JFK.check_keys(ROUTES, [("JFKX", "AA")])

    def test_key_parts_are_compared_by_value(self):
        noon = KeyScope(key_prefix=("2026-11-20T12:00:00Z",))

        noon.check_keys(HOURS, [HOURS.check_key(["2026-11-20T13:00:00+01:00", "JFK"])])

    @pytest.mark.parametrize("spec", [TOTALS, HOURS])
    def test_a_state_whose_keys_cannot_have_the_prefix_is_refused(self, spec):
        with pytest.raises(OutsideError) as refused:
            OF_JFK.check_keys(spec, [])

        assert str(refused.value) == (
            f'this API key is restricted to keys that start with ["JFK"], and no key of state {spec.name!r} '
            "can have this prefix"
        )

    def test_an_action_on_a_whole_state_is_refused(self):
        with pytest.raises(OutsideError, match="concerns every key"):
            OF_JFK.check_whole_state("routes")


class TestPrefixes:
    @pytest.mark.parametrize(
        ("requested", "used"), [([], ("JFK",)), (["JFK"], ("JFK",)), (["JFK", "AA"], ("JFK", "AA"))]
    )
    def test_the_longer_prefix_is_used(self, requested, used):
        assert OF_JFK.check_prefix(ROUTES, requested) == used

    @pytest.mark.parametrize("requested", [["EWR"], ["EWR", "AA"]])
    def test_another_prefix_is_refused(self, requested):
        with pytest.raises(OutsideError, match="prefix: this API key is restricted"):
            OF_JFK.check_prefix(ROUTES, requested)

    def test_a_prefix_that_does_not_fit_the_state_is_a_key_shape_error(self):
        with pytest.raises(KeyShapeError):
            OF_JFK.check_prefix(ROUTES, ["JFK", "AA", "more"])


class TestTwoParts:
    """A key scope of two key parts: neither of them alone is enough."""

    scope = KeyScope(key_prefix=("JFK", "AA"))

    @pytest.mark.parametrize("requested", [[], ["JFK"], ["JFK", "AA"]])
    def test_a_shorter_prefix_does_not_widen_it(self, requested):
        assert self.scope.check_prefix(ROUTES, requested) == ("JFK", "AA")

    @pytest.mark.parametrize("requested", [["JFK", "B6"], ["EWR", "AA"], ["EWR"]])
    def test_a_prefix_that_differs_in_one_part_is_refused(self, requested):
        with pytest.raises(OutsideError):
            self.scope.check_prefix(ROUTES, requested)

    @pytest.mark.parametrize("key", [("JFK", "B6"), ("EWR", "AA")])
    def test_a_key_that_differs_in_one_part_is_refused(self, key):
        self.scope.check_keys(ROUTES, [("JFK", "AA")])

        with pytest.raises(OutsideError, match="key 1"):
            self.scope.check_keys(ROUTES, [("JFK", "AA"), key])


def test_a_key_for_some_keys_of_one_state_does_not_act_on_the_whole_state():
    scope = KeyScope(frozenset({"routes"}), ("JFK",))

    with pytest.raises(OutsideError, match="concerns every key"):
        scope.check_whole_state("routes")


def test_a_key_for_saved_queries_sees_no_state_of_its_own():
    scope = KeyScope(frozenset({"routes"}), queries=frozenset({"top"}))

    assert not scope.sees("routes")
    assert scope.sees_query("top")
    assert not scope.is_unrestricted
    assert scope.of_reads.sees("routes")
    with pytest.raises(OutsideError, match="restricted to the saved queries top"):
        scope.check_state("routes")


def client_with_key(*scopes: str, **restrictions) -> Client:
    return Client(headers={"X-Api-Key": create_api_key("feed", scopes or ["read"], **restrictions)[1]})


@pytest.fixture
def of_state(filled) -> Client:
    """A key for one of the pipeline's states."""
    return client_with_key("read", "maintain", states=[STATE])


@pytest.fixture
def of_jfk(filled) -> Client:
    """A key for some keys of any state."""
    return client_with_key(key_prefix=["JFK"])


def query(client, state=STATE, *keys):
    return client.post(f"{API}/states/{state}/lookup", {"keys": keys}, content_type="application/json")


class TestRequestsToStates:
    def test_its_own_state_is_served(self, of_state):
        assert query(of_state, STATE, ["EWR", "C00"]).status_code == 200

    @pytest.mark.parametrize("state", [OTHER, "nowhere"])
    def test_others_are_refused_in_the_same_way_whether_they_exist_or_not(self, of_state, state):
        for answer in (
            query(of_state, state, []),
            of_state.get(f"{API}/states/{state}"),
            of_state.get(f"{API}/states/{state}/entries"),
            of_state.get(f"{API}/states/{state}/history", {"key": "[]"}),
            of_state.post(f"{API}/states/{state}/compaction"),
            of_state.post(f"{API}/states/{state}/expiry"),
        ):
            assert answer.status_code == 403
            assert answer.json()["detail"] == f"this API key is restricted to the states {STATE}, not {state!r}"

    def test_a_request_with_one_state_outside_is_refused(self, of_state):
        body = {"lookups": [{"state": STATE, "keys": [["EWR", "C00"]]}, {"state": OTHER, "keys": [[]]}]}

        assert of_state.post(f"{API}/lookup", body, content_type="application/json").status_code == 403

    def test_lists_omit_the_others(self, of_state):
        MaintenanceRun.objects.create(kind="compaction", state_id=OTHER, requested_by="schedule")

        assert [state["name"] for state in of_state.get(f"{API}/states").json()["states"]] == [STATE]
        assert OTHER not in of_state.get(f"{API}/pipelines").content.decode()
        assert OTHER not in of_state.get(f"{API}/pipelines/{PIPELINE}").content.decode()
        assert OTHER not in of_state.get(f"{API}/pipelines/{PIPELINE}/batches").content.decode()
        assert of_state.get(f"{API}/maintenance").json()["runs"] == []

    def test_a_run_of_another_state_is_neither_shown_nor_cancelled(self, of_state):
        run = MaintenanceRun.objects.create(kind="compaction", state_id=OTHER, requested_by="schedule")

        assert of_state.get(f"{API}/maintenance/{run.id}").status_code in (403, 404)
        assert of_state.delete(f"{API}/maintenance/{run.id}").status_code in (403, 404)

    def test_a_pipeline_with_other_states_cannot_be_paused(self, of_state):
        assert of_state.post(f"{API}/pipelines/{PIPELINE}/pause").status_code == 403
        assert of_state.post(f"{API}/pipelines/{PIPELINE}/resume").status_code == 403


class TestRequestsForKeys:
    def test_its_own_keys_are_served(self, of_jfk):
        assert query(of_jfk, STATE, ["JFK", "C00"]).json()["results"][0]["status"] == "found"

    def test_the_first_key_outside_is_named_by_its_index(self, of_jfk):
        answer = query(of_jfk, STATE, ["JFK", "C00"], ["EWR", "C00"])

        assert (answer.status_code, answer.json().get("index", 1)) == (403, 1)
        assert answer.json()["detail"].startswith("key 1: this API key is restricted to")

    def test_a_state_whose_keys_cannot_have_the_prefix_is_refused(self, of_jfk):
        assert query(of_jfk, OTHER, []).status_code == 404

    def test_entries_are_those_with_the_prefix(self, of_jfk):
        entries = of_jfk.get(f"{API}/states/{STATE}/entries", {"limit": 100}).json()["entries"]

        assert {entry["key"][0] for entry in entries} == {"JFK"}

    @pytest.mark.parametrize("asked", [{"prefix": '["EWR"]'}, {"prefix": '["EWR","C00"]'}])
    def test_a_prefix_outside_is_refused(self, of_jfk, asked):
        assert of_jfk.get(f"{API}/states/{STATE}/entries", asked).status_code == 403

    @pytest.mark.parametrize("asked", [{"from": '["A"]'}, {"order_by": "-flights"}, {"from": '["EWR"]', "to": '["F"]'}])
    def test_no_range_or_order_shows_other_keys(self, of_jfk, asked):
        answer = of_jfk.get(f"{API}/states/{STATE}/entries", {**asked, "limit": 100})

        assert answer.status_code in (200, 403)
        assert "EWR" not in {entry["key"][0] for entry in answer.json().get("entries", [])}

    def test_a_prefix_shorter_than_its_own_shows_no_other_keys(self, filled):
        of_one_route = client_with_key(key_prefix=["JFK", "C01"])

        answer = of_one_route.get(f"{API}/states/{STATE}/entries", {"prefix": '["JFK"]', "limit": 100})

        assert [entry["key"] for entry in answer.json()["entries"]] == [["JFK", "C01"]]

    def test_a_history_outside_is_refused(self, of_jfk):
        assert of_jfk.get(f"{API}/states/{STATE}/history", {"key": '["EWR","C00"]'}).status_code == 403


@pytest.mark.parametrize("file_format", ["csv", "ndjson"])
def test_an_export_has_only_keys_with_the_prefix(transactional_db, file_format):
    with committed_flights():
        answer = client_with_key(key_prefix=["JFK"]).get(f"{API}/states/{STATE}/export?format={file_format}")
        text = b"".join(answer.streaming_content).decode()

    assert text.count("JFK") == 30
    assert "EWR" not in text

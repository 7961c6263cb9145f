from types import SimpleNamespace

import pytest

from state_backends import Count, StateSpec
from state_backends.errors import KeyShapeError
from webapp.accounts.permissions import KeyScope, OutsideError, key_scope
from webapp.accounts.services import create_api_key

ROUTES = StateSpec("routes", key={"origin": "text", "carrier": "text"}, measures={"flights": Count()})
HOURS = StateSpec("hours", key={"hour": "timestamptz", "origin": "text"}, measures={"flights": Count()})
TOTALS = StateSpec("totals", measures={"flights": Count()})

OF_JFK = KeyScope(key_prefix=("JFK",))


@pytest.mark.django_db
def test_an_api_key_says_what_a_request_is_confined_to():
    key, _ = create_api_key("feed", ["read"], states=["routes"], key_prefix=["JFK"])

    assert key_scope(SimpleNamespace(auth=key)) == KeyScope(frozenset({"routes"}), ("JFK",))


@pytest.mark.parametrize("request_", [SimpleNamespace(auth=None), SimpleNamespace()])
def test_a_session_is_free(request_):
    held = key_scope(request_)

    held.check_free()
    held.check_whole_state("routes")
    held.check_keys(ROUTES, [("EWR", "AA")])
    assert held.is_free
    assert held.sees("routes")
    assert held.prefix_of(ROUTES) == ()
    assert held.check_prefix(ROUTES, ["EWR"]) == ("EWR",)


class TestStates:
    held = KeyScope(states=frozenset({"routes", "airlines"}))

    def test_the_states_of_the_key_are_seen_and_no_others(self):
        assert [name for name in ("airlines", "routes", "totals") if self.held.sees(name)] == ["airlines", "routes"]
        self.held.check_state("routes")

    def test_a_refusal_names_the_state_and_those_there_are_to_this_key(self):
        with pytest.raises(OutsideError) as refused:
            self.held.check_state("totals")

        assert str(refused.value) == "this API key is confined to the states airlines, routes, not 'totals'"

    @pytest.mark.parametrize(
        "ask",
        [
            lambda held: held.prefix_of(TOTALS),
            lambda held: held.check_keys(TOTALS, [()]),
            lambda held: held.check_prefix(TOTALS, []),
            lambda held: held.check_whole_state("totals"),
            lambda held: held.check_free(),
        ],
    )
    def test_every_check_begins_with_the_state(self, ask):
        with pytest.raises(OutsideError):
            ask(self.held)

    def test_every_key_of_such_a_state_is_within(self):
        self.held.check_keys(ROUTES, [("EWR", "AA"), ("JFK", "AA")])
        self.held.check_whole_state("routes")


class TestKeys:
    def test_keys_that_start_so_are_within(self):
        OF_JFK.check_keys(ROUTES, [("JFK", "AA"), ("JFK", "B6")])

    def test_a_key_outside_is_named_by_its_index_and_not_by_what_it_is(self):
        with pytest.raises(OutsideError) as refused:
            OF_JFK.check_keys(ROUTES, [("JFK", "AA"), ("EWR", "AA")])

        assert refused.value.index == 1
        assert str(refused.value) == 'key 1: this API key is confined to keys that start with ["JFK"]'

    def test_a_longer_text_is_another_part(self):
        with pytest.raises(OutsideError, match="key 0"):
            OF_JFK.check_keys(ROUTES, [("JFKX", "AA")])

    def test_parts_are_compared_as_what_they_are_and_not_as_they_were_written(self):
        noon = KeyScope(key_prefix=("2026-11-20T12:00:00Z",))

        noon.check_keys(HOURS, [HOURS.check_key(["2026-11-20T13:00:00+01:00", "JFK"])])

    @pytest.mark.parametrize("spec", [TOTALS, HOURS])
    def test_a_state_whose_keys_cannot_start_so_is_refused(self, spec):
        with pytest.raises(OutsideError) as refused:
            OF_JFK.check_keys(spec, [])

        assert str(refused.value) == (
            f'this API key is confined to keys that start with ["JFK"], and no key of state {spec.name!r} can start so'
        )

    def test_what_concerns_a_whole_state_is_refused(self):
        with pytest.raises(OutsideError, match="concerns every key"):
            OF_JFK.check_whole_state("routes")


class TestPrefixes:
    @pytest.mark.parametrize(
        ("asked", "narrower"), [([], ("JFK",)), (["JFK"], ("JFK",)), (["JFK", "AA"], ("JFK", "AA"))]
    )
    def test_the_narrower_of_the_two_holds(self, asked, narrower):
        assert OF_JFK.check_prefix(ROUTES, asked) == narrower

    @pytest.mark.parametrize("asked", [["EWR"], ["EWR", "AA"]])
    def test_a_prefix_that_parts_from_the_keys_is_refused(self, asked):
        with pytest.raises(OutsideError, match="prefix: this API key is confined"):
            OF_JFK.check_prefix(ROUTES, asked)

    def test_a_prefix_that_fits_no_key_is_a_wrong_prefix(self):
        with pytest.raises(KeyShapeError):
            OF_JFK.check_prefix(ROUTES, ["JFK", "AA", "more"])

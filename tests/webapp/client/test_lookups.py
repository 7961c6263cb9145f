"""Lookups of a client: any number of keys, of one or several states, at one batch."""

from datetime import UTC, datetime

import pytest

from tests.webapp.flights import FIRST_HOUR
from tests.webapp.processes import MAX_KEYS
from tidegauge.client import (
    BatchGoneError,
    Lookup,
    NotCommittedError,
    NotFoundError,
    NotReachedError,
    OtherEpochError,
    RequestError,
    Result,
    SnapshotLostError,
)

ALL_KEYS = [(origin, f"C{n:02}") for origin in ("JFK", "EWR", "LGA") for n in range(30)]


def test_the_value_of_a_key_is_a_dict_by_measure(reading):
    state = reading.state("flights_by_carrier")

    assert state.get(("JFK", "C01"), measures=["flights"]) == {"flights": 99}
    assert state.get(("JFK", "ZZ")) is None


def test_results_come_in_the_order_asked_and_name_their_batch(reading):
    answer = reading.state("flights_by_carrier").get_many([("JFK", "ZZ"), ["JFK", "C01"]], measures="flights")

    assert list(answer) == [
        Result(("JFK", "ZZ"), "missing", None),
        Result(("JFK", "C01"), "found", {"flights": 99}),
    ]
    assert (answer.state, answer.txid, answer.isolation, answer.fed) == ("flights_by_carrier", 2, "committed", True)
    assert answer.batch_time.tzinfo is not None
    assert answer.found == {("JFK", "C01"): {"flights": 99}}


def test_a_state_without_key_columns_has_the_empty_key(reading):
    assert reading.state("totals").get(()) == {"flights": 6130}


def test_keys_are_values_of_their_columns(reading):
    answer = reading.state("flights_by_hour").get_many([(FIRST_HOUR, "JFK")])

    assert answer.found == {(datetime(2013, 1, 1, 10, tzinfo=UTC), "JFK"): {"flights": 1}}


def test_values_may_be_as_in_json(reading):
    state = reading.with_options(typed=False).state("flights_by_hour")

    assert [result.key for result in state.get_many([(FIRST_HOUR, "JFK")])] == [("2013-01-01T10:00:00+00:00", "JFK")]


@pytest.mark.core
def test_more_keys_than_the_server_takes_are_answered_at_one_batch(client, flights):
    assert len(ALL_KEYS) > 3 * MAX_KEYS

    answer = client.state("flights_by_carrier").get_many(ALL_KEYS, measures=["flights"])

    assert [result.key for result in answer] == ALL_KEYS
    assert (len(answer.found), answer.found["EWR", "C00"], answer.txid) == (60, {"flights": 1100}, 2)


def test_many_keys_of_several_states_are_answered_at_one_batch(reading):
    lookups = [Lookup("totals", [()]), Lookup("flights_by_carrier", ALL_KEYS, ["flights"])]

    totals, carriers = reading.lookup(lookups)

    assert totals.found == {(): {"flights": 6130}}
    assert sum(value["flights"] for value in carriers.found.values()) == 6130
    assert totals.txid == carriers.txid == 2


def test_several_states_are_answered_in_one_request(reading):
    totals, combined = reading.lookup([
        Lookup("totals", [()]),
        Lookup("flights_by_carrier", [("JFK", "C01"), ("EWR", "C01")], combine=True),
    ])  # fmt: skip

    assert totals.found == {(): {"flights": 6130}}
    assert combined.combined.value["flights"] == 198


def test_keys_are_folded_into_one_value(reading):
    folded = reading.state("flights_by_carrier").combine([("JFK", "C01"), ("EWR", "C01"), ("JFK", "ZZ")])

    assert (folded.keys, folded.missing, folded.value["flights"], folded.value["max_delay"]) == (2, 1, 198, 139.0)


def test_an_earlier_batch_is_read(reading):
    state = reading.state("flights_by_carrier")

    assert state.get(("EWR", "C00"), measures=["flights"], at_txid=1) == {"flights": 100}
    assert len(state.get_many(ALL_KEYS, at_txid=1).found) == 60
    first = state.get_many([("EWR", "C00")], at_txid=1)
    assert state.get(("EWR", "C00"), measures=["flights"], at_time=first.batch_time) == {"flights": 100}
    assert {page.txid for page in state.pages(page_size=20, at_time=first.batch_time)} == {1}


def test_a_wrong_key_is_an_error_that_has_its_index(reading):
    with pytest.raises(RequestError) as caught:
        reading.state("flights_by_carrier").get_many([("JFK", "C01"), ("JFK",)])

    assert (caught.value.status, caught.value.problem["index"]) == (400, 1)
    assert "key 1: expected 2 parts (origin, carrier), got 1" in str(caught.value)


@pytest.mark.parametrize(
    ("when", "error", "member"),
    [
        ({"at_txid": 9}, NotCommittedError, {"committed_txid": 2}),
        ({"min_txid": 9, "epoch": "another"}, OtherEpochError, {"txid": 2}),
        ({"min_txid": 3, "wait": 0.05}, NotReachedError, {"min_txid": 3, "txid": 2}),
    ],
)
def test_a_batch_that_cannot_be_read_is_an_error_by_name(reading, when, error, member):
    with pytest.raises(error) as caught:
        reading.state("flights_by_carrier").get(("JFK", "C01"), **when)

    assert member.items() <= caught.value.problem.items()


def test_a_batch_that_is_no_longer_kept_is_an_error_by_name(client, flights):
    for n in range(3):
        flights.commit({("JFK", "C01"): n})

    with pytest.raises(BatchGoneError):
        client.state("totals").get((), at_txid=1)


def test_an_unknown_state_is_an_error_by_name(reading):
    with pytest.raises(NotFoundError, match="'nothing' does not exist"):
        reading.state("nothing").get(("a",))


class TestABatchThatIsCommittedDuringALookup:
    """The client asks the types of the state, for no key twice, then for chunks; a batch follows the first chunk."""

    @pytest.fixture
    def between(self, monkeypatch, flights):
        """Runs an action after each request for keys."""
        from tidegauge.client import lookups

        def arrange(action):
            sent = lookups._at_once

            def at_once(call, lookups, keys, when):
                answers = yield from sent(call, lookups, keys, when)
                if keys[0]:
                    action()
                return answers

            monkeypatch.setattr(lookups, "_at_once", at_once)

        return arrange

    def test_is_in_no_chunk(self, client, flights, between):
        between(lambda: flights.commit({("JFK", "C29"): 5}))

        answer = client.state("flights_by_carrier").get_many(ALL_KEYS, measures=["flights"])

        assert answer.txid == 2
        assert sum(value["flights"] for value in answer.found.values()) == 6130

    def test_is_an_error_by_name_if_the_first_one_is_gone_twice(self, client, flights, between):
        between(lambda: [flights.commit({("JFK", "C29"): 5}) for _ in range(3)])

        with pytest.raises(SnapshotLostError, match="90 keys of 'totals' were asked for, 25 at a time"):
            client.state("totals").get_many([()] * 90)

    def test_is_read_from_the_start_if_the_first_one_is_gone_once(self, client, flights, between):
        batches = iter([3])
        between(lambda: [flights.commit({("JFK", "C29"): 5}) for _ in range(next(batches, 0))])

        answer = client.state("totals").get_many([()] * 90)

        assert (answer.txid, len(answer), answer.found) == (5, 90, {(): {"flights": 6145}})

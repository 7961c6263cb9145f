"""At which batch a lookup is answered: `min_txid`, `at_txid`, `at_time`; and `combine`."""

import time
from datetime import datetime, timedelta
from urllib.parse import quote

import pytest
from django.test import Client

from tests.webapp.api.states import add_state
from tests.webapp.redis_views import redis_views
from tidegauge.state_backends import StateSpec
from tidegauge.webapp.api import lookups
from tidegauge.webapp.catalog import waits

LOOKUP = "/states/flights_by_carrier/lookup"
KEYS = {"keys": [["JFK", "C01"]], "measures": ["flights"]}


def asked(api: Client, **when):
    return api.ask("POST", LOOKUP, KEYS | when)


class TestMinTxid:
    def test_a_batch_that_is_committed_is_not_waited_for(self, filled, api, while_waiting):
        pauses = while_waiting()

        response = asked(api, min_txid=2)

        assert (response.status_code, response.json()["txid"], pauses) == (200, 2, [])

    def test_a_batch_is_answered_as_soon_as_it_is_committed(self, filled, api, while_waiting):
        pauses = while_waiting(lambda: filled.commit({("JFK", "C01"): 1}))

        answer = asked(api, min_txid=3).json()

        assert (answer["txid"], answer["results"][0]["value"]) == (3, {"flights": 100})
        assert pauses == [lookups.FIRST_PAUSE_SECONDS]

    def test_a_batch_that_does_not_come_is_a_409_that_names_the_newest_one(self, filled, api):
        response = asked(api, min_txid=4, wait_ms=30)

        problem = response.json()
        assert (response.status_code, problem["txid"], problem["min_txid"]) == (409, 2, 4)
        assert response.headers["Retry-After"] == "1"
        assert problem["detail"] == (
            "state 'flights_by_carrier': batch 4 was not committed within 30 ms, the newest one is 2; ask again"
        )

    def test_the_server_limits_the_wait(self, filled, api, settings):
        settings.TIDEGAUGE_MAX_WAIT_MS = 20

        response = asked(api, min_txid=4)

        assert "within 20 ms" in response.json()["detail"]
        assert asked(api, min_txid=2, wait_ms=21).status_code == 400

    def test_pauses_grow_up_to_a_tenth_of_a_second(self, filled, api, while_waiting, settings):
        settings.TIDEGAUGE_MAX_WAIT_MS = 100
        pauses = while_waiting()

        asked(api, min_txid=4)

        assert pauses[0] < pauses[1] < pauses[2] < pauses[8]
        assert max(pauses) <= lookups.LONGEST_PAUSE_SECONDS

    def test_of_a_state_in_redis_the_published_batch_counts(self, api, connection):
        with redis_views(connection) as views:
            views.commit({"home": 4})
            batch = views.begin()
            views.write(batch, {"home": 1})
            views.ledger.commit(batch)
            path, body = f"/states/{views.name}/lookup", {"keys": [["home"]], "min_txid": 2, "wait_ms": 20}

            before = api.ask("POST", path, body)
            views.backing.publish(2)
            after = api.ask("POST", path, body)

        assert (before.status_code, before.json()["txid"]) == (409, 1)
        assert (after.status_code, after.json()["txid"]) == (200, 2)

    def test_a_wait_that_the_front_has_ended_goes_on_until_redis_shows_the_batch(self, api, connection, while_waiting):
        with redis_views(connection) as views:
            views.commit({"home": 4})
            batch = views.begin()
            views.write(batch, {"home": 1})
            views.ledger.commit(batch)
            while_waiting(lambda: views.backing.publish(2))
            ended = waits.of_request.set(waits.Wait(until=time.monotonic() + 60, is_over=True))

            response = api.ask("POST", f"/states/{views.name}/lookup", {"keys": [["home"]], "min_txid": 2})
            waits.of_request.reset(ended)

        assert (response.status_code, response.json()["txid"]) == (200, 2)


class TestAtTxid:
    def test_an_earlier_batch_is_read_from_the_changelog(self, filled, api):
        filled.commit({("JFK", "C01"): 1})
        filled.commit({("JFK", "C01"): 1})

        answers = [asked(api, at_txid=txid).json() for txid in (1, 2, 3, 4)]

        assert [(answer["txid"], answer["results"][0]["value"]["flights"]) for answer in answers] == [
            (1, 99), (2, 99), (3, 100), (4, 101),
        ]  # fmt: skip

    def test_a_batch_that_is_not_committed_yet_is_a_409_that_names_the_committed_one(self, filled, api):
        response = asked(api, at_txid=3)

        assert (response.status_code, response.json()["committed_txid"]) == (409, 2)

    def test_a_batch_out_of_reach_is_a_410_that_names_the_oldest_available_one(self, filled, api):
        for _ in range(3):
            filled.commit({("JFK", "C01"): 1})

        response = api.ask("POST", "/states/totals/lookup", {"keys": [[]], "at_txid": 1})

        assert (response.status_code, response.json()["oldest_txid"]) == (410, 4)

    def test_min_txid_and_at_txid_may_be_combined(self, filled, api, while_waiting):
        while_waiting(lambda: filled.commit({("JFK", "C01"): 1}))

        answer = asked(api, min_txid=3, at_txid=3).json()

        assert (answer["txid"], answer["results"][0]["value"]["flights"]) == (3, 100)


class TestAtTime:
    @pytest.fixture
    def times(self, filled) -> list[str]:
        """The times of three batches."""
        filled.commit({("JFK", "C01"): 1})
        found = filled.conn.execute("SELECT batch_time FROM tidegauge.batch WHERE pipeline = 'flights' ORDER BY txid")
        return [time.isoformat() for (time,) in found]

    def test_the_last_batch_that_is_not_after_a_time_is_read(self, times, filled, api):
        between = datetime.fromisoformat(times[2]) - timedelta(microseconds=1)
        later = datetime.fromisoformat(times[2]) + timedelta(days=1)

        answers = [asked(api, at_time=str(time)).json() for time in (times[1], between, times[2], later)]

        assert [(answer["txid"], answer["results"][0]["value"]["flights"]) for answer in answers] == [
            (2, 99), (2, 99), (3, 100), (3, 100),
        ]  # fmt: skip
        assert answers[0]["batch_time"] == times[1]

    def test_every_call_that_takes_a_batch_takes_a_time(self, times, api):
        key = quote('["JFK","C01"]')
        state, at = "/states/flights_by_carrier", f"at_time={quote(times[1])}"
        several = {"lookups": [{"state": "flights_by_carrier", **KEYS}], "at_time": times[1]}

        assert api.ask("POST", "/lookup", several).json()["txid"] == 2
        for path in (f"keys?key={key}&", "entries?", "entries?order_by=flights&", "groups?by=carrier&"):
            assert api.ask("GET", f"{state}/{path}{at}").json()["txid"] == 2

    def test_further_pages_are_of_the_batch_of_the_first_one(self, times, api):
        path, at = "/states/flights_by_carrier/entries", f"at_time={quote(times[1])}"
        first = api.ask("GET", f"{path}?limit=2&{at}").json()

        following = api.ask("GET", f"{path}?cursor={first['next']}&{at}").json()

        assert (first["txid"], following["txid"], len(following["entries"])) == (2, 2, 50)
        assert api.ask("GET", f"{path}?cursor={first['next']}&at_time={quote(times[0])}").status_code == 400

    def test_an_answer_has_an_etag(self, times, api):
        body = KEYS | {"at_time": times[1]}
        etag = api.ask("POST", LOOKUP, body).headers["ETag"]

        assert api.ask("POST", LOOKUP, body, headers={"If-None-Match": etag}).status_code == 304
        assert api.ask("POST", LOOKUP, KEYS | {"at_time": times[2]}, headers={"If-None-Match": etag}).status_code == 200

    def test_a_time_before_the_first_batch_is_a_410(self, times, api):
        response = asked(api, at_time="2001-01-01T00:00:00Z")

        assert (response.status_code, response.json()["code"]) == (410, "out_of_reach")
        assert (
            f"no batch is on record up to 2001-01-01 00:00:00+00:00, the first one is of {times[0][:10]}"
            in (response.json()["detail"])
        )

    @pytest.mark.parametrize("time", ["yesterday", "2026-01-01T00:00:00", 5, True, {}, "9999-12-31T00:00:00Z"])
    def test_what_is_no_time_with_an_offset_is_refused(self, filled, api, time):
        response = asked(api, at_time=time)

        assert (response.status_code, response.json()["code"]) == (400, "invalid_request")
        assert "at_time must be a time with its offset" in response.json()["detail"]

    def test_a_batch_and_a_time_are_refused(self, filled, api):
        detail = "at_txid and at_time both name a batch; send only one of them"
        now = "2026-01-01T00:00:00Z"

        assert asked(api, at_txid=1, at_time=now).json()["detail"] == detail
        path = f"/states/flights_by_carrier/entries?at_txid=1&at_time={now}"
        assert api.ask("GET", path).json()["detail"] == detail


class TestCombine:
    def test_many_keys_are_folded_into_one_value(self, filled, api):
        keys = [["JFK", "C01"], ["JFK", "C02"], ["JFK", "ZZ"], ["JFK", "C01"]]

        answer = api.ask("POST", LOOKUP, {"keys": keys, "combine": True, "measures": ["flights", "max_delay"]}).json()

        assert answer["combined"] == {
            "keys": 2, "missing": 1, "expired": 0, "value": {"flights": 99 + 98, "max_delay": 139},
        }  # fmt: skip
        assert "results" not in answer

    def test_an_earlier_batch_may_be_combined(self, filled, api):
        filled.commit({("JFK", "C01"): 5})

        body = {"keys": [["JFK", "C01"]], "combine": True, "at_txid": 2}

        assert api.ask("POST", LOOKUP, body).json()["combined"]["value"]["flights"] == 99

    def test_json_values_are_not_folded(self, filled, api):
        add_state(filled.conn, StateSpec("profiles", key={"id": "bigint"}, value="jsonb"), {(7,): {"a": [1, None]}})

        response = api.ask("POST", "/states/profiles/lookup", {"keys": [7], "combine": True})

        assert response.status_code == 400
        assert "holds JSON values, which cannot be folded" in response.json()["detail"]

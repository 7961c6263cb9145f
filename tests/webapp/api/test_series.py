from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest

from tests.webapp.api.checked_client import CheckedClient
from tests.webapp.redis_views import redis_views
from tidegauge.state_backends.ledger.batch import record_metrics
from tidegauge.webapp.accounts.services import create_api_key

FLIGHTS = "/pipelines/flights/series"


class TestPipelineSeries:
    def test_a_range_that_ends_now_has_the_newest_batches(self, filled, api):
        found = api.ask("GET", f"{FLIGHTS}?last=900&points=10").json()

        assert (found["pipeline"], found["txid"], found["step_seconds"]) == ("flights", 2, 120)
        assert sum(found["series"]["batches"]) == 2
        assert sum(found["series"]["rows"]) == sum(100 - n for n in range(30)) * 2 + 1_000
        assert {len(values) for values in found["series"].values()} == {len(found["times"])}
        until = datetime.fromisoformat(found["to"])
        assert until - datetime.fromisoformat(found["from"]) == timedelta(seconds=900)
        assert abs(until - datetime.now(UTC)) < timedelta(minutes=1)

    def test_a_range_of_its_own_may_be_in_any_time_zone(self, filled, api):
        asked = urlencode({"from": "2013-01-01T10:00:00+05:30", "to": "2013-01-01T10:00:00Z"})

        found = api.ask("GET", f"{FLIGHTS}?{asked}").json()

        assert (found["times"], found["step_seconds"]) == ([], 120)
        assert datetime.fromisoformat(found["from"]) == datetime(2013, 1, 1, 4, 30, tzinfo=UTC)

    def test_an_offset_that_the_database_refuses_is_taken(self, filled, api):
        asked = urlencode({"from": "2013-01-01T10:00:00-20:29", "to": "2013-01-03T10:00:00+23:59"})

        found = api.ask("GET", f"{FLIGHTS}?{asked}").json()

        assert datetime.fromisoformat(found["from"]) == datetime(2013, 1, 2, 6, 29, tzinfo=UTC)

    @pytest.mark.parametrize(
        ("asked", "said"),
        [
            ({"from": "yesterday"}, "from must be a time with its offset"),
            ({"to": "2013-01-01T10:00:00"}, "to must be a time with its offset"),
            ({"to": "0001-01-01T00:00:00+14:00"}, "to must be a time with its offset"),
            ({"from": "2013-01-02T00:00:00Z", "to": "2013-01-01T00:00:00Z"}, "from must be before to"),
            ({"points": "5"}, "points must be a number from 10 to 1000"),
            ({"last": "0"}, "last must be a number from 1 to"),
        ],
    )
    def test_a_wrong_range_is_a_400_that_says_what_is_right(self, filled, api, asked, said):
        answer = api.ask("GET", f"{FLIGHTS}?{urlencode(asked)}")

        assert answer.status_code == 400
        assert said in answer.json()["detail"]

    def test_the_longest_range_before_the_first_year_is_cut(self, filled, api):
        found = api.ask("GET", f"{FLIGHTS}?{urlencode({'to': '1970-01-02T00:00:00Z', 'last': 300_000_000})}").json()

        assert found["from"].startswith("1970-01-01")

    def test_an_unknown_pipeline_is_a_404(self, filled, api):
        assert api.ask("GET", "/pipelines/nothing/series").status_code == 404

    def test_a_restricted_key_gets_no_figures_of_whole_batches(self, filled, db):
        batch = filled.commit({("JFK", "C01"): 1})
        record_metrics(filled.conn, batch, {"duration_ms": {"addBatch": 12}})
        restricted = CheckedClient(create_api_key("of JFK", ["read"], key_prefix=["JFK"])[1])

        found = restricted.ask("GET", FLIGHTS).json()

        assert sum(found["series"]["batches"]) == 3
        assert "rows" not in found["series"]
        assert "rows_per_second" not in found["series"]
        assert found["phases"] == {}


CARRIER = "/states/flights_by_carrier/series"
KEY = '["EWR", "C00"]'


def dated(flights, txid: int, at: str) -> None:
    flights.conn.execute(
        "UPDATE tidegauge_changelog.flights_by_carrier SET updated_at = %s WHERE txid = %s", [at, txid]
    )


class TestKeySeries:
    def ask(self, api, **asked):
        return api.ask("GET", f"{CARRIER}?{urlencode({'key': KEY} | asked)}")

    def test_a_value_holds_from_the_beginning_of_the_range_to_its_end(self, filled, api):
        dated(filled, 1, "2013-01-01T09:00:00Z")
        dated(filled, 2, "2013-01-01T10:30:00Z")
        span = {"from": "2013-01-01T10:00:00Z", "to": "2013-01-01T11:00:00Z"}

        found = self.ask(api, **span, measures="flights,max_delay").json()

        assert (found["state"], found["key"], found["txid"]) == ("flights_by_carrier", ["EWR", "C00"], 2)
        assert found["times"] == [f"2013-01-01T{time}:00+00:00" for time in ("10:00", "10:30", "11:00")]
        assert found["txids"] == [1, 2, 2]
        assert found["series"] == {"flights": [100, 1_100, 1_100], "max_delay": [140, 1_040, 1_040]}

    def test_a_range_that_ends_now_ends_with_the_value_of_now(self, filled, api):
        found = self.ask(api, last=60).json()

        assert found["series"]["flights"][-1] == 1_100
        newest, until = map(datetime.fromisoformat, (found["times"][-1], found["to"]))
        assert timedelta(0) <= until - newest < timedelta(seconds=60)

    def test_a_key_that_does_not_exist_has_no_points(self, filled, api):
        found = self.ask(api, key='["EWR", "nothing"]').json()

        assert (found["times"], found["series"]["flights"]) == ([], [])

    def test_points_are_bounded(self, filled, api):
        for txid in range(3, 43):
            filled.commit({("EWR", "C00"): 1})
            dated(filled, txid, f"2013-01-01T10:00:{txid:02}Z")

        found = self.ask(api, **{"from": "2013-01-01T10:00:00Z", "to": "2013-01-01T10:01:00Z"}, points=10).json()

        assert (found["step_seconds"], len(found["times"])) == (10, 6)
        assert found["txids"] == [9, 19, 29, 39, 42, 42]

    @pytest.mark.parametrize(
        ("asked", "status"),
        [({"measures": "nothing"}, 400), ({"key": "EWR"}, 400), ({"key": ""}, 400), ({"points": "0"}, 400)],
    )
    def test_a_wrong_question_is_refused(self, filled, api, asked, status):
        assert self.ask(api, **asked).status_code == status

    def test_a_key_outside_the_prefix_is_refused(self, filled, db):
        restricted = CheckedClient(create_api_key("of JFK", ["read"], key_prefix=["JFK"])[1])

        assert self.ask(restricted).status_code == 403
        assert self.ask(restricted, key='["JFK", "C01"]').status_code == 200
        assert restricted.ask("GET", "/states/totals/series").status_code == 404

    def test_a_state_in_redis_has_series_too(self, api, connection):
        with redis_views(connection) as views:
            views.commit({"a": 3})
            found = api.ask("GET", f"/states/{views.name}/series?key=a&last=600&measures=views").json()

        assert found["series"]["views"] == [3, 3]

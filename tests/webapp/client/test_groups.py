"""Groups of a client, and series."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tests.webapp.api.states import add_state
from tests.webapp.flights import FIRST_HOUR
from tidegauge.client import InvalidArgumentError, NotFoundError, NotReachedError, RequestError
from tidegauge.state_backends import StateSpec, Sum


class TestGroups:
    def test_entries_are_folded_by_key_columns(self, reading):
        found = reading.state("flights_by_carrier").groups(["origin"], order_by="-flights", measures=["flights"])

        assert [(group.key, group.keys, group.value) for group in found] == [
            (("EWR",), 30, {"flights": 3_565}),
            (("JFK",), 30, {"flights": 2_565}),
        ]
        assert (found.by, found.complete, found.txid, len(found)) == (["origin"], True, 2, 2)
        assert found.table()[0] == {"origin": "EWR", "flights": 3_565}

    def test_one_name_is_a_column(self, reading):
        found = reading.state("flights_by_carrier").groups("carrier", limit=3)

        assert [group.key for group in found] == [("C00",), ("C01",), ("C02",)]
        assert not found.complete

    def test_a_range_conditions_and_a_batch_say_which(self, reading):
        state = reading.state("flights_by_carrier")
        found = state.groups(["carrier"], prefix="EWR", where=["flights>98", "carrier!=C00"], at_txid=1)

        assert [(group.key, group.value["flights"]) for group in found] == [(("C01",), 99)]
        assert found.txid == 1

    def test_keys_have_the_types_of_their_columns(self, reading):
        [first, *_] = reading.state("flights_by_hour").groups(["hour"])
        [second, *_] = reading.with_options(typed=False).state("flights_by_hour").groups(["hour"])

        assert first.key == (FIRST_HOUR,)
        assert isinstance(second.key[0], str)

    def test_a_refusal_names_the_columns(self, reading):
        with pytest.raises(RequestError, match="there are origin, carrier"):
            reading.state("flights_by_carrier").groups(["flights"])


class TestSeries:
    def test_a_pipeline_over_time(self, reading):
        found = reading.series("flights", last=900, points=100)

        assert sum(number or 0 for number in found.series["batches"]) == 2
        assert (found.stop - found.start, found.txid, len(found)) == (timedelta(seconds=900), 2, len(found.times))
        assert [row["time"] for row in found.table()] == found.times
        assert all(found.start <= time <= found.stop for time in found.times)

    def test_a_key_over_time(self, reading):
        start, stop = datetime(2013, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
        found = reading.state("flights_by_carrier").series(("EWR", "C00"), measures="flights", start=start, stop=stop)

        assert found.series["flights"][-1] == 1_100
        assert found.txids[-1] == 2
        assert found.table()[-1]["flights"] == 1_100

    def test_a_key_that_does_not_exist_has_nothing(self, reading):
        found = reading.state("flights_by_carrier").series(("EWR", "none"), measures=["flights"])

        assert [number for number in found.series["flights"] if number is not None] == []

    def test_what_cannot_be_asked_is_an_error(self, reading):
        with pytest.raises(InvalidArgumentError, match="no time zone"):
            reading.series("flights", start=datetime(2013, 1, 1))
        with pytest.raises(RequestError, match="from must be before to"):
            reading.series("flights", start="2020-01-01T00:00:00Z", stop="2019-01-01T00:00:00Z")
        with pytest.raises(NotFoundError, match="nothing"):
            reading.series("nothing")


def test_sums_of_decimals_keep_every_digit(flights, client):
    spec = StateSpec("prices", key={"shop": "text", "day": "bigint"}, measures={"paid": Sum("paid")})
    add_state(flights.conn, spec, {("a", 1): {"paid": "0.1"}, ("a", 2): {"paid": "12345678901234567890.2"}})
    [group] = client.state("prices").groups(["shop"])

    assert group.value["paid"] == Decimal("12345678901234567890.3")


def test_windows_say_what_they_cover(flights, client):
    now = datetime(2026, 3, 2, 7, 9, tzinfo=UTC)
    spec = StateSpec(
        "views_by_minute",
        key={"day": "date", "start": "timestamptz"},
        measures={"paid": Sum("paid")},
        tiles={"minute": timedelta(hours=2), "hour": None},
    )
    tiles = {(now.date(), now - timedelta(minutes=age)): {"paid": f"{age}.1"} for age in (1, 70)}
    add_state(flights.conn, spec, tiles)

    found = client.state("views_by_minute").windows([now.date()], ["1h", timedelta(hours=3)], to=now)

    assert [(each.window, each.start, each.stop, each.granularity) for each in found.windows] == [
        ("1h", now - timedelta(hours=1), now, "minute"),
        ("10800s", now - timedelta(hours=3), now, "minute"),
    ]
    assert [(each.key, each.values) for each in found] == [
        ((now.date(),), [{"paid": Decimal("1.1")}, {"paid": Decimal("71.2")}])
    ]
    assert found.table()[1] == {"window": "10800s", "day": now.date(), "paid": Decimal("71.2")}
    with pytest.raises(NotReachedError, match="batch 9 was not committed"):
        client.state("views_by_minute").windows([now.date()], "1h", to=now, min_txid=9, wait=0.01)
    with pytest.raises(InvalidArgumentError, match="is not a whole number of seconds"):
        client.state("views_by_minute").windows([now.date()], timedelta(seconds=1.5))

"""First, Last and Latest: the event time decides, whatever order the batches come in."""

from datetime import UTC, datetime
from functools import reduce
from itertools import permutations

import pytest

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.aggregators import First, Last, Latest
from tidegauge.state_backends.errors import SpecError

NAN = float("nan")


def hour(number):
    return datetime(2013, 1, 1, number, tzinfo=UTC)


def priced(price, number):
    return {"": price, "at": hour(number)}


NOTHING = {"": None, "at": None}
PRICES = [priced(7.0, 2), priced(5.0, 1), priced(9.0, 1), priced(6.0, 3), priced(8.0, 3), NOTHING]


def test_the_event_time_decides_and_the_value_among_events_of_one_time():
    for prices in permutations(PRICES):
        assert reduce(First("price", by="t").fold, prices)[""] == 5.0
        assert reduce(Last("price", by="t").fold, prices)[""] == 8.0


def test_nan_is_the_largest_of_the_values_of_one_time():
    first, last = First("price", by="t"), Last("price", by="t")

    assert first.fold(priced(NAN, 1), priced(1.0, 1))[""] == 1.0
    assert last.fold(priced(1.0, 1), priced(NAN, 1))[""] is NAN


class TestLatest:
    PROFILE = Latest("name", "city", by="changed_at")

    def change(self, name=None, city=None, at=1):
        """What a batch brings: a column without a value has no time either."""
        times = {"at_name": name and hour(at), "at_city": city and hour(at)}
        return {"name": name, "city": city} | times

    def test_each_column_keeps_its_newest_value_whatever_the_order(self):
        changes = [
            self.change(name="Ada", at=3),
            self.change(name="Augusta", city="London", at=1),
            self.change(city="Paris", at=2),
        ]
        for ordered in permutations(changes):
            assert self.PROFILE.finish(reduce(self.PROFILE.fold, ordered)) == {"name": "Ada", "city": "Paris"}

    def test_columns_given_with_a_type_and_without_are_stored_alike(self):
        given = Latest("name", age="bigint", by="t")

        assert given.columns == {"name": "text", "at_name": "timestamptz", "age": "bigint", "at_age": "timestamptz"}
        assert given.arguments() == {"by": "t", "name": "text", "age": "bigint"}

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Latest(by="t"), "Latest: 0 columns given; declare 1 to 50"),
            (lambda: Latest(*(f"c{n}" for n in range(51)), by="t"), "Latest: 51 columns given; declare 1 to 50"),
            (lambda: Latest("depTime", by="t"), "Latest('depTime'): not a valid name for a stored column"),
            (lambda: Latest("x'y", by="t"), 'Latest("x\'y"): not a valid name for a stored column'),
            (lambda: Latest("x", "at_x", by="t"), "Latest('at_x'): not a valid name for a stored column, or the name"),
            (lambda: Latest("by", by="t"), "Latest('by'): not a valid name for a stored column"),
            (lambda: Latest(x="numeric", by="t"), "Latest('x'): type 'numeric' is not one of text, bigint, double"),
        ],
    )
    def test_a_column_that_cannot_be_stored_is_refused(self, make, message):
        with pytest.raises(SpecError) as caught:
            make()

        assert message in str(caught.value)

    def test_a_stored_column_whose_name_postgresql_would_cut_is_refused(self):
        name = "a" * 40
        StateSpec("profiles", measures={name: Latest("b" * 14, by="t")})

        with pytest.raises(SpecError, match=r"column 'a+_at_b+' is over 58 characters; shorten the measure's name"):
            StateSpec("profiles", measures={name: Latest("b" * 15, by="t")})


@pytest.mark.parametrize("aggregator", [First, Last])
def test_a_type_that_cannot_be_stored_is_refused(aggregator):
    with pytest.raises(
        SpecError, match=r"(First|Last)\('x'\): type 'json' is not one of bigint, double precision, numeri"
    ):
        aggregator("x", by="t", type="json")

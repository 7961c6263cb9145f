"""Extremes of values that can be taken away: whatever the order of batches, those of what is left."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.state_backends.aggregators import RetractableMax, RetractableMin
from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.spec.state_spec import StateSpec

LOW, HIGH = RetractableMin("x", "bigint"), RetractableMax("x", "bigint")
CHANGES = st.lists(st.tuples(st.integers(-5, 5), st.sampled_from([1, -1])), max_size=30)


def folded(aggregator, batches):
    value = {}
    for batch in batches:
        counts = Counter()
        for number, sign in batch:
            counts[str(number)] += sign
        value = aggregator.fold(value, {"counts": dict(counts)})
    return value


@given(st.lists(CHANGES, max_size=4))
def test_they_are_those_of_the_values_that_are_left_and_batches_may_come_in_any_order(batches):
    left = Counter()
    for number, sign in (change for batch in batches for change in batch):
        left[number] += sign
    numbers = [number for number, count in left.items() if count]

    low, high = folded(LOW, batches), folded(HIGH, reversed(batches))

    assert low.get("") == min(numbers, default=None)
    assert high.get("") == max(numbers, default=None)
    assert low.get("counts", {}) == high.get("counts", {})


def test_nothing_stored_and_nothing_new_is_null():
    assert LOW.fold({}, {"counts": None}) == {"": None, "counts": {}}


def test_an_infinity_is_a_value_as_any_other():
    spec = StateSpec("s", measures={"high": RetractableMax("x", "double precision")})

    high = spec.fold(None, {"high_counts": {"1.0": 1}})
    with_infinity = spec.fold(high, {"high_counts": {"inf": 1}})
    without = spec.fold(with_infinity, {"high_counts": {"inf": -1}})

    assert (with_infinity["high"], without) == (float("inf"), {"high": 1.0, "high_counts": {"1.0": 1}})


def test_a_type_that_cannot_be_stored_is_refused():
    with pytest.raises(SpecError, match="RetractableMin\\('x'\\): type 'json' is not one of"):
        RetractableMin("x", "json")

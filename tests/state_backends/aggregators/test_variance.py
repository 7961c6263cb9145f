"""Variance and standard deviation: exact to the last digits even where the numbers are large and close together."""

import math
from fractions import Fraction
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state_backends.aggregators.sql_and_lua import in_lua, in_sql, moments, same
from tidegauge.state_backends.aggregators import StdDev, Variance
from tidegauge.state_backends.errors import SpecError

NOTHING = {"count": None, "mean": None, "m2": None}
NAN = math.nan

batches = st.lists(st.lists(st.integers(-1000, 1000), max_size=6), min_size=1, max_size=8)
offsets = st.sampled_from([0, 1e6, -1e9, 1e12, 1e15])


def single(number):
    return {"count": 1, "mean": number, "m2": 0.0}


@given(batches=batches, offset=offsets, scale=st.sampled_from([1.0, 1e-3, 1e-100, 1e100]))
def test_it_equals_exact_arithmetic_at_any_offset_and_scale(batches, offset, scale):
    numbers = [[(offset + number) * scale for number in batch] for batch in batches]
    every = [Fraction(number) for batch in numbers for number in batch]
    exact = moments(every)

    folded = reduce(Variance("x").fold, map(moments, numbers), NOTHING)

    assert folded["count"] == len(every)
    if every:
        # Some 20 times the error of rounding the mean to a double.
        step = 20 * math.ulp(max(abs(float(x)) for x in every))
        spread = math.sqrt(exact["m2"] / len(every))
        assert abs(folded["mean"] - exact["mean"]) <= step
        assert abs(folded["m2"] - exact["m2"]) <= len(every) * step * (spread + step) + 1e-9 * exact["m2"]


def test_digits_that_a_sum_of_squares_loses_are_kept():
    folded = reduce(Variance("x").fold, [single(1e9 + n) for n in (4.0, 7.0, 13.0, 16.0)], NOTHING)

    assert Variance("x").finish(folded) == 30.0


@pytest.mark.parametrize(
    ("of", "numbers", "variance"),
    [
        ("sample", [], None),
        ("sample", [5], None),
        ("sample", [5, 7], 2.0),
        ("population", [], None),
        ("population", [5], 0.0),
        ("population", [5, 7], 1.0),
    ],
)
def test_the_variance_of_few_numbers(conn, of, numbers, variance):
    stored = moments(numbers)
    for aggregator, expected in [
        (Variance("x", of=of), variance),
        (StdDev("x", of=of), None if variance is None else math.sqrt(variance)),
    ]:
        assert aggregator.finish(stored) == expected
        assert in_sql(conn, aggregator, aggregator.finish_sql, stored=stored) == expected


EXTREMES = [
    {"count": 2**40, "mean": 1e140, "m2": 1e298},
    {"count": 2**40, "mean": -1e140, "m2": 0.0},
    single(1e-100),
    single(1e-100 + 1e-116),
    {"count": 2**40, "mean": 0.0, "m2": 0.0},
    {"count": 3, "mean": NAN, "m2": NAN},
    {"count": 0, "mean": None, "m2": None},
    NOTHING,
]


@pytest.mark.parametrize("left", EXTREMES)
@pytest.mark.parametrize("right", EXTREMES)
def test_nothing_overflows_or_underflows(conn, client, left, right):
    """PostgreSQL raises an error where Python gives infinity or zero, and an error would stop the pipeline."""
    variance = Variance("x")

    folded = {
        suffix: in_sql(conn, variance, template, stored=left, partial=right)
        for suffix, template in variance.fold_sql.items()
    }

    assert same(folded, variance.fold(left, right))
    assert same(in_lua(client, variance, left, right), folded)


def test_a_nan_stays():
    folded = reduce(Variance("x").fold, [single(1.0), {"count": 1, "mean": NAN, "m2": NAN}, single(2.0)], NOTHING)

    assert math.isnan(Variance("x").finish(folded))
    assert math.isnan(StdDev("x").finish(folded))


def test_an_unknown_divisor_is_refused():
    with pytest.raises(SpecError, match=r"StdDev\('x'\): of 'all' is not one of sample, population"):
        StdDev("x", of="all")

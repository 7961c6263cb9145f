"""Each aggregator folds and finishes alike in SQL and in Python, and a fold may be regrouped and reordered."""

import math
from decimal import Decimal
from itertools import permutations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from state_backends import Count, Max, Mean, Min, Sum
from state_backends.aggregators import AGGREGATORS

# Whole numbers, which a double adds exactly, so that regrouping must not change a bit.
DOUBLES = st.integers(-(2**40), 2**40).map(float)
NUMERICS = st.decimals(Decimal(-(10**28)), Decimal(10**28), places=9)
BIGINTS = st.integers(-(2**60), 2**60)
COUNTS = st.integers(0, 2**50)
ANY_DOUBLES = st.floats(allow_nan=True, allow_infinity=True)


def stored(values):
    """A partial of an aggregator with one column; None is what an empty group or a new measure leaves."""
    return st.none() | values


CASES = {
    "count": (Count(), {"": stored(COUNTS)}),
    "count where": (Count("x > 1"), {"": stored(COUNTS)}),
    "sum": (Sum("x"), {"": stored(DOUBLES)}),
    "sum of bigint": (Sum("x", type="bigint"), {"": stored(BIGINTS)}),
    "sum of numeric": (Sum("x", type="numeric"), {"": stored(NUMERICS)}),
    "min": (Min("x"), {"": stored(ANY_DOUBLES)}),
    "max": (Max("x"), {"": stored(ANY_DOUBLES)}),
    "max of bigint": (Max("x", type="bigint"), {"": stored(BIGINTS)}),
    "min of numeric": (Min("x", type="numeric"), {"": stored(NUMERICS)}),
    "mean": (Mean("x"), {"sum": stored(DOUBLES), "count": stored(COUNTS)}),
}
QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def partials(case):
    columns = st.fixed_dictionaries(CASES[case][1])
    if case == "mean":
        # Where nothing was counted nothing was added.
        columns = columns.map(lambda p: p if p["count"] else {"sum": None, "count": p["count"]})
        columns = columns.map(lambda p: p if p["sum"] is not None else p | {"count": 0})
    return columns


def same(left, right):
    both_nan = left is not None and right is not None and math.isnan(left) and math.isnan(right)
    return both_nan or left == right


def all_same(left, right):
    return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)


def in_sql(conn, aggregator, template, **sides):
    names = {
        f"{side}_{suffix}" if suffix else side: sql.SQL("{}::{}").format(sql.Literal(value[suffix]), sql.SQL(sql_type))
        for side, value in sides.items()
        for suffix, sql_type in aggregator.columns.items()
    }
    return conn.execute(sql.SQL("SELECT {}").format(sql.SQL(template).format(**names))).fetchone()[0]


def test_every_aggregator_has_its_case():
    assert {aggregator.name for aggregator, _ in CASES.values()} == set(AGGREGATORS)


@pytest.mark.parametrize("case", CASES)
@QUICK
@given(data=st.data())
def test_sql_folds_as_python_does(conn, case, data):
    aggregator, _ = CASES[case]
    left, right = data.draw(partials(case)), data.draw(partials(case))

    folded = {
        suffix: in_sql(conn, aggregator, template, stored=left, partial=right)
        for suffix, template in aggregator.fold_sql.items()
    }

    assert all_same(folded, aggregator.fold(left, right))


@pytest.mark.parametrize("case", CASES)
@QUICK
@given(data=st.data())
def test_sql_finishes_as_python_does(conn, case, data):
    aggregator, _ = CASES[case]
    value = data.draw(partials(case))

    assert same(in_sql(conn, aggregator, aggregator.finish_sql, stored=value), aggregator.finish(value))


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_fold_may_be_reordered_and_regrouped(case, data):
    aggregator, _ = CASES[case]
    three = [data.draw(partials(case)) for _ in range(3)]
    fold = aggregator.fold

    results = [fold(fold(a, b), c) for a, b, c in permutations(three)]
    results += [fold(a, fold(b, c)) for a, b, c in permutations(three)]

    assert all(all_same(result, results[0]) for result in results)


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_nothing_folds_as_nothing(case, data):
    aggregator, _ = CASES[case]
    value = data.draw(partials(case))
    nothing = dict.fromkeys(aggregator.columns)

    assert same(aggregator.finish(aggregator.fold(value, nothing)), aggregator.finish(value))
    assert same(aggregator.finish(aggregator.fold(nothing, value)), aggregator.finish(value))


@pytest.mark.parametrize(
    ("aggregator", "empty"), [(Count(), 0), (Sum("x"), 0), (Min("x"), None), (Max("x"), None), (Mean("x"), None)]
)
def test_empty_input_gives(conn, aggregator, empty):
    nothing = dict.fromkeys(aggregator.columns)

    assert aggregator.finish(nothing) == empty
    assert in_sql(conn, aggregator, aggregator.finish_sql, stored=nothing) == empty


def test_a_sum_of_numerics_loses_no_digit():
    total = Sum("x", type="numeric")
    large, small = Decimal("12345678901234567890123456789"), Decimal("0.000000001")

    assert total.fold({"": large}, {"": small}) == {"": Decimal("12345678901234567890123456789.000000001")}


@pytest.mark.parametrize("name", AGGREGATORS)
def test_arguments_build_the_same_aggregator_again(name):
    for aggregator, _ in CASES.values():
        if aggregator.name == name:
            again = AGGREGATORS[name](**aggregator.arguments())
            assert (again.partial(), again.columns) == (aggregator.partial(), aggregator.columns)


@pytest.mark.parametrize(
    ("aggregator", "partial"),
    [
        (Count(), {"": "count(1)"}),
        (Count("delay > 15"), {"": "count_if(delay > 15)"}),
        (Sum("a`b"), {"": "coalesce(sum(cast(`a``b` as double)), 0)"}),
        (Sum("n", type="numeric"), {"": "coalesce(sum(cast(`n` as decimal(38,9))), 0)"}),
        (Max("n", type="bigint"), {"": "max(cast(`n` as bigint))"}),
        (Min("n"), {"": "min(cast(`n` as double))"}),
        (Mean("n"), {"sum": "coalesce(sum(cast(`n` as double)), 0)", "count": "count(`n`)"}),
    ],
)
def test_spark_is_asked_for(aggregator, partial):
    assert aggregator.partial() == partial

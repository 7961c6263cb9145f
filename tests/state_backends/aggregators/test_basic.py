"""Each aggregator folds and finishes alike in SQL, Lua and Python, and a fold may be regrouped and reordered."""

from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state_backends.aggregators.sql_and_lua import in_lua, in_sql, moments, same
from tests.state_backends.examples import examples
from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.aggregators import (
    AGGREGATORS,
    Count,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    RetractableMax,
    RetractableMin,
    RowCount,
    StdDev,
    Sum,
    Variance,
)
from tidegauge.state_backends.aggregators.sketch import Sketch
from tidegauge.state_backends.errors import FoldRangeError, SpecError
from tidegauge.state_backends.reader.groups import fold_all

# Whole numbers, which a double adds exactly, so that regrouping must not change a bit.
DOUBLES = st.integers(-(2**40), 2**40).map(float)
NUMERICS = st.decimals(Decimal(-(10**28)), Decimal(10**28), places=9)
BIGINTS = st.integers(-(2**60), 2**60)
COUNTS = st.integers(0, 2**50)
ANY_DOUBLES = st.floats(allow_nan=True, allow_infinity=True)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
# Few of them, so that two events often have the same.
HOURS = st.integers(0, 2).map(lambda hour: datetime(2013, 1, 1, hour, tzinfo=UTC))
VALUES = {
    "double precision": ANY_DOUBLES,
    "bigint": BIGINTS,
    "numeric": NUMERICS,
    "text": TEXTS,
    "timestamptz": TIMES,
    "boolean": st.booleans(),
}


def stored(values):
    """A partial of an aggregator with one column; None is what an empty group or a new measure leaves."""
    return st.none() | values


def timed(values, suffix="", at="at"):
    """A value and its time, or neither."""
    both = st.tuples(values, HOURS) | st.just((None, None))
    return both.map(lambda pair: {suffix: pair[0], at: pair[1]})


MOMENTS = st.lists(st.integers(-1000, 1000), max_size=5).map(moments)

CASES = {
    "count": (Count(), {"": stored(COUNTS)}),
    "count where": (Count("x > 1"), {"": stored(COUNTS)}),
    "row_count": (RowCount(), {"": stored(COUNTS)}),
    "sum": (Sum("x", "double precision"), {"": stored(DOUBLES)}),
    "sum of bigint": (Sum("x", type="bigint"), {"": stored(BIGINTS)}),
    "sum of numeric": (Sum("x", type="numeric"), {"": stored(NUMERICS)}),
    "min": (Min("x"), {"": stored(ANY_DOUBLES)}),
    "max": (Max("x"), {"": stored(ANY_DOUBLES)}),
    "max of bigint": (Max("x", type="bigint"), {"": stored(BIGINTS)}),
    "min of numeric": (Min("x", type="numeric"), {"": stored(NUMERICS)}),
    "max of text": (Max("x", type="text"), {"": stored(TEXTS)}),
    "min of timestamptz": (Min("x", type="timestamptz"), {"": stored(TIMES)}),
    "max of boolean": (Max("x", type="boolean"), {"": stored(st.booleans())}),
    "mean": (Mean("x"), {"sum": stored(DOUBLES), "count": stored(COUNTS)}),
    "mean of bigint": (Mean("x", type="bigint"), {"sum": stored(BIGINTS), "count": stored(COUNTS)}),
    "mean of numeric": (Mean("x", type="numeric"), {"sum": stored(NUMERICS), "count": stored(COUNTS)}),
    "variance": (Variance("x"), MOMENTS),
    "variance of a population": (Variance("x", of="population"), MOMENTS),
    "std_dev": (StdDev("x"), MOMENTS),
    **{f"first of {kind}": (First("x", by="t", type=kind), timed(values)) for kind, values in VALUES.items()},
    **{f"last of {kind}": (Last("x", by="t", type=kind), timed(values)) for kind, values in VALUES.items()},
    "latest": (
        Latest("name", age="bigint", score="double precision", member="boolean", by="t"),
        st.builds(
            lambda *parts: {suffix: value for part in parts for suffix, value in part.items()},
            timed(TEXTS, "name", "at_name"),
            timed(BIGINTS, "age", "at_age"),
            timed(ANY_DOUBLES, "score", "at_score"),
            timed(st.booleans(), "member", "at_member"),
        ),
    ),
}
# Folding these rounds, so that another order may change the last digits.
ROUNDED = {"variance", "variance of a population", "std_dev"}


def partials(case):
    columns = CASES[case][1]
    if isinstance(columns, dict):
        columns = st.fixed_dictionaries(columns)
    if case.startswith("mean"):
        # Where nothing was counted nothing was added.
        columns = columns.map(lambda p: p if p["count"] else {"sum": None, "count": p["count"]})
        columns = columns.map(lambda p: p if p["sum"] is not None else p | {"count": 0})
    return columns


def test_every_aggregator_has_its_case():
    in_python = (Sketch, RetractableMin, RetractableMax)
    others = {name for name, aggregator in AGGREGATORS.items() if issubclass(aggregator, in_python)}

    assert {aggregator.name for aggregator, _ in CASES.values()} | others == set(AGGREGATORS)


@pytest.mark.parametrize("case", CASES)
@examples(15)
@given(data=st.data())
def test_sql_folds_as_python_does(conn, case, data):
    aggregator, _ = CASES[case]
    left, right = data.draw(partials(case)), data.draw(partials(case))

    folded = {
        suffix: in_sql(conn, aggregator, template, stored=left, partial=right)
        for suffix, template in aggregator.fold_sql.items()
    }

    assert same(folded, aggregator.fold(left, right))


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case][0].fold_lua])
@examples(15)
@given(data=st.data())
def test_lua_folds_as_python_does(client, case, data):
    aggregator, _ = CASES[case]
    left, right = data.draw(partials(case)), data.draw(partials(case))

    assert same(in_lua(client, aggregator, left, right), aggregator.fold(left, right))


@pytest.mark.parametrize("case", CASES)
@examples(15)
@given(data=st.data())
def test_sql_finishes_as_python_does(conn, case, data):
    aggregator, _ = CASES[case]
    value = data.draw(partials(case))

    assert same(in_sql(conn, aggregator, aggregator.finish_sql, stored=value), aggregator.finish(value))


@pytest.mark.parametrize("case", CASES)
@examples(30)
@given(data=st.data())
def test_a_fold_may_be_reordered_and_regrouped(case, data):
    aggregator, _ = CASES[case]
    three = [data.draw(partials(case)) for _ in range(3)]
    fold = aggregator.fold

    results = [fold(fold(a, b), c) for a, b, c in permutations(three)]
    results += [fold(a, fold(b, c)) for a, b, c in permutations(three)]

    assert all(same(result, results[0], case in ROUNDED) for result in results)


@pytest.mark.parametrize("case", CASES)
@examples(20)
@given(data=st.data())
def test_a_missing_side_changes_nothing(case, data):
    aggregator, _ = CASES[case]
    value = data.draw(partials(case))
    nothing = dict.fromkeys(aggregator.columns)

    assert same(aggregator.finish(aggregator.fold(value, nothing)), aggregator.finish(value))
    assert same(aggregator.finish(aggregator.fold(nothing, value)), aggregator.finish(value))


@pytest.mark.parametrize(
    ("aggregator", "empty"),
    [
        (Count(), 0),
        (Sum("x", "double precision"), 0),
        (Min("x"), None),
        (Max("x", type="text"), None),
        (Mean("x"), None),
        (Variance("x"), None),
        (StdDev("x", of="population"), None),
        (First("x", by="t"), None),
        (Last("x", by="t", type="text"), None),
        (Latest("name", age="bigint", by="t"), {"name": None, "age": None}),
    ],
)
def test_empty_input_gives(conn, aggregator, empty):
    nothing = dict.fromkeys(aggregator.columns)

    assert aggregator.finish(nothing) == empty
    assert in_sql(conn, aggregator, aggregator.finish_sql, stored=nothing) == empty


def test_a_sum_of_numerics_loses_no_digit():
    total = Sum("x", type="numeric")
    large, small = Decimal("12345678901234567890123456789"), Decimal("0.000000001")

    assert total.fold({"": large}, {"": small}) == {"": Decimal("12345678901234567890123456789.000000001")}


def test_the_digits_of_a_numeric_are_declared():
    spec = StateSpec("paid", measures={"x": Sum("x", type="numeric(20, 2)")})
    cent, most = Decimal("0.01"), Decimal("999999999999999999.99")

    assert spec.fold({"x": cent}, {"x": most - cent}) == {"x": most}
    with pytest.raises(FoldRangeError) as refused:
        spec.fold({"x": cent}, {"x": most})
    assert str(refused.value) == f"measure x: 0.01 joined with {most} is out of the range of numeric(20, 2)"


@pytest.mark.parametrize("wrong", ["numeric(39, 2)", "numeric(3, 4)", "numeric(0, 0)"])
def test_more_digits_than_spark_has_are_refused(wrong):
    with pytest.raises(SpecError, match="too many digits or places"):
        Sum("x", type=wrong)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_arguments_build_the_same_aggregator_again(name):
    for aggregator, _ in CASES.values():
        if aggregator.name == name:
            again = AGGREGATORS[name](**aggregator.arguments())
            assert (again.partial(), again.columns) == (aggregator.partial(), aggregator.columns)


NUMERIC = "try_cast(`n` as decimal(38,9))"
# What a text or a time column cannot hold is no value.
TEXT = "if(not contains(try_cast({0} as string), char(0)), try_cast({0} as string), null)"
TIME = (
    "if(try_cast({0} as timestamp) between timestamp'0001-01-01 00:00:00Z' and timestamp'9999-12-31 23:59:59.999999Z', "
    "try_cast({0} as timestamp), null)"
)


@pytest.mark.parametrize(
    ("aggregator", "partial"),
    [
        (Count(), {"": "count(1)"}),
        (Count("delay > 15"), {"": "count_if(delay > 15)"}),
        (Sum("a`b", "double precision"), {"": "coalesce(sum(try_cast(`a``b` as double)), 0)"}),
        (Sum("n", type="numeric"), {"": f"if(count({NUMERIC}) = 0, 0, try_sum({NUMERIC}))"}),
        (Max("n", type="bigint"), {"": "max(try_cast(`n` as bigint))"}),
        (Max("n", type="numeric(38, 4)"), {"": "max(try_cast(`n` as decimal(38,4)))"}),
        (Min("n"), {"": "min(try_cast(`n` as double))"}),
        (Max("s", type="text"), {"": f"max({TEXT.format('`s`')})"}),
        (Min("t", type="timestamptz"), {"": f"min({TIME.format('`t`')})"}),
        (Mean("n"), {"sum": "coalesce(sum(try_cast(`n` as double)), 0)", "count": "count(`n`)"}),
    ],
)
def test_spark_is_asked_for(aggregator, partial):
    assert aggregator.partial() == partial


@pytest.mark.parametrize(
    ("aggregator", "values"),
    [
        (Count(), [{"": 2}, {"": None}, {"": 3}]),
        (Sum("x", "double precision"), [{"": 0.1}, {"": 0.2}, {"": None}, {"": 0.3}]),
        (Sum("x", "numeric"), [{"": Decimal("1.10")}, {"": Decimal("1e20")}, {"": None}]),
        (Mean("x"), [{"sum": 0.1, "count": 1}, {"sum": None, "count": 0}, {"sum": 0.7, "count": 2}]),
        (Mean("x", "numeric"), [{"sum": Decimal("0.1"), "count": 1}, {"sum": Decimal("7.05"), "count": 2}]),
    ],
)
def test_totals_of_many_values_are_those_of_pairs(aggregator, values):
    assert fold_all(aggregator, values) == aggregator.fold_all(values) == reduce(aggregator.fold, values)


def test_an_aggregator_that_folds_in_its_own_way_folds_many_so_too():
    class Product(Count):
        def fold(self, stored, partial):
            return {"": stored[""] * partial[""]}

    assert fold_all(Product(), [{"": 2}, {"": 3}, {"": 7}]) == {"": 42}

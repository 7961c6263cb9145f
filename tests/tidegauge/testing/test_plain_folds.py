import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tidegauge.state_backends import (
    Count,
    DistinctCount,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    Quantiles,
    RetractableMax,
    RetractableMin,
    RowCount,
    StdDev,
    Sum,
    Variance,
)
from tidegauge.testing.plain_folds import plain_fold

NINE, TEN = datetime(2026, 1, 1, 9, tzinfo=UTC), datetime(2026, 1, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(("aggregator", "rows", "expected"), [
    (Count(), [(True,), (True,)], 2),
    (Count(where="late"), [(True,), (False,), (None,)], 1),
    (RowCount(), [(True,), (True,)], 2),
    (RetractableMin("n", "bigint"), [(2,), (None,), (1,)], 1),
    (RetractableMax("n", "bigint"), [], None),
    (Sum("n", "bigint"), [(1,), (None,), (2,)], 3),
    (Sum("n", "numeric"), [(Decimal("0.1"),), (Decimal("0.2"),)], Decimal("0.3")),
    (Sum("n"), [(0.1,)] * 10, 1.0),
    (Sum("n"), [], 0),
    (Mean("n"), [(1,), (2,), (None,)], 1.5),
    (Mean("n"), [], None),
    (Min("n"), [(2.0,), (math.nan,), (1.0,)], 1.0),
    (Max("n", "text"), [("a",), ("b",), (None,)], "b"),
    (Max("n"), [], None),
    (First("n", by="at"), [(TEN, 1.0), (NINE, 3.0), (NINE, 2.0), (None, 0.0)], 2.0),
    (Last("n", by="at"), [(NINE, 1.0), (TEN, 2.0), (TEN, 3.0)], 3.0),
    (Latest("name", "city", by="at"), [(NINE, "Ann", "Oslo"), (TEN, None, "Rome")], {"name": "Ann", "city": "Rome"}),
    (Variance("n"), [(1,), (3,)], 2),
    (Variance("n", "population"), [(1,), (3,)], 1),
    (Variance("n"), [(1,)], None),
    (StdDev("n", "population"), [(1,), (5,)], 2),
    (DistinctCount("n"), [("a",), ("b",), ("a",), (None,)], 2),
])  # fmt: skip
def test_a_fold_gives_what_the_documentation_says(aggregator, rows, expected):
    fold = plain_fold(aggregator)

    assert fold is not None
    assert fold.is_alike(aggregator, fold.fold(aggregator, rows), expected)


def test_an_aggregator_of_a_users_own_has_none():
    class Own(Count):
        pass

    assert plain_fold(Own()) is None
    assert plain_fold(Quantiles("n")) is None


@pytest.mark.parametrize(("aggregator", "got", "expected", "alike"), [
    (Sum("n"), 0.1 + 0.2, 0.3, True),
    (Sum("n"), 0.3, Decimal("0.3"), True),
    (Sum("n", "numeric"), Decimal("0.3"), Decimal("0.31"), False),
    (Count(), 2, 3, False),
    (Count(), None, 0, False),
    (DistinctCount("n"), 100, 101, False),
    (DistinctCount("n"), 10_100, 10_000, True),
    (DistinctCount("n"), 11_000, 10_000, False),
])  # fmt: skip
def test_doubles_may_differ_in_their_last_digits_and_estimates_within_their_error(aggregator, got, expected, alike):
    fold = plain_fold(aggregator)

    assert fold is not None
    assert fold.is_alike(aggregator, got, expected) is alike

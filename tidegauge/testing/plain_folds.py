"""Plain folds: each aggregator again in plain Python, written from its documentation and not from its code.

Batches, partial aggregates, stored columns and SQL do not occur here: a fold gets all rows of a key as a list.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tidegauge.state_backends.aggregators import (
    Count,
    DistinctCount,
    DistinctSet,
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
from tidegauge.state_backends.aggregators.column import cast, order, quoted
from tidegauge.state_backends.protocols import Aggregator
from tidegauge.state_backends.repair.audit import are_close

Rows = Sequence[tuple[Any, ...]]

# By how many standard errors an estimate may differ: 999 of 1,000 correct ones are within this.
STANDARD_ERRORS = 3.3


def _is_alike(aggregator: Any, got: Any, expected: Any) -> bool:
    """Return whether a value equals the expected one; doubles may differ in their last digits."""
    numbers = isinstance(got, int | float | Decimal) and isinstance(expected, int | float | Decimal)
    if numbers and isinstance(got, float) != isinstance(expected, float):
        got, expected = float(got), float(expected)
    return are_close(got, expected)


@dataclass(frozen=True)
class PlainFold:
    """reads: Spark SQL of the values that the fold needs of a row. fold: computes the result from all rows' values.

    is_alike: whether a state's value may be that result.
    """

    reads: Callable[[Any], list[str]]
    fold: Callable[[Any, Rows], Any]
    is_alike: Callable[[Any, Any, Any], bool] = _is_alike


def plain_fold(aggregator: Aggregator) -> PlainFold | None:
    """Return the fold of an aggregator; None if there is none, for example for a user's own aggregator."""
    return PLAIN_FOLDS.get(type(aggregator))


def _count(aggregator: Count, rows: Rows) -> int:
    return sum(1 for (counts,) in rows if counts)


def _sum(aggregator: Sum, rows: Rows) -> Any:
    numbers = _numbers(rows)
    return _added(numbers) if any(isinstance(number, float) for number in numbers) else sum(numbers)


def _mean(aggregator: Mean, rows: Rows) -> float | None:
    numbers = _numbers(rows)
    return _added(numbers) / len(numbers) if numbers else None


def _min(aggregator: Min, rows: Rows) -> Any:
    return min(_present(rows), key=order, default=None)


def _max(aggregator: Max, rows: Rows) -> Any:
    return max(_present(rows), key=order, default=None)


def _first(aggregator: First, rows: Rows) -> Any:
    return min(_timed(rows), key=_by_time, default=(None, None))[1]


def _last(aggregator: Last, rows: Rows) -> Any:
    return max(_timed(rows), key=_by_time, default=(None, None))[1]


def _latest(aggregator: Latest, rows: Rows) -> dict[str, Any]:
    columns = enumerate(aggregator.fields, start=1)
    return {name: _last(None, [(row[0], row[place]) for row in rows]) for place, name in columns}  # type: ignore


def _variance(aggregator: Variance, rows: Rows) -> float | None:
    numbers = [float(number) for number in _numbers(rows)]
    if len(numbers) <= aggregator.subtracted:
        return None
    return statistics.variance(numbers) if aggregator.subtracted else statistics.pvariance(numbers)


def _std_dev(aggregator: StdDev, rows: Rows) -> float | None:
    variance = _variance(aggregator, rows)
    return None if variance is None else math.sqrt(variance)


def _distinct(aggregator: Any, rows: Rows) -> int:
    return len(set(_present(rows)) - {""})  # without "", because Spark's sketches ignore empty text


def _is_near(aggregator: DistinctCount | DistinctSet, got: Any, expected: int) -> bool:
    """Return whether an estimate fits the true number: exact for few values, else within its error."""
    registers = 2**aggregator.lg_k
    exact_up_to = registers / 16 if isinstance(aggregator, DistinctCount) else registers
    error = 0.0 if expected <= exact_up_to else STANDARD_ERRORS * 1.04 / math.sqrt(registers - 1)
    return isinstance(got, int) and abs(got - expected) <= error * expected


def _added(numbers: Sequence[Any]) -> float:
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):  # beyond the largest double, or of infinities
        return math.inf


def _present(rows: Rows) -> list[Any]:
    return [value for (value,) in rows if value is not None]


def _numbers(rows: Rows) -> list[Any]:
    return [Decimal(value) if isinstance(value, str) else value for value in _present(rows)]


def _timed(rows: Rows) -> Iterable[tuple[Any, Any]]:
    return [(at, value) for at, value in rows if at is not None and value is not None]


def _by_time(pair: tuple[Any, Any]) -> tuple[Any, ...]:
    return pair[0], order(pair[1])


def _by(aggregator: First | Last) -> list[str]:
    return [cast(aggregator.by, "timestamptz"), cast(aggregator.column, aggregator.result_type)]


def _column(aggregator: Any) -> list[str]:
    return [quoted(aggregator.column)]


def _typed(aggregator: Min | Max) -> list[str]:
    return [cast(aggregator.column, aggregator.result_type)]


PLAIN_FOLDS: dict[type, PlainFold] = {
    Count: PlainFold(lambda count: [f"({count.where})" if count.where else "true"], _count),
    RowCount: PlainFold(lambda count: ["true"], _count),
    Sum: PlainFold(_column, _sum),
    Mean: PlainFold(_column, _mean),
    Min: PlainFold(_typed, _min),
    Max: PlainFold(_typed, _max),
    RetractableMin: PlainFold(_typed, _min),
    RetractableMax: PlainFold(_typed, _max),
    First: PlainFold(_by, _first),
    Last: PlainFold(_by, _last),
    Latest: PlainFold(
        lambda latest: [
            cast(latest.by, "timestamptz"),
            *(cast(name, sql_type) for name, sql_type in latest.fields.items()),
        ],
        _latest,
    ),
    Variance: PlainFold(_column, _variance),
    StdDev: PlainFold(_column, _std_dev),
    DistinctCount: PlainFold(lambda count: [cast(count.column, count.type)], _distinct, _is_near),
    DistinctSet: PlainFold(lambda count: [cast(count.column, count.type)], _distinct, _is_near),
}

"""Min, Max, Variance and StdDev: aggregators over the values of one column. Running totals are in total.py.

SQL and Python can fold all of them. A state in Redis folds `numeric` columns in Python, because Lua has no decimals.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, LiteralString

from tidegauge.state_backends.aggregators.column import VALUE_TYPES, cast, greatest, least, stored_type
from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.protocols import Input

# What a variance subtracts from the count before it divides, in Python and in SQL.
SUBTRACTED: dict[str, tuple[int, LiteralString]] = {"sample": (1, "1"), "population": (0, "0")}

# Bounds of the numbers that a variance squares, because PostgreSQL raises an error if a product over- or underflows.
# Within them no square does, and neither does a sum of 2^63 squares.
SMALLEST, LARGEST = "1e-100", "1e140"


class Extreme:
    """Shared by Min, Max and their retractable versions. `pick` chooses one of several Python values, without nulls."""

    name: ClassVar[str]
    pick: ClassVar[Callable[..., Any]]
    is_choice = True
    fold_sql: ClassVar[Mapping[str, LiteralString]]
    finish_sql: LiteralString = "{stored}"

    def __init__(self, column: str, type: str | None = None) -> None:
        self.column = column
        self.has_type = type is not None
        type = type or "double precision"
        self.columns = {"": stored_type(type, f"{self.__class__.__name__}({column!r})", VALUE_TYPES)}
        self.result_type: str = type
        kinds = {"bigint": "integer", "double precision": "double"}
        self.fold_lua = {"": f"{self.name}_{kinds[type]}({{stored}}, {{partial}})"} if type in kinds else {}

    def partial(self) -> dict[str, str]:
        return {"": f"{self.name}({cast(self.column, self.result_type)})"}

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        return {"": self.pick(stored[""], partial[""])}

    def finish(self, stored: Mapping[str, Any]) -> Any:
        return stored[""]

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(self.column, self.result_type, is_given=self.has_type),)

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "type": self.result_type}


class Min(Extreme):
    """The smallest value. Stored: the smallest so far. Empty input gives null; nulls do not count.

    column: what to compare. type: `double precision`, `bigint`, `numeric`, `text` (in byte order), `timestamptz` or
    `boolean`; `numeric(38, 4)` keeps four places instead of nine. None means `double precision`; a pipeline whose
    column has values that a double cannot hold is then refused. NaN is the largest number, as in PostgreSQL.
    Raises SpecError for another type.
    """

    name = "min"
    pick = staticmethod(least)
    fold_sql: ClassVar[Mapping[str, LiteralString]] = {"": "least({stored}, {partial})"}


class Max(Extreme):
    """The largest value. Stored: the largest so far. Empty input gives null; nulls do not count.

    column, type: as for Min. NaN is the largest number, as in PostgreSQL.
    Raises SpecError for another type.
    """

    name = "max"
    pick = staticmethod(greatest)
    fold_sql: ClassVar[Mapping[str, LiteralString]] = {"": "greatest({stored}, {partial})"}


class Variance:
    """The variance. Stored: count, mean, and `m2`, the sum of squared distances from the mean.

    column: the numbers, as doubles; nulls do not count. of: `sample` divides m2 by one less than the count and gives
    null below two numbers; `population` divides by the count and gives null for empty input.
    An event with a NaN, an infinity or a number beyond 1e140 is a dead letter; a number nearer to 0 than 1e-100 counts
    as 0. Raises SpecError for another `of`.

    Two partials are joined by the formula of Chan, Golub and LeVeque (Updating Formulae and a Pairwise Algorithm for
    Computing Sample Variances, 1979), because it loses no digits if the mean is large and the variance is small.
    """

    name: ClassVar[str] = "variance"
    columns: ClassVar[Mapping[str, LiteralString]] = {
        "count": "bigint",
        "mean": "double precision",
        "m2": "double precision",
    }
    fold_sql: ClassVar[Mapping[str, LiteralString]] = {
        "count": "coalesce({stored_count}, 0) + coalesce({partial_count}, 0)",
        "mean": "CASE WHEN coalesce({stored_count}, 0) = 0 THEN {partial_mean} "
        "WHEN coalesce({partial_count}, 0) = 0 THEN {stored_mean} "
        "ELSE {stored_mean} + ({partial_mean} - {stored_mean}) "
        "* ({partial_count} / ({stored_count} + {partial_count})::double precision) END",
        "m2": "CASE WHEN coalesce({stored_count}, 0) = 0 THEN {partial_m2} "
        "WHEN coalesce({partial_count}, 0) = 0 THEN {stored_m2} "
        "ELSE {stored_m2} + {partial_m2} + ({partial_mean} - {stored_mean}) * ({partial_mean} - {stored_mean}) "
        "* ({stored_count} * ({partial_count} / ({stored_count} + {partial_count})::double precision)) END",
    }
    # The expressions test for nil, because in Lua mean and m2 are nil if nothing was counted.
    fold_lua: ClassVar[Mapping[str, str]] = {
        "count": "add_integer({stored_count}, {partial_count})",
        "mean": "{stored_mean} and {partial_mean} and add_double({stored_mean}, ({partial_mean} - {stored_mean}) "
        "* ({partial_count} / ({stored_count} + {partial_count}))) or {stored_mean} or {partial_mean}",
        "m2": "{stored_m2} and {partial_m2} and add_double(add_double({stored_m2}, {partial_m2}), "
        "({partial_mean} - {stored_mean}) * ({partial_mean} - {stored_mean}) "
        "* ({stored_count} * ({partial_count} / ({stored_count} + {partial_count})))) or {stored_m2} or {partial_m2}",
    }
    finish_sql: LiteralString
    result_type = "double precision"

    def __init__(self, column: str, of: str = "sample") -> None:
        if of not in SUBTRACTED:
            raise SpecError(f"{self.__class__.__name__}({column!r}): of {of!r} is not one of {', '.join(SUBTRACTED)}")
        self.column = column
        self.of = of
        self.subtracted, number = SUBTRACTED[of]
        self.finish_sql = "{stored_m2} / nullif({stored_count} - " + number + ", 0)"

    def partial(self) -> dict[str, str]:
        x = cast(self.column, "double precision")
        bounded = f"case when abs({x}) > {LARGEST} then double('NaN') when abs({x}) < {SMALLEST} then 0D else {x} end"
        return {"count": f"count({x})", "mean": f"avg({bounded})", "m2": f"regr_sxx({bounded}, {bounded})"}

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        left, right = stored["count"] or 0, partial["count"] or 0
        if not left or not right:
            return {**(stored if left else partial), "count": left + right}
        distance, share = partial["mean"] - stored["mean"], right / (left + right)
        m2 = stored["m2"] + partial["m2"] + distance * distance * (left * share)
        return {"count": left + right, "mean": stored["mean"] + distance * share, "m2": m2}

    def finish(self, stored: Mapping[str, Any]) -> float | None:
        divisor = (stored["count"] or 0) - self.subtracted
        return stored["m2"] / divisor if divisor > 0 else None

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(self.column, "double precision", float(LARGEST)),)

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "of": self.of}


class StdDev(Variance):
    """The standard deviation: the square root of the variance. Stored as for Variance.

    column, of: as for Variance.
    """

    name = "std_dev"

    def __init__(self, column: str, of: str = "sample") -> None:
        super().__init__(column, of)
        self.finish_sql = "sqrt(" + self.finish_sql + ")"

    def finish(self, stored: Mapping[str, Any]) -> float | None:
        variance = super().finish(stored)
        return None if variance is None else math.sqrt(variance)

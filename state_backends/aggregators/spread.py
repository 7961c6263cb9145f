"""Variance and StdDev: how far the numbers of a column lie from their mean."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, LiteralString

from state_backends.aggregators.column import cast
from state_backends.errors import SpecError

# What is left out of the number of values to divide by.
LEFT_OUT: dict[str, tuple[int, LiteralString]] = {"sample": (1, "1"), "population": (0, "0")}

# PostgreSQL refuses a product that overflows or vanishes. Between these bounds no square does, nor the sum of 2^63.
SMALLEST, LARGEST = "1e-100", "1e140"


class _Spread:
    """Stored: how many numbers, their mean, and `m2`, the sum of squared distances from it.

    column: the numbers, as doubles; nulls do not count. of: `sample` divides m2 by one less than the numbers there
    are and is null below two; `population` divides by all of them and is null for none.
    NaN, an infinity or a number beyond 1e140 makes the result NaN for good; one nearer to 0 than 1e-100 counts as 0.

    Two partials join by the formula of Chan, Golub and LeVeque (Updating Formulae and a Pairwise Algorithm for
    Computing Sample Variances, 1979), which loses no digits where the mean is large and the spread is small.
    """

    name: ClassVar[str]
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
    # A mean and its m2 are missing where nothing was counted.
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
        if of not in LEFT_OUT:
            raise SpecError(f"{self.__class__.__name__}({column!r}): of {of!r} is none of {', '.join(LEFT_OUT)}")
        self.column = column
        self.of = of
        self.left_out, number = LEFT_OUT[of]
        self.finish_sql = "{stored_m2} / nullif({stored_count} - " + number + ", 0)"

    def partial(self) -> dict[str, str]:
        x = cast(self.column, "double precision")
        bounded = f"case when abs({x}) > {LARGEST} then double('NaN') when abs({x}) < {SMALLEST} then 0D else {x} end"
        return {"count": f"count({x})", "mean": f"avg({bounded})", "m2": f"regr_sxx({bounded}, {bounded})"}

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        left, right = stored["count"] or 0, partial["count"] or 0
        if not left or not right:
            return {**(stored if left else partial), "count": left + right}
        apart, share = partial["mean"] - stored["mean"], right / (left + right)
        m2 = stored["m2"] + partial["m2"] + apart * apart * (left * share)
        return {"count": left + right, "mean": stored["mean"] + apart * share, "m2": m2}

    def finish(self, stored: Mapping[str, Any]) -> float | None:
        numbers = (stored["count"] or 0) - self.left_out
        return stored["m2"] / numbers if numbers > 0 else None

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "of": self.of}


class Variance(_Spread):
    __doc__ = f"The variance. {_Spread.__doc__}"
    name = "variance"


class StdDev(_Spread):
    __doc__ = f"The standard deviation, the root of the variance. {_Spread.__doc__}"
    name = "std_dev"

    def __init__(self, column: str, of: str = "sample") -> None:
        super().__init__(column, of)
        self.finish_sql = "sqrt(" + self.finish_sql + ")"

    def finish(self, stored: Mapping[str, Any]) -> float | None:
        variance = super().finish(stored)
        return None if variance is None else math.sqrt(variance)

"""Count, RowCount, Sum and Mean: running totals. Rows can be retracted from them, except from sums of doubles.

SQL and Python can fold all of them. A state in Redis folds `numeric` columns in Python, because Lua has no decimals.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from operator import add
from typing import Any, ClassVar, LiteralString

from tidegauge.state_backends.aggregators.column import cast, quoted, stored_type
from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.protocols import Input
from tidegauge.state_backends.spec.types import EXACT, type_of


class Count:
    """Counts rows. Stored: the running count. Empty input gives 0.

    where: a Spark SQL condition; only rows that meet it are counted. None counts every row.
    A count over 2^63 - 1 is refused: see FoldRangeError.
    """

    name: ClassVar[str] = "count"
    columns: ClassVar[Mapping[str, LiteralString]] = {"": "bigint"}
    fold_sql: ClassVar[Mapping[str, LiteralString]] = {"": "coalesce({stored}, 0) + coalesce({partial}, 0)"}
    fold_lua: ClassVar[Mapping[str, str]] = {"": "add_integer({stored}, {partial})"}
    finish_sql: LiteralString = "coalesce({stored}, 0)"
    result_type = "bigint"

    def __init__(self, where: str | None = None) -> None:
        self.where = where

    def partial(self) -> dict[str, str]:
        return {"": "count(1)" if self.where is None else f"count_if({self.where})"}

    def signed_partial(self, sign: str) -> dict[str, str]:
        return {"": _signed_count("true" if self.where is None else self.where, sign)}

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        return {"": (stored[""] or 0) + (partial[""] or 0)}

    def fold_all(self, values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        return {"": sum(value[""] or 0 for value in values)}

    def finish(self, stored: Mapping[str, Any]) -> int:
        return stored[""] or 0

    def arguments(self) -> dict[str, Any]:
        return {"where": self.where}


class RowCount(Count):
    """The number of rows that a group has in a changing table. At 0 the key is removed, so readers do not find it.

    A state over retracted rows needs one, unless it has no key. A state has at most one.
    """

    name = "row_count"
    removes_at_zero = True

    def __init__(self) -> None:
        super().__init__()

    def arguments(self) -> dict[str, Any]:
        return {}


class Sum:
    """Adds numbers. Stored: the running total. Empty input gives 0; nulls add nothing.

    column: what to add. type: `numeric`, `bigint`, `double precision`, or `numeric(p, s)` for totals of up to p digits,
    38 at most, of which s are decimal places; `numeric` is `numeric(38, 9)`. None means `numeric`; a pipeline whose
    column is a double, or has more digits than that, is then refused and must name the type.
    A bigint or numeric total is exact: an event whose number has more places than are kept is a dead letter. So is a
    NaN or an infinity, for any type, because the total would never be a number again. A total that leaves the range of
    its type is refused: see FoldRangeError. Whole numbers are exact in a double up to 2^53.
    Raises SpecError for another type.
    """

    name: ClassVar[str] = "sum"
    finish_sql: LiteralString = "coalesce({stored}, 0)"
    totals = ("",)

    def __init__(self, column: str, type: str | None = None) -> None:
        self.column = column
        self.has_type = type is not None
        type = type or "numeric"
        self.columns = {"": stored_type(type, f"Sum({column!r})")}
        self.result_type: str = type
        # Cast, because a numeric column would accept a total with too many digits; the other types raise an error.
        within: LiteralString = f"::{type_of(type).name}" if type_of(type).digits else ""
        self.fold_sql: Mapping[str, LiteralString] = {
            "": f"(coalesce({{stored}}, 0) + coalesce({{partial}}, 0)){within}"
        }
        adds = {"bigint": "add_integer", "double precision": "add_double"}
        self.fold_lua = {"": f"{adds[type]}({{stored}}, {{partial}})"} if type in adds else {}

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(self.column, self.result_type, sys.float_info.max, is_given=self.has_type),)

    def partial(self) -> dict[str, str]:
        """Return Spark SQL for the total of a batch, which is null or infinite if it leaves the range of its type."""
        return {"": _total(self.column, self.result_type)}

    def signed_partial(self, sign: str) -> dict[str, str]:
        return {"": _signed_total(self, self.result_type, sign)}

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        return {"": _plus(self.result_type)(stored[""] or 0, partial[""] or 0)}

    def fold_all(self, values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        return {"": reduce(_plus(self.result_type), (value[""] or 0 for value in values), 0)}

    def finish(self, stored: Mapping[str, Any]) -> Any:
        return stored[""] or 0

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "type": self.result_type}


class Mean:
    """The arithmetic mean. Stored: the sum and the count of the numbers. Empty input gives null; nulls do not count.

    column: the numbers. type: the type of their sum, as for Sum; the mean itself is a double. None means `double
    precision`; a pipeline in which the column is not a number is refused. An event with a NaN or an infinity is a dead
    letter, and so is one whose number an exact type cannot hold. A sum that leaves the range of its type is refused:
    see FoldRangeError.
    """

    name: ClassVar[str] = "mean"
    result_type = "double precision"
    totals = ("sum",)

    def __init__(self, column: str, type: str | None = None) -> None:
        self.has_type = type is not None
        type = type or "double precision"
        self.column, self.type = column, type
        self.columns: Mapping[str, LiteralString] = {"sum": stored_type(type, f"Mean({column!r})"), "count": "bigint"}
        as_double: LiteralString = "" if type == "double precision" else "::double precision"
        self.finish_sql: LiteralString = f"{{stored_sum}}{as_double} / nullif({{stored_count}}, 0)"
        within: LiteralString = f"::{type_of(type).name}" if type_of(type).digits else ""
        self.fold_sql: Mapping[str, LiteralString] = {
            "sum": f"(coalesce({{stored_sum}}, 0) + coalesce({{partial_sum}}, 0)){within}",
            "count": "coalesce({stored_count}, 0) + coalesce({partial_count}, 0)",
        }
        adds = {"bigint": "add_integer", "double precision": "add_double"}
        count = "add_integer({stored_count}, {partial_count})"
        self.fold_lua = (
            {"sum": f"{adds[type]}({{stored_sum}}, {{partial_sum}})", "count": count} if type in adds else {}
        )

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(self.column, self.type, sys.float_info.max, is_given=self.has_type),)

    def partial(self) -> dict[str, str]:
        return {"sum": _total(self.column, self.type), "count": f"count({quoted(self.column)})"}

    def signed_partial(self, sign: str) -> dict[str, str]:
        is_counted = f"{quoted(self.column)} is not null"
        return {"sum": _signed_total(self, self.type, sign), "count": _signed_count(is_counted, sign)}

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        total = _plus(self.type)(stored["sum"] or 0, partial["sum"] or 0)
        return {"sum": total, "count": (stored["count"] or 0) + (partial["count"] or 0)}

    def fold_all(self, values: Collection[Mapping[str, Any]]) -> dict[str, Any]:
        total = reduce(_plus(self.type), (value["sum"] or 0 for value in values), 0)
        return {"sum": total, "count": sum(value["count"] or 0 for value in values)}

    def finish(self, stored: Mapping[str, Any]) -> float | None:
        return float(stored["sum"]) / stored["count"] if stored["count"] else None

    def arguments(self) -> dict[str, Any]:
        # Without the default type, because it must equal the definitions that earlier versions have stored.
        return {"column": self.column} | ({} if self.type == "double precision" else {"type": self.type})


def _plus(sql_type: str) -> Callable[[Any, Any], Any]:
    """Return how two numbers of a stored type add up.

    Several are added pair by pair: sum() compensates for rounding from Python 3.12 on, so versions would differ.
    """
    return EXACT.add if type_of(sql_type).digits else add


def _total(column: str, sql_type: str) -> str:
    value = cast(column, sql_type)
    if sql_type == "double precision":
        return f"coalesce(sum({value}), 0)"
    return f"if(count({value}) = 0, 0, try_sum({value}))"


def _signed_total(aggregator: "Sum | Mean", sql_type: str, sign: str) -> str:
    """Return Spark SQL for a batch's total minus what is retracted; null if it leaves the range of its type."""
    whose = f"{type(aggregator).__name__}({aggregator.column!r})"
    if sql_type == "double precision":
        raise SpecError(
            f"{whose}: a sum of doubles is rounded, so subtracting a number does not restore the sum from before; "
            f"use {whose[:-1]}, type='numeric') or type='bigint'"
        )
    value = cast(aggregator.column, sql_type)
    if sql_type == "bigint":
        # As decimals, because the negative of the smallest bigint is out of range.
        signed = f"cast({value} as decimal(19, 0))"
        return f"try_cast(coalesce(sum(if({sign} < 0, -{signed}, {signed})), 0) as bigint)"
    return f"if(count({value}) = 0, 0, try_sum(if({sign} < 0, -{value}, {value})))"


def _signed_count(condition: str, sign: str) -> str:
    return f"coalesce(sum(if({condition}, if({sign} < 0, -1L, 1L), 0L)), 0L)"

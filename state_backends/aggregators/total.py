"""Count, Sum and Mean: running totals, exact or refused.

SQL and Python fold all of them. Lua has no decimals, so a state in Redis folds `numeric` columns in Python.
"""

import sys
from collections.abc import Mapping
from typing import Any, ClassVar, LiteralString

from state_backends.aggregators.column import cast, quoted, stored_type
from state_backends.protocols import Input
from state_backends.types import EXACT, type_of


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

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        return {"": (stored[""] or 0) + (partial[""] or 0)}

    def finish(self, stored: Mapping[str, Any]) -> int:
        return stored[""] or 0

    def arguments(self) -> dict[str, Any]:
        return {"where": self.where}


class Sum:
    """Adds numbers. Stored: the running total. Empty input gives 0; nulls add nothing.

    column: what to add. type: `double precision`, `bigint`, `numeric`, or `numeric(p, s)` for totals of up to p digits,
    38 at most, of which s are decimal places; `numeric` is `numeric(38, 9)`.
    A bigint or numeric total is exact: an event whose number has more places than are kept is a dead letter, as is a
    NaN or an infinity in any total, which would never be a number again. A total that leaves the range of its type is
    refused: see FoldRangeError. Whole numbers are exact in a double up to 2^53.
    Raises SpecError for another type.
    """

    name: ClassVar[str] = "sum"
    finish_sql: LiteralString = "coalesce({stored}, 0)"
    totals = ("",)

    def __init__(self, column: str, type: str = "double precision") -> None:
        self.column = column
        self.columns = {"": stored_type(type, f"Sum({column!r})")}
        self.result_type: str = type
        # The cast raises an error where a numeric total has too many digits; the other types do so by themselves.
        within: LiteralString = f"::{type_of(type).name}" if type_of(type).digits else ""
        self.fold_sql: Mapping[str, LiteralString] = {
            "": f"(coalesce({{stored}}, 0) + coalesce({{partial}}, 0)){within}"
        }
        adds = {"bigint": "add_integer", "double precision": "add_double"}
        self.fold_lua = {"": f"{adds[type]}({{stored}}, {{partial}})"} if type in adds else {}

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(self.column, self.result_type, sys.float_info.max),)

    def partial(self) -> dict[str, str]:
        """A total of the batch that leaves the range of its type is null or infinite."""
        value = cast(self.column, self.result_type)
        if self.result_type == "double precision":
            return {"": f"coalesce(sum({value}), 0)"}
        return {"": f"if(count({value}) = 0, 0, try_sum({value}))"}

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        left, right = stored[""] or 0, partial[""] or 0
        return {"": EXACT.add(left, right) if type_of(self.result_type).digits else left + right}

    def finish(self, stored: Mapping[str, Any]) -> Any:
        return stored[""] or 0

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "type": self.result_type}


class Mean:
    """The arithmetic mean. Stored: the sum and the count of the numbers. Empty input gives null; nulls do not count.

    column: the numbers, as doubles. An event with a NaN or an infinity is a dead letter; a sum that leaves the range of
    doubles is refused: see FoldRangeError.
    """

    name: ClassVar[str] = "mean"
    columns: ClassVar[Mapping[str, LiteralString]] = {"sum": "double precision", "count": "bigint"}
    fold_sql: ClassVar[Mapping[str, LiteralString]] = {
        "sum": "coalesce({stored_sum}, 0) + coalesce({partial_sum}, 0)",
        "count": "coalesce({stored_count}, 0) + coalesce({partial_count}, 0)",
    }
    fold_lua: ClassVar[Mapping[str, str]] = {
        "sum": "add_double({stored_sum}, {partial_sum})",
        "count": "add_integer({stored_count}, {partial_count})",
    }
    finish_sql: LiteralString = "{stored_sum} / nullif({stored_count}, 0)"
    result_type = "double precision"
    totals = ("sum",)

    def __init__(self, column: str) -> None:
        self.column = column

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(self.column, "double precision", sys.float_info.max),)

    def partial(self) -> dict[str, str]:
        return {
            "sum": f"coalesce(sum({cast(self.column, 'double precision')}), 0)",
            "count": f"count({quoted(self.column)})",
        }

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        return {part: (stored[part] or 0) + (partial[part] or 0) for part in self.columns}

    def finish(self, stored: Mapping[str, Any]) -> float | None:
        return stored["sum"] / stored["count"] if stored["count"] else None

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column}

"""Sum and Mean: totals of a column."""

from collections.abc import Mapping
from decimal import Context
from typing import Any, ClassVar, LiteralString

from state_backends.aggregators.column import cast, quoted, stored_type

# As many digits as a PostgreSQL numeric can have; Python would round a sum at 28.
EXACT = Context(prec=131_072 + 16_383)


class Sum:
    """Adds numbers. Stored: the running total. Empty input gives 0; nulls add nothing.

    column: what to add. type: `double precision`, `bigint` or `numeric`; whole numbers are exact in a double up to
    2^53, and a bigint that overflows is an error, not a wrong total.
    """

    name: ClassVar[str] = "sum"
    fold_sql: ClassVar[Mapping[str, LiteralString]] = {"": "coalesce({stored}, 0) + coalesce({partial}, 0)"}
    finish_sql: LiteralString = "coalesce({stored}, 0)"

    def __init__(self, column: str, type: str = "double precision") -> None:
        self.column = column
        self.columns = {"": stored_type(type, f"Sum({column!r})")}
        self.result_type: str = type
        # Lua has no decimals.
        adds = {"bigint": "add_integer", "double precision": "add_double"}
        self.fold_lua = {"": f"{adds[type]}({{stored}}, {{partial}})"} if type in adds else {}

    def partial(self) -> dict[str, str]:
        return {"": f"coalesce(sum({cast(self.column, self.result_type)}), 0)"}

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        left, right = stored[""] or 0, partial[""] or 0
        return {"": EXACT.add(left, right) if self.result_type == "numeric" else left + right}

    def finish(self, stored: Mapping[str, Any]) -> Any:
        return stored[""] or 0

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "type": self.result_type}


class Mean:
    """The arithmetic mean. Stored: the total and how many numbers went into it. Empty input gives null."""

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

    def __init__(self, column: str) -> None:
        self.column = column

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

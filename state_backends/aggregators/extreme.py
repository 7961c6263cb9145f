"""Min and Max: the smallest and the largest value of a column."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, LiteralString

from state_backends.aggregators.column import cast, number_type


class _Extreme:
    """Stored: the extreme so far. Empty input gives null; nulls do not count.

    column: what to compare. type: `double precision`, `bigint` or `numeric`.
    """

    name: ClassVar[str]
    pick: ClassVar[Callable[..., Any]]
    fold_sql: ClassVar[Mapping[str, LiteralString]]
    finish_sql: LiteralString = "{stored}"

    def __init__(self, column: str, type: str = "double precision") -> None:
        self.column = column
        self.columns = {"": number_type(type, f"{self.__class__.__name__}({column!r})")}
        self.result_type: str = type
        kinds = {"bigint": "integer", "double precision": "double"}
        self.fold_lua = {"": f"{self.name}_{kinds[type]}({{stored}}, {{partial}})"} if type in kinds else {}

    def partial(self) -> dict[str, str]:
        return {"": f"{self.name}({cast(self.column, self.result_type)})"}

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        numbers = [number for number in (stored[""], partial[""]) if number is not None]
        return {"": self.pick(numbers, key=_order, default=None)}

    def finish(self, stored: Mapping[str, Any]) -> Any:
        return stored[""]

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "type": self.result_type}


class Min(_Extreme):
    __doc__ = f"The smallest value. {_Extreme.__doc__}"
    name = "min"
    pick = staticmethod(min)
    fold_sql: ClassVar[Mapping[str, LiteralString]] = {"": "least({stored}, {partial})"}


class Max(_Extreme):
    __doc__ = f"The largest value. {_Extreme.__doc__}"
    name = "max"
    pick = staticmethod(max)
    fold_sql: ClassVar[Mapping[str, LiteralString]] = {"": "greatest({stored}, {partial})"}


def _order(number: Any) -> tuple[bool, Any]:
    # PostgreSQL and Spark hold NaN to be the largest number; Python cannot order it.
    return (number != number, 0 if number != number else number)

"""Min and Max: the smallest and the largest value of a column."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, LiteralString

from state_backends.aggregators.column import VALUE_TYPES, cast, stored_type
from state_backends.aggregators.values import greatest, least


class _Extreme:
    """Stored: the extreme so far. Empty input gives null; nulls do not count, and NaN is the largest number.

    column: what to compare. type: `double precision`, `bigint`, `numeric`, `text` (in byte order), `timestamptz` or
    `boolean`.
    """

    name: ClassVar[str]
    pick: ClassVar[Callable[..., Any]]
    fold_sql: ClassVar[Mapping[str, LiteralString]]
    finish_sql: LiteralString = "{stored}"

    def __init__(self, column: str, type: str = "double precision") -> None:
        self.column = column
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

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "type": self.result_type}


class Min(_Extreme):
    __doc__ = f"The smallest value. {_Extreme.__doc__}"
    name = "min"
    pick = staticmethod(least)
    fold_sql: ClassVar[Mapping[str, LiteralString]] = {"": "least({stored}, {partial})"}


class Max(_Extreme):
    __doc__ = f"The largest value. {_Extreme.__doc__}"
    name = "max"
    pick = staticmethod(greatest)
    fold_sql: ClassVar[Mapping[str, LiteralString]] = {"": "greatest({stored}, {partial})"}

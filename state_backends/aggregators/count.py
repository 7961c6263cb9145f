"""Count: how many rows, or how many of them meet a condition."""

from collections.abc import Mapping
from typing import Any, ClassVar, LiteralString


class Count:
    """Counts rows. Stored: the running count. Empty input gives 0.

    where: a Spark SQL condition; only rows that meet it are counted. None counts every row.
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

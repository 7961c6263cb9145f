"""Reducer: a measure of a user's own, folded in plain Python."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, LiteralString


class Reducer(ABC):
    """Stored: one JSON value, which readers see as it is. Trident's CombinerAggregator.

    Write a child with a `name`, a `partial` that gathers a batch, a `reduce` that joins two values, and `arguments`;
    then add the line `AGGREGATORS["its_name"] = ItsClass` to a module that every process imports which reads the
    catalog. docs/aggregators.md has an example.

    empty: what nothing stands for in `reduce`, which must not change it: return new values.
    """

    name: ClassVar[str]
    empty: ClassVar[Any] = None
    columns: ClassVar[Mapping[str, LiteralString]] = {"": "jsonb"}
    fold_sql: ClassVar[Mapping[str, LiteralString]] = {}
    fold_lua: ClassVar[Mapping[str, str]] = {}
    finish_sql: LiteralString = "{stored}"
    result_type = "jsonb"

    @abstractmethod
    def partial(self) -> dict[str, str]:
        """Return `{"": expression}`, the Spark SQL that aggregates a batch to arrays, structs, texts and numbers."""

    @abstractmethod
    def reduce(self, left: Any, right: Any) -> Any:
        """Join two values, of two batches or two keys, to one that JSON can hold. In any order, grouped in any way.

        The first batch of a key is joined with `empty`, so a bound on the size holds from the start.
        """

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, as JSON can hold them."""

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        return {"": self.reduce(self._value(stored), self._value(partial))}

    def finish(self, stored: Mapping[str, Any]) -> Any:
        return stored[""]

    def _value(self, side: Mapping[str, Any]) -> Any:
        value = side.get("")
        return self.empty if value is None else value

"""Reducer: the base class of a user's own aggregator, folded in plain Python."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, LiteralString


class Reducer(ABC):
    """Folds values in Python. Stored: one JSON value, which readers see unchanged. Empty input gives null.

    Write a subclass with a `name`, a `partial` that aggregates a batch, a `reduce` that joins two values, and
    `arguments`. Then add `AGGREGATORS["its_name"] = ItsClass` to a module that is imported by every process that reads
    the catalog. docs/aggregators.md has an example.

    empty: what `reduce` gets in place of a missing value. `reduce` must not change it; it returns new values.
    Trident's CombinerAggregator (apache/storm, trident/operation/CombinerAggregator.java).
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
        """Return `{"": expression}`: Spark SQL that aggregates a batch to arrays, structs, texts and numbers."""

    @abstractmethod
    def reduce(self, left: Any, right: Any) -> Any:
        """Join two values, of two batches or of two keys, into one that JSON can hold. Associative and commutative.

        The first batch of a key is joined with `empty`, so that a size limit in `reduce` applies from the start.
        """

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, as values that JSON can hold."""

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        return {"": self.reduce(self._value(stored), self._value(partial))}

    def finish(self, stored: Mapping[str, Any]) -> Any:
        return stored[""]

    def _value(self, side: Mapping[str, Any]) -> Any:
        value = side.get("")
        return self.empty if value is None else value

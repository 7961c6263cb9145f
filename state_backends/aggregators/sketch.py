"""Approximate aggregators, which store an Apache DataSketches sketch: what all of them have in common.

Spark makes the bytes and Python folds them: Spark's functions and the `datasketches` package share one binary format.
SQL can neither fold nor read a sketch, so the answer for readers is computed at each fold and stored beside the bytes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, LiteralString

from tidegauge.state_backends.errors import SpecMismatchError


def sketch_columns(answer: LiteralString) -> dict[str, LiteralString]:
    """Return the stored columns of a sketch whose answer has that SQL type."""
    return {"": answer, "sketch": "bytea", "type": "text"}


class Sketch(ABC):
    """Shared by all. Stored: `sketch`, the bytes; `type`, their tag, such as `hll/text/12`; and the answer.

    A subclass defines the tag, the Spark SQL that makes a batch's sketch, how two sketches are joined, and the answer.
    """

    name: ClassVar[str]
    columns: ClassVar[Mapping[str, LiteralString]]
    fold_sql: ClassVar[Mapping[str, LiteralString]] = {}
    fold_lua: ClassVar[Mapping[str, str]] = {}
    finish_sql: LiteralString = "{stored}"
    tag: str

    @property
    def result_type(self) -> str:
        return self.columns[""]

    @abstractmethod
    def partial(self) -> dict[str, str]:
        """Return `{"sketch": expression}`: Spark SQL that makes the bytes."""

    @abstractmethod
    def arguments(self) -> dict[str, Any]: ...

    @abstractmethod
    def _join(self, *sketches: bytes) -> bytes:
        """Join two or more sketches."""

    @abstractmethod
    def _answer(self, sketch: bytes) -> Any: ...

    @abstractmethod
    def _are_alike(self, left: bytes, right: bytes) -> bool:
        """Return whether two sketches may hold the same values.

        Answers and bytes cannot be compared, because they depend on the order of folding.
        """

    def are_alike(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
        """Return whether two stored values may be of the same events."""
        one, other = self._sketch(left), self._sketch(right)
        return one is other if one is None or other is None else self._are_alike(one, other)

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        """Join two sketches, either of which may be missing. Raises SpecMismatchError if a tag differs."""
        return self.fold_all((stored, partial))

    def fold_all(self, values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Join sketches as `fold` does pair by pair, but read each of them and write the joined one only once."""
        sketches = [sketch for sketch in map(self._sketch, values) if sketch is not None]
        return self._stored(self._join(*sketches) if len(sketches) > 1 else sketches[0] if sketches else None)

    def finish(self, stored: Mapping[str, Any]) -> Any:
        return stored[""]

    def _stored(self, sketch: bytes | None) -> dict[str, Any]:
        if sketch is None:
            return {"sketch": None, "type": None, "": None}
        return {"sketch": sketch, "type": self.tag, "": self._answer(sketch)}

    def _sketch(self, side: Mapping[str, Any]) -> bytes | None:
        # A sketch that comes from Spark has no tag yet.
        if side.get("type") not in (None, self.tag):
            raise SpecMismatchError(
                f"{self.name}: the stored sketch is {side['type']!r} and the measure's is {self.tag!r}, which cannot "
                "be joined; restore the declaration, or feed a new state from the start of the input"
            )
        sketch = side.get("sketch")
        return None if sketch is None else bytes(sketch)


def merged(sketches: Iterator[Any]) -> Any:
    """Return the first sketch with the others merged into it."""
    joined = next(sketches)
    for sketch in sketches:
        joined.merge(sketch)
    return joined

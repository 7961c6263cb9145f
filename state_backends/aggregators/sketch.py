"""What the sketches share: bytes that Spark makes and Python folds, a tag that says of which sort, and the answer.

SQL can neither fold nor read a sketch, so what a reader sees is computed once per fold and stored beside the bytes.
The bytes are those of Apache DataSketches, which Spark's functions and the `datasketches` package share.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, LiteralString

from state_backends.errors import SpecMismatchError


class Sketch(ABC):
    """Stored: `sketch`, the bytes; `type`, what they are, as `hll/text/12`; and the answer for readers.

    A child gives the tag, the Spark SQL that sketches a batch, how two sketches join, and the answer.
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
        """Return the Spark SQL of `sketch`, which makes the bytes."""

    @abstractmethod
    def arguments(self) -> dict[str, Any]: ...

    @abstractmethod
    def _join(self, left: bytes, right: bytes) -> bytes: ...

    @abstractmethod
    def _answer(self, sketch: bytes) -> Any: ...

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        """Join two sketches; either may be nothing. Raises SpecMismatchError where one is tagged as another sort."""
        sketches = [sketch for sketch in (self._sketch(stored), self._sketch(partial)) if sketch is not None]
        return self._stored(self._join(*sketches) if len(sketches) == 2 else sketches[0] if sketches else None)

    def finish(self, stored: Mapping[str, Any]) -> Any:
        return stored[""]

    def _stored(self, sketch: bytes | None) -> dict[str, Any]:
        if sketch is None:
            return {"sketch": None, "type": None, "": None}
        return {"sketch": sketch, "type": self.tag, "": self._answer(sketch)}

    def _sketch(self, side: Mapping[str, Any]) -> bytes | None:
        # What Spark has just made carries no tag yet.
        if side.get("type") not in (None, self.tag):
            raise SpecMismatchError(
                f"{self.name}: the stored sketch is {side['type']!r} and the measure's is {self.tag!r}, which do not "
                "join; restore the declaration, or feed a new state from the start of the input"
            )
        sketch = side.get("sketch")
        return None if sketch is None else bytes(sketch)


def sketch_columns(answer: LiteralString) -> dict[str, LiteralString]:
    """Return the stored columns of a sketch, of whose answer this is the type."""
    return {"": answer, "sketch": "bytea", "type": "text"}

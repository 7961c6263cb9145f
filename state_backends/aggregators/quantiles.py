"""Quantiles, by a KLL sketch."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, LiteralString, NamedTuple

from tidegauge.state_backends.aggregators.column import as_json, cast, stored_type, whole_number
from tidegauge.state_backends.aggregators.sketch import Sketch, merged, sketch_columns
from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.extras import OptionalModule
from tidegauge.state_backends.protocols import Input
from tidegauge.state_backends.spec.types import TYPES

if TYPE_CHECKING:
    import datasketches as ds
else:
    ds = OptionalModule("datasketches")


class Format(NamedTuple):
    """How Python reads and writes the quantile sketch of one number type."""

    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]


FORMATS = {
    "double precision": Format(
        lambda sketch: ds.kll_doubles_sketch.deserialize(sketch), lambda sketch: bytes(sketch.serialize())
    ),
    # Not `kll_ints_sketch`, because it reads 32 bits and Spark's integers have 64.
    "bigint": Format(
        lambda sketch: ds.kll_items_sketch.deserialize(sketch, ds.PyLongsSerDe()),
        lambda sketch: bytes(sketch.serialize(ds.PyLongsSerDe())),
    ),
}
NUMBER_TYPES: dict[str, LiteralString] = {name: TYPES[name].name for name in FORMATS}


class Quantiles(Sketch):
    """Quantiles of numbers by a KLL sketch, as `{"0.5": 3.0, "0.99": 41.0}`. Stored: the sketch, its tag, this object.

    column: the numbers. probabilities: which quantiles, each from 0 to 1. k: size and accuracy, from 8 to 65,535.
    type: `double precision` or `bigint`.
    Each answer is one of the numbers: the smallest with at least that share of the numbers at or below it. Up to k
    numbers it is exact, for 0 and 1 always; otherwise its rank is off by at most 1.33 % with 99 % confidence for k=200
    (about 4 KB). Folding is randomized, so two folds of the same sketches may differ within that bound.
    Empty input gives null. Nulls do not count; infinities do, and are shown as text, because JSON has none. An event
    with a NaN is a dead letter, because a NaN has no rank.
    Raises SpecError for another type, probability or k.
    """

    name: ClassVar[str] = "quantiles"
    columns: ClassVar[Mapping[str, LiteralString]] = sketch_columns("jsonb")

    def __init__(
        self,
        column: str,
        probabilities: Sequence[float] = (0.5, 0.9, 0.99),
        k: int = 200,
        type: str = "double precision",
    ) -> None:
        whose = f"Quantiles({column!r})"
        self.column = column
        self.probabilities = [float(share) for share in probabilities]
        if not self.probabilities or not all(0 <= share <= 1 for share in self.probabilities):
            raise SpecError(f"{whose}: probabilities {probabilities!r} must be one or more numbers from 0 to 1")
        self.k = whole_number(k, 8, 65_535, f"{whose}: k")
        self.type = stored_type(type, whose, NUMBER_TYPES)
        self.tag = f"kll/{type}/{k}"

    def partial(self) -> dict[str, str]:
        return {"sketch": f"kll_sketch_agg_{TYPES[self.type].spark}({cast(self.column, self.type)}, {self.k})"}

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(self.column, self.type, math.inf),)

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "probabilities": self.probabilities, "k": self.k, "type": self.type}

    def _join(self, *sketches: bytes) -> bytes:
        numbers = FORMATS[self.type]
        return numbers.write(merged(map(numbers.read, sketches)))

    def _answer(self, sketch: bytes) -> dict[str, Any] | None:
        numbers = FORMATS[self.type].read(sketch)
        if numbers.is_empty():
            return None
        return {str(share): as_json(_quantile(numbers, share)) for share in self.probabilities}

    def _are_alike(self, left: bytes, right: bytes) -> bool:
        return self._exact(left) == self._exact(right)

    def _exact(self, sketch: bytes) -> tuple[Any, ...]:
        """Return what is exact in a sketch: how many numbers it has seen, the smallest and the largest."""
        numbers = FORMATS[self.type].read(sketch)
        return (0,) if numbers.is_empty() else (numbers.n, numbers.get_min_value(), numbers.get_max_value())


def _quantile(sketch: Any, share: float) -> Any:
    # The same answers as Spark's: extremes are exact even if the sketch dropped them, and a rank includes the value.
    if share in (0, 1):
        return sketch.get_max_value() if share else sketch.get_min_value()
    return sketch.get_quantile(share, True)

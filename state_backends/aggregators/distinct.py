"""DistinctCount and DistinctSet: how many different values there are, by a HyperLogLog or a theta sketch."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, LiteralString

from tidegauge.state_backends.aggregators.column import cast, stored_type, whole_number
from tidegauge.state_backends.aggregators.sketch import Sketch, sketch_columns
from tidegauge.state_backends.extras import OptionalModule
from tidegauge.state_backends.protocols import Input
from tidegauge.state_backends.spec.types import TYPES

if TYPE_CHECKING:
    import datasketches as ds
else:
    ds = OptionalModule("datasketches")

# The types that Spark's distinct sketches accept and that `datasketches` hashes in the same way.
ITEM_TYPES: dict[str, LiteralString] = {name: TYPES[name].name for name in ("text", "bigint")}

# Estimates from equal registers differ only by rounding; those from other registers by at least one register's share.
REGISTERS_EQUAL = 1e-9


class _Distinct(Sketch):
    """Shared by DistinctCount and DistinctSet. lg_k_range: the smallest and the largest `lg_k`."""

    columns: ClassVar[Mapping[str, LiteralString]] = sketch_columns("bigint")
    finish_sql: LiteralString = "coalesce({stored}, 0)"
    family: ClassVar[str]
    spark_function: ClassVar[str]
    lg_k_range: ClassVar[tuple[int, int]]

    def __init__(self, column: str, lg_k: int = 12, type: str = "text") -> None:
        whose = f"{self.__class__.__name__}({column!r})"
        self.column = column
        self.lg_k = whole_number(lg_k, *self.lg_k_range, f"{whose}: lg_k")
        self.type = stored_type(type, whose, ITEM_TYPES)
        self.tag = f"{self.family}/{type}/{lg_k}"

    def partial(self) -> dict[str, str]:
        return {"sketch": f"{self.spark_function}({cast(self.column, self.type)}, {self.lg_k})"}

    def finish(self, stored: Mapping[str, Any]) -> int:
        return int(stored[""] or 0)

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the bounds of the true number of values, given its estimate, with 95 % confidence.

        They are two standard errors away from the estimate; both equal it if it is exact.
        """
        error = 0.0 if number <= self._most_exact else 2 * self._standard_error
        return round(number / (1 + error)), round(number * (1 + error))

    @property
    @abstractmethod
    def _standard_error(self) -> float: ...

    @property
    @abstractmethod
    def _most_exact(self) -> int:
        """The largest estimate that is exact."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(self.column, self.type),)

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "lg_k": self.lg_k, "type": self.type}


class DistinctCount(_Distinct):
    """The number of different values, by a HyperLogLog sketch. Stored: the sketch, its tag, and the number.

    column: the values. type: how they are compared, as `text` (any column can be cast to it) or as `bigint`.
    lg_k: the sketch has 2^lg_k registers of one byte; from 4 to 21. The standard error of a folded sketch is 1.04 /
    sqrt(2^lg_k), which is 1.6 % for 12 (4 KB); up to 2^lg_k / 16 values it is exact.
    Empty input gives 0. Nulls do not count, nor does the empty text, as in Spark's own functions.
    Raises SpecError for another type or lg_k.
    """

    name = "distinct_count"
    family = "hll"
    spark_function = "hll_sketch_agg"
    lg_k_range = (4, 21)

    @property
    def _standard_error(self) -> float:
        return 1.04 / math.sqrt(2**self.lg_k)

    @property
    def _most_exact(self) -> int:
        return int(2**self.lg_k // 16)

    def _join(self, *sketches: bytes) -> bytes:
        union = ds.hll_union(self.lg_k)
        for sketch in sketches:
            union.update(ds.hll_sketch.deserialize(sketch))
        # HLL_8, because Spark's functions write and expect registers of one byte.
        return bytes(union.get_result(ds.tgt_hll_type.HLL_8).serialize_compact())

    def _answer(self, sketch: bytes) -> int:
        return round(float(ds.hll_sketch.deserialize(sketch).get_estimate()))

    def _are_alike(self, left: bytes, right: bytes) -> bool:
        # Registers are maxima, so the same values give equal registers. Joined sketches are compared, because the
        # estimate of a join depends on its registers only.
        one, other, both = map(self._estimate_of_join, (left, right, left), (left, right, right))
        return math.isclose(one, both, rel_tol=REGISTERS_EQUAL) and math.isclose(other, both, rel_tol=REGISTERS_EQUAL)

    def _estimate_of_join(self, left: bytes, right: bytes) -> float:
        return float(ds.hll_sketch.deserialize(self._join(left, right)).get_estimate())


class DistinctSet(_Distinct):
    """The number of different values, by a theta sketch, which supports intersections. Stored: as for DistinctCount.

    column, type: as for DistinctCount. lg_k: the sketch keeps up to 2^lg_k hashes of 8 bytes; from 5 to 26. Exact up to
    2^lg_k values; above, the standard error is 1 / sqrt(2^lg_k - 1), 1.6 % for 12. The error of an intersection or a
    difference is relative to the union.
    Empty input gives 0. Nulls do not count, nor does the empty text, as in Spark's own functions.
    Raises SpecError for another type or lg_k.
    """

    name = "distinct_set"
    family = "theta"
    spark_function = "theta_sketch_agg"
    lg_k_range = (5, 26)  # not from 4, as in Spark, because `datasketches` refuses it

    @property
    def _standard_error(self) -> float:
        return 1 / math.sqrt(2**self.lg_k - 1)

    @property
    def _most_exact(self) -> int:
        return int(2**self.lg_k)

    def intersection(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stored value for the values that are in both stored values. For the union, use `fold`."""
        both = ds.theta_intersection()
        both.update(_theta(self._sketch(left)))
        both.update(_theta(self._sketch(right)))
        return self._stored(_theta_bytes(both.get_result()))

    def difference(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stored value for the values that are in `left` but not in `right`."""
        return self._stored(
            _theta_bytes(ds.theta_a_not_b().compute(_theta(self._sketch(left)), _theta(self._sketch(right))))
        )

    def _join(self, *sketches: bytes) -> bytes:
        union = ds.theta_union(self.lg_k)
        for sketch in sketches:
            union.update(_theta(sketch))
        return _theta_bytes(union.get_result())

    def _answer(self, sketch: bytes) -> int:
        return round(float(_theta(sketch).get_estimate()))

    def _are_alike(self, left: bytes, right: bytes) -> bool:
        one, other = _theta(left), _theta(right)
        return not any(ds.theta_a_not_b().compute(*pair).num_retained for pair in ((one, other), (other, one)))


def _theta(sketch: bytes | None) -> "ds.compact_theta_sketch":
    if sketch is None:
        return ds.theta_union().get_result()
    return ds.compact_theta_sketch.deserialize(sketch)


def _theta_bytes(sketch: "ds.compact_theta_sketch") -> bytes:
    # Compressed, as Spark writes them.
    return bytes(sketch.serialize(compress=True))

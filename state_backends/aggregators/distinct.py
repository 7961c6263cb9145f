"""DistinctCount and DistinctSet: how many different values, and how many of them two sets share."""

from collections.abc import Mapping
from typing import Any, ClassVar, LiteralString

from datasketches import (
    compact_theta_sketch,
    hll_sketch,
    hll_union,
    tgt_hll_type,
    theta_a_not_b,
    theta_intersection,
    theta_union,
)

from state_backends.aggregators.column import cast, stored_type, whole_number
from state_backends.aggregators.sketch import Sketch, sketch_columns
from state_backends.types import TYPES

# Those that Spark's functions take and `datasketches` reads alike.
ITEM_TYPES: dict[str, LiteralString] = {name: TYPES[name].name for name in ("text", "bigint")}


class _Distinct(Sketch):
    """Empty input gives 0. Nulls do not count; nor does the empty text, as in Spark's own functions.

    column: whose values to count. type: as what they are told apart, `text`, which any column can be read as, or
    `bigint`.
    """

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

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "lg_k": self.lg_k, "type": self.type}


class DistinctCount(_Distinct):
    __doc__ = f"""The number of different values, by a HyperLogLog sketch. {_Distinct.__doc__}
    lg_k: the sketch has 2^lg_k registers of a byte, from 4 to 21. Standard error of a folded sketch: 1.04 /
    sqrt(2^lg_k), which is 1.6 % at 12 for 4 KB; up to 2^lg_k / 16 values it is exact.
    """
    name = "distinct_count"
    family = "hll"
    spark_function = "hll_sketch_agg"
    lg_k_range = (4, 21)

    def _join(self, left: bytes, right: bytes) -> bytes:
        union = hll_union(self.lg_k)
        union.update(hll_sketch.deserialize(left))
        union.update(hll_sketch.deserialize(right))
        # Spark's functions make and expect registers of a byte.
        return bytes(union.get_result(tgt_hll_type.HLL_8).serialize_compact())

    def _answer(self, sketch: bytes) -> int:
        return round(float(hll_sketch.deserialize(sketch).get_estimate()))


class DistinctSet(_Distinct):
    __doc__ = f"""The number of different values, by a theta sketch, which also intersects. {_Distinct.__doc__}
    lg_k: the sketch keeps up to 2^lg_k hashes of 8 bytes, from 4 to 26. Exact up to 2^lg_k values; above, the standard
    error is 1 / sqrt(2^lg_k - 1), 1.6 % at 12. That of an intersection or a difference is relative to the union.
    """
    name = "distinct_set"
    family = "theta"
    spark_function = "theta_sketch_agg"
    lg_k_range = (4, 26)

    def intersection(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that both have. Takes and gives stored values, as `fold` does, whose union is `fold`."""
        both = theta_intersection()
        both.update(_theta(self._sketch(left)))
        both.update(_theta(self._sketch(right)))
        return self._stored(_theta_bytes(both.get_result()))

    def difference(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that `left` has and `right` has not."""
        return self._stored(
            _theta_bytes(theta_a_not_b().compute(_theta(self._sketch(left)), _theta(self._sketch(right))))
        )

    def _join(self, left: bytes, right: bytes) -> bytes:
        union = theta_union(self.lg_k)
        union.update(_theta(left))
        union.update(_theta(right))
        return _theta_bytes(union.get_result())

    def _answer(self, sketch: bytes) -> int:
        return round(float(_theta(sketch).get_estimate()))


def _theta(sketch: bytes | None) -> compact_theta_sketch:
    if sketch is None:
        return theta_union().get_result()
    return compact_theta_sketch.deserialize(sketch)


def _theta_bytes(sketch: compact_theta_sketch) -> bytes:
    # Compressed, as Spark writes them.
    return bytes(sketch.serialize(compress=True))

"""DistinctCount, DistinctSet, Quantiles and TopK: approximate aggregators, which store an Apache DataSketches sketch.

Spark makes the bytes and Python folds them: Spark's functions and the `datasketches` package share one binary format.
SQL can neither fold nor read a sketch, so the answer for readers is computed at each fold and stored beside the bytes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, LiteralString, NamedTuple

from tidegauge.state_backends.aggregators.column import as_json, cast, stored_type, whole_number
from tidegauge.state_backends.errors import SpecError, SpecMismatchError
from tidegauge.state_backends.extras import OptionalModule
from tidegauge.state_backends.protocols import Input
from tidegauge.state_backends.spec.types import TYPES

if TYPE_CHECKING:
    import datasketches as ds
else:
    ds = OptionalModule("datasketches")

# The types that Spark's distinct sketches accept and that `datasketches` hashes in the same way.
ITEM_TYPES: dict[str, LiteralString] = {name: TYPES[name].name for name in ("text", "bigint")}


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

# Estimates from equal registers differ only by rounding; those from other registers by at least one register's share.
REGISTERS_EQUAL = 1e-9

# Spark appends the number of nulls to a frequent items sketch, in 8 bytes; the partial filters nulls out.
NO_NULLS = bytes(8)


def sketch_columns(answer: LiteralString) -> dict[str, LiteralString]:
    """Return the stored columns of a sketch whose answer has that SQL type."""
    return {"": answer, "sketch": "bytea", "type": "text"}


class Sketch(ABC):
    """Shared by the four. Stored: `sketch`, the bytes; `type`, their tag, such as `hll/text/12`; and the answer.

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
        return numbers.write(_merged(map(numbers.read, sketches)))

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


def _merged(sketches: Iterator[Any]) -> Any:
    joined = next(sketches)
    for sketch in sketches:
        joined.merge(sketch)
    return joined


def _quantile(sketch: Any, share: float) -> Any:
    # The same answers as Spark's: extremes are exact even if the sketch dropped them, and a rank includes the value.
    if share in (0, 1):
        return sketch.get_max_value() if share else sketch.get_min_value()
    return sketch.get_quantile(share, True)


class TopK(Sketch):
    """The most frequent texts, by a frequent items sketch. Stored: the sketch, its tag, and the answer.

    The answer is `[{"item": "ORD", "count": 17, "at_least": 15}, ..]`, most frequent first. `count` is an upper bound
    and `at_least` a lower one; if they are equal the count is exact. Texts with the same count come in byte order.
    column: the texts. k: how many to show, from 1. max_items: how many to keep track of, k to 1,000,000.
    All counts are exact until there are more than max_items different texts; from then on a count is off by at most
    3.5 / m of all events, where m is max_items / 0.75 rounded up to a power of 2: 0.17 % for 1,024.
    Empty input gives null. Nulls do not count, the empty text does. Raises SpecError for another k or max_items.
    """

    name: ClassVar[str] = "top_k"
    columns: ClassVar[Mapping[str, LiteralString]] = sketch_columns("jsonb")

    def __init__(self, column: str, k: int = 10, max_items: int = 1024) -> None:
        whose = f"TopK({column!r})"
        self.column = column
        self.k = whole_number(k, 1, 1_000_000, f"{whose}: k")
        self.max_items = whole_number(max_items, k, 1_000_000, f"{whose}: max_items")
        self.tag = f"frequent/text/{max_items}"

    def partial(self) -> dict[str, str]:
        item = cast(self.column, "text")
        return {"sketch": f"approx_top_k_accumulate({item}, {self.max_items}) filter (where {item} is not null).sketch"}

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(self.column, "text"),)

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "k": self.k, "max_items": self.max_items}

    def _join(self, *sketches: bytes) -> bytes:
        return bytes(_merged(map(ds.frequent_strings_sketch.deserialize, sketches)).serialize()) + NO_NULLS

    def _answer(self, sketch: bytes) -> list[dict[str, Any]] | None:
        items = ds.frequent_strings_sketch.deserialize(sketch).get_frequent_items(
            ds.frequent_items_error_type.NO_FALSE_NEGATIVES
        )
        items.sort(key=lambda found: (-found[1], found[0]))
        top = [{"item": item, "count": high, "at_least": low} for item, _, low, high in items[: self.k]]
        return top or None

    def _are_alike(self, left: bytes, right: bytes) -> bool:
        # A sketch gives a lower and an upper bound per item, so the bounds must overlap; with few items they are equal.
        one, other = (ds.frequent_strings_sketch.deserialize(sketch) for sketch in (left, right))
        every = ds.frequent_items_error_type.NO_FALSE_NEGATIVES
        items = {found[0] for sketch in (one, other) for found in sketch.get_frequent_items(every)}
        return all(
            one.get_lower_bound(item) <= other.get_upper_bound(item)
            and other.get_lower_bound(item) <= one.get_upper_bound(item)
            for item in items
        )

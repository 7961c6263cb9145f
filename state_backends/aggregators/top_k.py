"""TopK: the most frequent texts, by a frequent items sketch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, LiteralString

from tidegauge.state_backends.aggregators.column import cast, whole_number
from tidegauge.state_backends.aggregators.sketch import Sketch, merged, sketch_columns
from tidegauge.state_backends.extras import OptionalModule
from tidegauge.state_backends.protocols import Input

if TYPE_CHECKING:
    import datasketches as ds
else:
    ds = OptionalModule("datasketches")

# Spark appends the number of nulls to a frequent items sketch, in 8 bytes; the partial filters nulls out.
NO_NULLS = bytes(8)


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
        return bytes(merged(map(ds.frequent_strings_sketch.deserialize, sketches)).serialize()) + NO_NULLS

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

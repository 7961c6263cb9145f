"""TopK: the texts that come most often, by a sketch of frequent items."""

from collections.abc import Mapping
from typing import Any, ClassVar, LiteralString

from datasketches import frequent_items_error_type, frequent_strings_sketch

from state_backends.aggregators.column import cast, whole_number
from state_backends.aggregators.sketch import Sketch, sketch_columns

# Spark puts the number of nulls it saw behind the sketch; the partial sees none.
NO_NULLS = bytes(8)


class TopK(Sketch):
    """The most frequent texts: `[{"item": "ORD", "count": 17, "at_least": 15}, ..]`, most frequent first.

    `count` is never too low, `at_least` never too high; where they are one the count is exact. Texts of one count come
    in byte order. Empty input gives null. Nulls do not count, the empty text does.

    column: the texts. k: how many to show. max_items: how many to keep track of, k to 1,000,000.
    All counts are exact until more than max_items different texts have come; from then on a count is off by at most
    3.5 / m of all events, m being max_items / 0.75 rounded up to a power of 2: 0.17 % at 1,024.
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

    def arguments(self) -> dict[str, Any]:
        return {"column": self.column, "k": self.k, "max_items": self.max_items}

    def _join(self, left: bytes, right: bytes) -> bytes:
        sketch = frequent_strings_sketch.deserialize(left)
        sketch.merge(frequent_strings_sketch.deserialize(right))
        return bytes(sketch.serialize()) + NO_NULLS

    def _answer(self, sketch: bytes) -> list[dict[str, Any]] | None:
        items = frequent_strings_sketch.deserialize(sketch).get_frequent_items(
            frequent_items_error_type.NO_FALSE_NEGATIVES
        )
        items.sort(key=lambda found: (-found[1], found[0]))
        top = [{"item": item, "count": high, "at_least": low} for item, _, low, high in items[: self.k]]
        return top or None

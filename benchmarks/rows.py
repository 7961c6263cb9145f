"""The rows that merges are measured with: 100,000 of 300,000 keys a batch, in key order, two measures."""

import random
from functools import cache

import pyarrow as pa

from state_backends import Count, StateSpec, Sum

SALES = StateSpec("bench_sales", key={"shop": "text"}, measures={"n": Count(), "total": Sum("x")})
KEYS, ALL_KEYS = 100_000, 300_000


@cache  # made once, in the round that warms up or before it
def batch(seed: int) -> pa.RecordBatch:
    """Return partial aggregates as Spark brings them; the same seed gives the same keys."""
    chance = random.Random(seed)
    shops = sorted(chance.sample(range(ALL_KEYS), KEYS))
    counts = [chance.randint(1, 9) for _ in shops]
    return pa.RecordBatch.from_pydict(
        {"shop": [f"shop-{shop:07}" for shop in shops], "n": counts, "total": [n * 1.5 for n in counts]}
    )


@cache
def row_dicts(seed: int) -> list[dict[str, object]]:
    return batch(seed).to_pylist()

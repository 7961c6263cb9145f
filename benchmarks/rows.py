"""The rows for merges: 100,000 of 300,000 keys per batch, in key order, with two measures."""

import random
from functools import cache
from typing import Any

import pyarrow as pa

from tidegauge.state_backends import Count, StateSpec, Sum

SALES = StateSpec("bench_sales", key={"shop": "text"}, measures={"n": Count(), "total": Sum("x", "double precision")})
KEYS, ALL_KEYS = 100_000, 300_000


@cache  # so that creating the rows is not measured after the warm-up round
def batch(seed: int) -> pa.RecordBatch:
    """Return partial aggregates as Spark sends them; the same seed gives the same keys."""
    chance = random.Random(seed)
    shops = sorted(chance.sample(range(ALL_KEYS), KEYS))
    counts = [chance.randint(1, 9) for _ in shops]
    return pa.RecordBatch.from_pydict(
        {"shop": [f"shop-{shop:07}" for shop in shops], "n": counts, "total": [n * 1.5 for n in counts]}
    )


@cache
def row_dicts(seed: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch(seed).to_pylist()
    return rows

"""The pipelines of the stored releases. Each release since 0.1.0 runs them, so they use only names that all have."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tidegauge import (
    Count,
    DistinctCount,
    JsonFiles,
    Last,
    Max,
    Mean,
    Min,
    Pipeline,
    Quantiles,
    StateSpec,
    StdDev,
    Stream,
    Sum,
    TopK,
    fold_by_key,
    tumbling,
)

ORDER = "article string NOT NULL, customer string NOT NULL, price bigint NOT NULL, at timestamp NOT NULL"

SALES = StateSpec(
    "sales",
    {"article": "text"},
    {
        "orders": Count(),
        "revenue": Sum("price", type="bigint"),
        "average": Mean("price"),
        "lowest": Min("price", type="bigint"),
        "highest": Max("price", type="bigint"),
        "spread": StdDev("price"),
        "customers": DistinctCount("customer"),
        "prices": Quantiles("price"),
        "best": TopK("customer", k=3),
    },
    changelog=True,
    ttl=timedelta(days=36_500),
)
BY_DAY = StateSpec("by_day", {"article": "text", "day": "timestamptz"}, {"orders": Count()}, partitions=2)
NEWEST = StateSpec(
    "newest", {"customer": "text"}, {"article": Last("article", by="at", type="text")}, kind="transactional"
)
CARTS = StateSpec("carts", {"customer": "text"}, value="jsonb")
SEEN = StateSpec("seen", {"article": "text"}, {"orders": Count()}, kind="non_transactional")
STOCK = StateSpec("stock", {"article": "text"}, {"sold": Count(), "revenue": Sum("price")}, backend="redis")


class FillCarts:
    """Keeps what each customer has ordered."""

    def update_state(self, state: Any, tuples: Sequence[Mapping[str, Any]], collector: Any) -> None:
        fold_by_key(state, tuples, ("customer",), partial(self._filled))

    def _filled(self, stored: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
        cart = dict(stored or {})
        for row in rows:
            cart[row["article"]] = cart.get(row["article"], 0) + 1
        return cart


def _orders(folder: Path, files_per_batch: int) -> Stream:
    return Stream.read(JsonFiles(folder, schema=ORDER, files_per_batch=files_per_batch))


def orders(folder: Path, files_per_batch: int = 1) -> Pipeline:
    """Four states in PostgreSQL, of two kinds; three have measures and one has JSON values."""
    read = _orders(folder, files_per_batch)
    return Pipeline(
        "orders",
        [
            read.group_by("article").persistent_aggregate(SALES),
            read.group_by("article", day=tumbling("at", "1 day")).persistent_aggregate(BY_DAY),
            read.group_by("customer").persistent_aggregate(NEWEST),
            read.partition_persist(CARTS, FillCarts(), order_by=["at", "article"]),
        ],
    )


def stock(folder: Path, files_per_batch: int = 1) -> Pipeline:
    """A state in Redis, and one that keeps no version."""
    by_article = _orders(folder, files_per_batch).group_by("article")
    return Pipeline("stock", [by_article.persistent_aggregate(STOCK), by_article.persistent_aggregate(SEEN)])

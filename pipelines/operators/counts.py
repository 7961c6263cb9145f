"""Updaters for counting: a running total, the top N of a count, and the first tuple of each key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from pyspark.sql import DataFrame

from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.functions import BatchState, Collector
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.operators.keyed import PAYLOAD, check_can_hold, fold_by_key
from tidegauge.pipelines.spark.packing import packed, unpacked
from tidegauge.state_backends.spec.state_spec import StateSpec


@dataclass(frozen=True)
class RunningTotal:
    """Adds the column `change` to the measure `total`, a Sum; a key at 0 is removed; an aggregate would keep it.

    key: the key columns of the state. A null change adds nothing.
    """

    key: tuple[str, ...]
    total: str
    change: str

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        fold_by_key(state, tuples, self.key, self._added)

    def _added(self, stored: Mapping[str, int] | None, rows: Sequence[Mapping[str, Any]]) -> Any:
        total = (stored[self.total] if stored else 0) + sum(row[self.change] or 0 for row in rows)
        return {self.total: total} if total else None


@dataclass(frozen=True)
class TopN:
    """Keeps per key a list of the n items with the largest counts: `[{item: .., count: ..}, ..]`, largest first.

    key: the key columns of the state, which holds JSON values. item, count: the tuple's columns for an item and its
    new count. Items with the same count are sorted by name. The list is exact as long as counts never fall, because an
    item outside the list can then only enter it when its count changes, and every change comes as a tuple.
    with_ties: whether items that have the same count as the last one follow it, which makes the list longer than n: the
    list of n=1 has all items with the largest count. SQL's FETCH FIRST n ROWS WITH TIES.
    """

    key: tuple[str, ...]
    item: str
    count: str
    n: int
    with_ties: bool = False

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        fold_by_key(state, tuples, self.key, self._top)

    def _top(self, stored: list[dict[str, Any]] | None, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        counts = {row[self.item]: row[self.count] for row in [*(stored or []), *rows]}
        ranked = sorted(counts.items(), key=lambda found: (-found[1], found[0]))
        first = ranked[: self.n]
        if self.with_ties:
            first += takewhile(lambda found: found[1] == first[-1][1], ranked[self.n :])
        return [{self.item: item, self.count: count} for item, count in first]


def distinct(stream: Stream, seen: StateSpec, *, first_by: Sequence[str] = ()) -> Stream:
    """Return the stream with the first tuple of each key only, across batches and their replays.

    seen: the state that remembers keys; its key columns identify an event; opaque, with value="jsonb". A key is
    forgotten when its ttl has passed since the first tuple, regardless of later ones.
    first_by: the columns by which a batch's tuples are sorted to find the first; default: by their text.
    """
    check_can_hold(seen, ttl=True)

    def pack(context: BatchContext, events: DataFrame) -> DataFrame:
        order = dict.fromkeys((*seen.key, *first_by))
        return events.select(*(events[name] for name in order), packed(events).alias(PAYLOAD))

    def unpack(context: BatchContext, first: DataFrame, events: DataFrame) -> DataFrame:
        return first.select(unpacked(PAYLOAD, events).alias("first")).select("first.*")

    order_by, emits = [*first_by, PAYLOAD], {PAYLOAD: "string"}
    stored = Stream((stream,), pack).partition_persist(seen, Distinct(tuple(seen.key)), order_by=order_by, emits=emits)
    return Stream((stored.new_values_stream(), stream), unpack)


@dataclass(frozen=True)
class Distinct:
    """Emits the payload of a key's first tuple, and stores that the key was seen. key: the state's key columns."""

    key: tuple[str, ...]

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        def fold(seen: bool | None, rows: list[Mapping[str, Any]]) -> bool:
            if seen is None:
                collector.emit(rows[0][PAYLOAD])
            return True

        fold_by_key(state, tuples, self.key, fold)

"""RunningTotal: adds up changes, and removes what has come to nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from pipelines.context import BatchContext
from pipelines.functions import BatchState, Collector
from pipelines.operators.keyed import PAYLOAD, check_keeper, fold_by_key, packed, unpacked
from pipelines.stream import Stream
from state_backends.spec import StateSpec


@dataclass(frozen=True)
class RunningTotal:
    """Adds the column `change` to the measure `total`, a Sum; at 0 the key goes, where an aggregate would keep a row.

    key: the key columns of the state.
    """

    key: tuple[str, ...]
    total: str
    change: str

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        fold_by_key(state, tuples, self.key, self._added)

    def _added(self, held: Mapping[str, int] | None, rows: Sequence[Mapping[str, Any]]) -> Any:
        total = (held[self.total] if held else 0) + sum(row[self.change] for row in rows)
        return {self.total: total} if total else None


# TopN: the N largest of a running count, kept up to date from the counts that change.


@dataclass(frozen=True)
class TopN:
    """Keeps per key a list of the n items with the largest counts: `[{item: .., count: ..}, ..]`, largest first.

    key: the key columns of the state, which holds JSON values. item, count: the columns that a tuple brings them in.
    Items of one count come in the order of their names. The list is what sorting everything would give as long as no
    count ever falls: an item outside can then only come in by a count that changes, and each change comes by here.
    """

    key: tuple[str, ...]
    item: str
    count: str
    n: int

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        fold_by_key(state, tuples, self.key, self._top)

    def _top(self, held: list[dict[str, Any]] | None, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        counts = {row[self.item]: row[self.count] for row in [*(held or []), *rows]}
        ranked = sorted(counts.items(), key=lambda found: (-found[1], found[0]))
        return [{self.item: item, self.count: count} for item, count in ranked[: self.n]]


# Distinct: each key's first tuple, once, for producers that may send an event twice.


def distinct(stream: Stream, seen: StateSpec, *, first_by: Sequence[str] = ()) -> Stream:
    """Return the stream with the first tuple of each key only, across batches and their replays.

    seen: the state that remembers, its key the columns that tell events apart; opaque, with value="jsonb". A key is
    forgotten its ttl after the first tuple, whatever came since.
    first_by: which of a batch's tuples is the first; without, it is the least of them as text.
    """
    check_keeper(seen, ttl=True)

    def pack(context: BatchContext, events: DataFrame) -> DataFrame:
        order = dict.fromkeys((*seen.key, *first_by))
        return events.select(*(events[name] for name in order), packed(events).alias(PAYLOAD))

    def unpack(context: BatchContext, first: DataFrame, events: DataFrame) -> DataFrame:
        return first.select(unpacked(PAYLOAD, events).alias("first")).select("first.*")

    order_by, emits = [*first_by, PAYLOAD], {PAYLOAD: "string"}
    fed = Stream((stream,), pack).partition_persist(seen, Distinct(tuple(seen.key)), order_by=order_by, emits=emits)
    return Stream((fed.new_values_stream(), stream), unpack)


@dataclass(frozen=True)
class Distinct:
    """Passes on the payload of a key's first tuple, and notes that it has come. key: the state's key columns."""

    key: tuple[str, ...]

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        def fold(seen: bool | None, rows: list[Mapping[str, Any]]) -> bool:
            if seen is None:
                collector.emit(rows[0][PAYLOAD])
            return True

        fold_by_key(state, tuples, self.key, fold)

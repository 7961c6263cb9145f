"""Distinct: each key's first tuple, once, for producers that may send an event twice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from pipelines.context import BatchContext
from pipelines.functions import BatchState, Collector
from pipelines.stream import Stream
from pipelines.updaters.by_key import check_keeper, fold_by_key
from pipelines.updaters.payload import PAYLOAD, packed, unpacked
from state_backends.spec import StateSpec


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

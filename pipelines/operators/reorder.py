"""Reordering: emits the events of a key in order of time, each held until no earlier one can come in time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame

from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.functions import BatchState, Collector
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.operators.keyed import (
    LATE,
    PAYLOAD,
    TICK,
    after,
    as_text,
    check_can_hold,
    fold_by_key,
    has_passed,
    timed,
)
from tidegauge.pipelines.spark.packing import packed, unpacked
from tidegauge.state_backends.spec.state_spec import StateSpec

HELD, DUE = "held", "due"
TIME = "time"


def in_order(stream: Stream, held: StateSpec, time: str) -> Stream:
    """Return the stream in the order of `time`, batch by batch: a batch emits only tuples later than all before it.

    Within a batch the next state has to sort: give its `partition_persist` order_by=[time]. The stream needs a
    watermark; a tuple is held until the watermark has passed its time. One that comes after the watermark is emitted at
    once, with the column `late` true (false in all others), because later ones may have been emitted already.
    held: the state that holds tuples; its key columns are those within which order matters; opaque, with value="jsonb"
    and no ttl. Tuples without a time are left out.
    """
    check_can_hold(held)
    key = tuple(held.key)

    def pack(context: BatchContext, events: DataFrame) -> DataFrame:
        whole = packed(events.drop(LATE)).alias(PAYLOAD)
        return events.select(*(events[name] for name in key), events[time].alias(TIME), LATE, whole)

    def unpack(context: BatchContext, ready: DataFrame, events: DataFrame) -> DataFrame:
        return ready.select(unpacked(PAYLOAD, events).alias("event"), LATE).select("event.*", LATE)

    tuples = Stream((timed(stream, time),), pack)
    emits = {PAYLOAD: "string", LATE: "boolean"}
    stored = tuples.partition_persist(held, Reorder(key), emits=emits, due=DUE)
    return Stream((stored.new_values_stream(), stream), unpack)


@dataclass(frozen=True)
class Reorder:
    """Holds tuples until the watermark has passed them. key: the state's key columns.

    Takes the key, `time`, `late`, `payload`; emits payload and late. A value: `{"held": [[time, payload], ..], "due":
    a tick after the earliest}`.
    """

    key: tuple[str, ...]

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        def fold(value: Any, rows: list[Mapping[str, Any]]) -> Any:
            return _fold(value, rows, state.watermark, collector)

        fold_by_key(state, tuples, self.key, fold)


def _fold(value: Any, rows: list[Mapping[str, Any]], watermark: datetime | None, collector: Collector) -> Any:
    held = [(datetime.fromisoformat(time), payload) for time, payload in (value or {HELD: []})[HELD]]
    for row in rows:
        if row[LATE]:
            collector.emit(row[PAYLOAD], True)
        elif not row["woken"]:
            held.append((row[TIME], row[PAYLOAD]))
    held.sort()
    waiting = [event for event in held if not has_passed(watermark, after(event[0], TICK))]
    for _, payload in held[: len(held) - len(waiting)]:
        collector.emit(payload, False)
    if not waiting:
        return None
    return {HELD: [[as_text(time), payload] for time, payload in waiting], DUE: as_text(after(waiting[0][0], TICK))}

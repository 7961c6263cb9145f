"""Drives an updater over a state in memory: batches with a watermark, timers, and failed attempts."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tidegauge.pipelines.declare.functions import StateUpdater
from tidegauge.state_backends import MemoryBackingMap, OpaqueMap, StateSpec
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.maps.batch_map import BatchMap

START = datetime(2024, 1, 1, tzinfo=UTC)

Row = Mapping[str, Any]


def minute(number: float) -> datetime:
    return START + timedelta(minutes=number)


def state_map(spec: StateSpec) -> BatchMap:
    """Return the map of the spec's kind, in memory."""
    return MAPS[spec.kind](MemoryBackingMap(spec), atomic=True)


class Batches:
    """One task that has all keys. time: the column that moves the watermark. delay: how far it stays behind."""

    def __init__(self, spec: StateSpec, updater: StateUpdater, time: str, delay: timedelta) -> None:
        self.watermark: datetime | None = None
        self.emitted: list[list[tuple[Any, ...]]] = []
        self._spec, self._updater, self._time, self._delay = spec, updater, time, delay
        self._rows = MemoryBackingMap(spec)
        self._map = OpaqueMap(self._rows)

    def run(self, rows: Sequence[Row], failed: Sequence[Row] | None = None) -> list[tuple[Any, ...]]:
        """Run a batch and return what it emitted. failed: the rows of an attempt before it that failed."""
        txid = len(self.emitted) + 1
        if failed is not None:
            self._attempt(txid, failed)
            self._map.rollback(txid)
        self.watermark, emitted = self._attempt(txid, rows)
        self.emitted.append(emitted)
        return emitted

    def values(self) -> dict[Any, Any]:
        """Return what is stored: the key's first part to the value."""
        return {key[0]: row.value for key, row in self._rows.scan() if row.value is not None}

    def all_emitted(self) -> list[tuple[Any, ...]]:
        return [values for emitted in self.emitted for values in emitted]

    def _attempt(self, txid: int, rows: Sequence[Row]) -> tuple[datetime | None, list[tuple[Any, ...]]]:
        marks = [row[self._time] - self._delay for row in rows] + ([self.watermark] if self.watermark else [])
        watermark = max(marks, default=None)
        given = self._woken(watermark, rows) + [{**row, "woken": False, "late": self._is_late(row)} for row in rows]
        given.sort(key=lambda row: [row[name] for name in self._spec.key])
        state, collector = OneReadOneWrite(self._map, watermark), Emitted()
        self._map.begin_commit(txid)
        if given:
            self._updater.update_state(state, given, collector)
        self._map.commit(txid)
        return watermark, collector.tuples

    def _is_late(self, row: Row) -> bool:
        return self.watermark is not None and row[self._time] < self.watermark

    def _woken(self, watermark: datetime | None, rows: Sequence[Row]) -> list[Row]:
        columns = {name: None for row in rows for name in row}
        due = [
            key
            for key, row in self._rows.scan()
            if row.value is not None and watermark and datetime.fromisoformat(row.value["due"]) <= watermark
        ]
        return [columns | dict(zip(self._spec.key, key, strict=True)) | {"woken": True, "late": None} for key in due]


class OneReadOneWrite:
    """A BatchState that counts its calls: an updater that asks key by key is as slow as the network."""

    def __init__(self, counts: OpaqueMap, watermark: datetime | None) -> None:
        self.txid, self.batch_time, self.watermark = 1, START, watermark
        self._counts = counts
        self._calls: set[str] = set()

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        self._once("read")
        return self._counts.multi_get(keys)

    def multi_put(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        self._once("write")
        self._counts.multi_put(keys, values)

    def _once(self, call: str) -> None:
        assert call not in self._calls, f"a second {call} in one call"
        self._calls.add(call)


class Emitted:
    def __init__(self) -> None:
        self.tuples: list[tuple[Any, ...]] = []

    def emit(self, *values: Any) -> None:
        self.tuples.append(values)

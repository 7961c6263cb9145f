"""A backing map in a dict: for tests and notebooks, and as the simplest implementation of the contract."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from tidegauge.state_backends.spec.row import Key, Versioned, check_unique, json_text, pair, stale
from tidegauge.state_backends.spec.state_spec import StateSpec


class MemoryBackingMap:
    """Rows of one state in a dict of this process. They are lost when it ends."""

    def __init__(self, spec: StateSpec) -> None:
        self.spec = spec
        self._rows: dict[Key, Versioned] = {}

    def multi_get(self, keys: Sequence[Key]) -> list[Versioned | None]:
        return [self._rows.get(key) for key in self.spec.check_keys(keys)]

    def multi_put(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
        now = datetime.now(UTC)
        new = {key: self._kept(key, row, now) for key, row in pair(self.spec, keys, rows).items()}
        for key, row in new.items():
            stored = self._rows.get(key)
            if stored is not None and (stored.txid or 0) > (row.txid or 0):
                raise stale(self.spec, key, row.txid, stored.txid)
        self._rows |= new

    def multi_remove(self, keys: Sequence[Key]) -> None:
        for key in check_unique(self.spec, keys):
            self._rows.pop(key, None)

    def scan(
        self, start: Key | None = None, stop: Key | None = None, prefix: Key | None = None
    ) -> Iterator[tuple[Key, Versioned]]:
        first = None if start is None else _order(self.spec.check_key(start))
        beyond = None if stop is None else _order(self.spec.check_key(stop))
        under = self.spec.check_prefix(prefix or ())
        # A copy, so that rows may be removed during the scan.
        rows = dict(self._rows)
        for key in sorted(rows, key=_order):
            starts = first is None or _order(key) >= first
            ends = beyond is not None and _order(key) >= beyond
            if starts and not ends and key[: len(under)] == under:
                yield key, rows[key]

    def revert(self, txid: int) -> int:
        if self.spec.kind != "opaque":
            return 0
        written = [key for key, row in self._rows.items() if row.txid == txid]
        for key in written:
            row = self._rows.pop(key)
            if row.prev_txid is not None:
                self._rows[key] = Versioned(row.prev, row.prev_txid, at=row.prev_at)
        return len(written)

    def _kept(self, key: Key, row: Versioned, now: datetime) -> Versioned:
        value, at = self._own(key, row.value), row.at or now
        if self.spec.kind == "non_transactional":
            return Versioned(value, None, at=at)
        if self.spec.kind == "transactional" or row.prev_txid is None:
            return Versioned(value, row.txid, at=at)
        return Versioned(value, row.txid, self._own(key, row.prev), row.prev_txid, at, row.prev_at or now)

    def _own(self, key: Key, value: Any) -> Any:
        # A copy, so that the stored row does not change when the caller changes its object later.
        if value is None:
            return None
        if not self.spec.measures:
            return json.loads(json_text(self.spec, key, value))
        return {name: value[name] for name in self.spec.value_columns}


def _order(key: Key) -> tuple[tuple[bool, Any], ...]:
    # PostgreSQL's order: a NaN, which Python cannot order, comes after every number.
    return tuple((part != part, 0 if part != part else part) for part in key)

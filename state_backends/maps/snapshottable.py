"""Snapshottable map: one global value in a map state, for aggregates without groups."""

from typing import Any

from tidegauge.state_backends.maps.batch_map import BatchMap
from tidegauge.state_backends.protocols import Updater
from tidegauge.state_backends.spec.row import Key


class SnapshottableMap:
    """Wraps a map state and reads and writes one row of it.

    inner: the map state. key: the row's key; `()` for a state without key columns, which has no other row.
    Trident's SnapshottableMap (apache/storm, trident/state/map/SnapshottableMap.java).
    """

    def __init__(self, inner: BatchMap, key: Key = ()) -> None:
        self.begin_commit, self.commit, self.rollback = inner.begin_commit, inner.commit, inner.rollback
        self._inner = inner
        self._key = key

    def get(self) -> Any:
        """Return the global value; None if nothing is stored."""
        return self._inner.multi_get([self._key])[0]

    def update(self, updater: Updater) -> Any:
        """Apply the updater to the global value and return the new value."""
        return self._inner.multi_update([self._key], [updater])[0]

    def set(self, value: Any) -> None:
        """Replace the global value; None removes it."""
        self._inner.multi_put([self._key], [value])

"""Snapshottable map: a map state that also holds one global value, under a key of its own."""

from typing import Any

from state_backends.maps.batch_map import BatchMap
from state_backends.protocols import Updater
from state_backends.row import Key


class SnapshottableMap:
    """Wraps a map state whose single row is a global aggregate. Trident's Snapshottable.

    key: the row's key; `()` for a state without key columns, where no user key can meet it.
    """

    def __init__(self, inner: BatchMap, key: Key = ()) -> None:
        self.begin_commit, self.commit, self.rollback = inner.begin_commit, inner.commit, inner.rollback
        self._inner = inner
        self._key = key

    def get(self) -> Any:
        """Return the global value, None where nothing is stored."""
        return self._inner.multi_get([self._key])[0]

    def update(self, updater: Updater) -> Any:
        """Apply the updater to the global value and return the new one."""
        return self._inner.multi_update([self._key], [updater])[0]

    def set(self, value: Any) -> None:
        """Put `value` in place of the global value."""
        self._inner.multi_put([self._key], [value])

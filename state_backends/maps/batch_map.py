"""BatchMap: what the three kinds of map state share.

It tracks the open batch and updates many keys with one read and one write of the backing map. A kind decides two
things: which value a row shows, and which row an update makes of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from tidegauge.state_backends.committed import is_live
from tidegauge.state_backends.errors import StaleBatchError
from tidegauge.state_backends.maps.updaters import Replace
from tidegauge.state_backends.protocols import IBackingMap, Updater
from tidegauge.state_backends.spec.row import Key, Versioned


class BatchMap(ABC):
    """A map state over a backing map, updated batch by batch.

    Begin a batch, update, commit. Between commit and the next begin no batch is open: reads see the current values,
    and an update replaces the current version in place and keeps its txid, so that a later batch can read the row.
    A value whose ttl has passed at the batch's time counts as absent.
    atomic: whether all writes of one batch are stored together or not at all, as in one database transaction.
    Trident's MapState (apache/storm, trident/state/map/MapState.java).
    """

    def __init__(self, backing: IBackingMap, *, atomic: bool = False) -> None:
        self._backing = backing
        self._atomic = atomic
        self._ttl = backing.spec.ttl
        self._txid: int | None = None
        self._at: datetime | None = None
        self._written: set[Key] = set()

    def begin_commit(self, txid: int | None, at: datetime | None = None) -> None:
        """Open batch `txid`; None is for writes outside of any batch.

        at: the batch time, from which ttl counts: timezone-aware and the same for all attempts. None: the time of each
            call.
        """
        self._txid = txid
        self._at = at
        self._written.clear()

    def commit(self, txid: int | None) -> None:
        """Close the batch. Its writes are already in the backing map."""
        self._txid = self._at = None
        self._written.clear()

    def rollback(self, txid: int) -> int:
        """Revert the rows that batch `txid` wrote. Returns their number; 0 for kinds without a previous version."""
        self._written.clear()
        return self._backing.revert(txid)

    def multi_get(self, keys: Sequence[Key]) -> list[Any]:
        """Return the value of each key, in the order of `keys`; None for a key that is absent, removed or expired.

        Inside a batch: the value that the batch wrote, or the one that it started from if it has not written the key.
        Raises KeyShapeError.
        """
        typed = self._typed(keys)
        return [self._seen(key, row) for key, row in zip(typed, self._backing.multi_get(typed), strict=True)]

    def multi_update(self, keys: Sequence[Key], updaters: Sequence[Updater]) -> list[Any]:
        """Apply updaters[i] to the value of keys[i] and return the n new values, in order.

        One read and one write of the backing map. A repeated key is updated twice, the second time on the result of the
        first (Storm loses the first). If an updater raises, nothing is written.
        Raises KeyShapeError, and StaleBatchError if a newer batch wrote one of the rows. A transactional map that is
        not atomic raises RepeatedUpdateError for a key that an earlier call of the batch updated.
        """
        typed = self._typed(keys)
        stored = dict(zip(typed, self._backing.multi_get(typed), strict=True))
        rows: dict[Key, Versioned] = {}
        values = []
        for key, updater in zip(typed, updaters, strict=True):
            row = self._again(rows[key], updater) if key in rows else self._updated(key, stored[key], updater)
            if row is not stored[key]:
                rows[key] = row
            values.append(row.value)
        if rows:
            self._backing.multi_put(list(rows), list(rows.values()))
        self._note(stored, rows)
        return values

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        """Set keys[i] to values[i], under the same rules as an update; None removes a key."""
        self.multi_update(keys, [Replace(value) for value in values])

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove keys. If the kind keeps txids, a tombstone stays until compaction, so that a replay is exact."""
        self.multi_put(keys, [None] * len(keys))

    def _typed(self, keys: Sequence[Key]) -> list[Key]:
        # A key can be written in several ways, such as a timestamp as text; `_written` needs one form.
        return self._backing.spec.check_keys(keys)

    @abstractmethod
    def _seen(self, key: Key, row: Versioned | None) -> Any:
        """Return the value of a row as a reader sees it, inside the open batch if there is one."""

    @abstractmethod
    def _updated(self, key: Key, row: Versioned | None, updater: Updater) -> Versioned:
        """Return the row after the update; the same object as `row` if nothing changes."""

    def _note(self, asked: Collection[Key], rows: Collection[Key]) -> None:
        """Note which keys a call has updated, and which of them it has written."""
        self._written.update(rows)

    def _first(self, updater: Updater) -> Versioned:
        # Outside of a batch the txid is 0, so that every batch counts as newer.
        return Versioned(updater.update(None), self._txid or 0, at=self._at)

    def _again(self, row: Versioned, updater: Updater) -> Versioned:
        value = updater.update(self._live(row.value, row.at))
        return Versioned(value, row.txid, row.prev, row.prev_txid, self._at, row.prev_at)

    def _live(self, value: Any, at: datetime | None) -> Any:
        """Return the value, or None if its ttl has passed at the batch's time."""
        if self._ttl is None or at is None or is_live(False, at, self._ttl, self._at or datetime.now(UTC)):
            return value
        return None


def refuse_newer(key: Key, row: Versioned, txid: int) -> None:
    """Raise StaleBatchError if a newer batch than `txid` wrote the row."""
    if (row.txid or 0) > txid:
        raise StaleBatchError.behind(txid, row.txid, repr(key))

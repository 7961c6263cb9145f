"""What the three maps share: a batch that is open or not, and updates of many keys with one read and one write."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from state_backends.committed import is_live
from state_backends.errors import StaleBatchError
from state_backends.maps.updaters import Replace
from state_backends.protocols import IBackingMap, Updater
from state_backends.row import Key, Versioned


class BatchMap(ABC):
    """A map state over a backing map, updated batch by batch. Trident's MapState.

    Begin a batch, update, commit. Between commit and the next begin no batch is open: reads see the current values,
    and an update changes the current version where it stands, under the txid it has, so it cannot poison a later batch.
    A value whose time to live has run out counts as absent, at the batch's time.
    """

    def __init__(self, backing: IBackingMap) -> None:
        self._backing = backing
        self._ttl = backing.spec.ttl
        self._txid: int | None = None
        self._at: datetime | None = None
        self._written: set[Key] = set()

    def begin_commit(self, txid: int | None, at: datetime | None = None) -> None:
        """Open batch `txid`; None stands for writes outside any batch.

        at: the batch's time, the same for all attempts, from which ttl counts; None takes the time of each call.
        """
        self._txid = txid
        self._at = at
        self._written.clear()

    def commit(self, txid: int | None) -> None:
        """Close the batch. What it wrote is in the backing map already."""
        self._txid = self._at = None
        self._written.clear()

    def rollback(self, txid: int) -> int:
        """Undo what batch `txid` wrote, as far as the kind can. Returns the number of rows put back."""
        self._written.clear()
        return self._backing.revert(txid)

    def multi_get(self, keys: Sequence[Key]) -> list[Any]:
        """Return the value of each key, in the order asked; None where a key is absent or removed.

        Inside a batch: the values this batch builds upon, and for keys it has written, what it wrote.
        """
        typed = self._typed(keys)
        return [self._seen(key, row) for key, row in zip(typed, self._backing.multi_get(typed), strict=True)]

    def multi_update(self, keys: Sequence[Key], updaters: Sequence[Updater]) -> list[Any]:
        """Apply updaters[i] to the value of keys[i] and return the new values, in order.

        One read and one write of the backing map. A key that comes twice is updated twice, the second time upon the
        first (Storm loses the first). If an updater raises, nothing is written.
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
            self._written.update(rows)
        return values

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        """Put values[i] under keys[i], under the same rules as an update; None removes a key."""
        self.multi_update(keys, [Replace(value) for value in values])

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove keys. Where the kind keeps versions a tombstone stays until compaction, so that a replay is exact."""
        self.multi_put(keys, [None] * len(keys))

    def _typed(self, keys: Sequence[Key]) -> list[Key]:
        # One key may be written in several ways, a timestamp as text, say; the batch must know it again.
        return self._backing.spec.check_keys(keys)

    @abstractmethod
    def _seen(self, key: Key, row: Versioned | None) -> Any:
        """Return the value that a reader inside the open batch, if any, sees of this row."""

    @abstractmethod
    def _updated(self, key: Key, row: Versioned | None, updater: Updater) -> Versioned:
        """Return the row after the update; the very row given where nothing changes."""

    def _first(self, updater: Updater) -> Versioned:
        return Versioned(updater.update(None), self._txid or 0, at=self._at)

    def _again(self, row: Versioned, updater: Updater) -> Versioned:
        value = updater.update(self._live(row.value, row.at))
        return Versioned(value, row.txid, row.prev, row.prev_txid, self._at, row.prev_at)

    def _live(self, value: Any, at: datetime | None) -> Any:
        """Return the value, or None where its time to live has run out at the batch's time."""
        if self._ttl is None or at is None or is_live(False, at, self._ttl, self._at or datetime.now(UTC)):
            return value
        return None


def refuse_newer(key: Key, row: Versioned, txid: int) -> None:
    """Raise StaleBatchError where a newer batch than `txid` wrote the row."""
    if (row.txid or 0) > txid:
        raise StaleBatchError.behind(txid, row.txid, repr(key))

"""Opaque map: a map state that survives replays even when a replayed batch differs from the first try.

A batch that already wrote a key computes it again from the value before it, so a crash between write and
commit counts nothing twice. The price is one more value per row. Where replays are identical, TransactionalMap
is cheaper.
"""

from typing import Any

from state_backends.errors import StaleBatchError
from state_backends.maps.batch_map import BatchMap
from state_backends.protocols import Updater
from state_backends.versioned import Key, Versioned


class OpaqueMap(BatchMap):
    """A map state whose rows hold value, previous value and txid. Trident's OpaqueMap.

    A key that a failed attempt wrote and its replay lacks keeps the failed attempt's contribution unless `rollback`
    runs first: call it once, before any write, whenever a batch is tried again.
    Reads and updates of a row that a newer batch wrote raise StaleBatchError.
    """

    def _seen(self, key: Key, row: Versioned | None) -> Any:
        if row is None:
            return None
        if self._txid is None or key in self._written:
            return row.value
        return row.prev if self._is_replay(key, row) else row.value

    def _updated(self, key: Key, row: Versioned | None, updater: Updater) -> Versioned:
        if row is None:
            return Versioned(updater.update(None), self._txid or 0)
        if self._txid is None or key in self._written:
            return self._again(row, updater)
        if self._is_replay(key, row):
            return Versioned(updater.update(row.prev), self._txid, row.prev, row.prev_txid)
        return Versioned(updater.update(row.value), self._txid, row.value, row.txid)

    def _is_replay(self, key: Key, row: Versioned) -> bool:
        assert self._txid is not None
        if (row.txid or 0) > self._txid:
            raise StaleBatchError(
                f"batch {self._txid} is older than stored batch {row.txid} for key {key!r}; "
                "another runner has moved on, so stop this one"
            )
        return row.txid == self._txid

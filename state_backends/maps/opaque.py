"""Opaque map: a map state that survives replays even when a replayed batch differs from the first try.

A batch that already wrote a key computes it again from the value before it, so a crash between write and
commit counts nothing twice. The price is one more value per row. Where replays are identical, TransactionalMap
is cheaper.
"""

from typing import Any

from tidegauge.state_backends.maps.batch_map import BatchMap, refuse_newer
from tidegauge.state_backends.protocols import Updater
from tidegauge.state_backends.spec.row import Key, Versioned


class OpaqueMap(BatchMap):
    """A map state whose rows hold value, previous value and txid.

    backing: where the rows are. atomic: as for TransactionalMap; it makes no difference here.
    A key that a failed attempt wrote and its replay lacks keeps the failed attempt's contribution unless `rollback`
    runs first: call it once per retry, before any write.
    Reads and updates of a row that a newer batch wrote raise StaleBatchError.
    Trident's OpaqueMap (apache/storm, trident/state/map/OpaqueMap.java), which has no `rollback`.
    """

    def _seen(self, key: Key, row: Versioned | None) -> Any:
        if row is None:
            return None
        if self._txid is None or key in self._written or not self._is_replay(key, row):
            return self._live(row.value, row.at)
        return self._live(row.prev, row.prev_at)

    def _updated(self, key: Key, row: Versioned | None, updater: Updater) -> Versioned:
        if row is None:
            return self._first(updater)
        if self._txid is None or key in self._written:
            return self._again(row, updater)
        if self._is_replay(key, row):
            # Build on the previous version, because the current one has the update of the failed attempt.
            value = updater.update(self._live(row.prev, row.prev_at))
            return Versioned(value, self._txid, row.prev, row.prev_txid, self._at, row.prev_at)
        value = updater.update(self._live(row.value, row.at))
        return Versioned(value, self._txid, row.value, row.txid, self._at, row.at)

    def _is_replay(self, key: Key, row: Versioned) -> bool:
        assert self._txid is not None
        refuse_newer(key, row, self._txid)
        return row.txid == self._txid

"""Transactional map: exactly once for sources that replay a batch with the same tuples, at one version per row."""

from typing import Any

from state_backends.errors import StaleBatchError
from state_backends.maps.batch_map import BatchMap
from state_backends.protocols import Updater
from state_backends.versioned import Key, Versioned


class TransactionalMap(BatchMap):
    """A map state whose rows hold value and txid; a row that carries the open txid is not updated again.

    A replay with other tuples is miscounted: use OpaqueMap for such sources. Trident's TransactionalMap, which
    silently lets an older batch write; here that raises StaleBatchError.
    """

    def _seen(self, key: Key, row: Versioned | None) -> Any:
        return None if row is None else row.value

    def _updated(self, key: Key, row: Versioned | None, updater: Updater) -> Versioned:
        if row is None:
            return Versioned(updater.update(None), self._txid or 0)
        if self._txid is None or key in self._written:
            return self._again(row, updater)
        if (row.txid or 0) > self._txid:
            raise StaleBatchError(
                f"batch {self._txid} is older than stored batch {row.txid} for key {key!r}; "
                "another runner has moved on, so stop this one"
            )
        return row if row.txid == self._txid else Versioned(updater.update(row.value), self._txid)

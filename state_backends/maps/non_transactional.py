"""Non-transactional map: a map state without txids, for sources that never replay or counts that may be inexact.

It stores neither txid nor previous value, so its rows are the smallest of the three kinds.
"""

from typing import Any

from tidegauge.state_backends.maps.batch_map import BatchMap
from tidegauge.state_backends.protocols import Updater
from tidegauge.state_backends.spec.row import Key, Versioned


class NonTransactionalMap(BatchMap):
    """A map state whose rows have no txid. Every update is applied, so a replay counts twice.

    backing: where the rows are. atomic: as for TransactionalMap; it makes no difference here.
    Trident's NonTransactionalMap (apache/storm, trident/state/map/NonTransactionalMap.java).
    """

    def _seen(self, key: Key, row: Versioned | None) -> Any:
        return None if row is None else self._live(row.value, row.at)

    def _updated(self, key: Key, row: Versioned | None, updater: Updater) -> Versioned:
        return Versioned(updater.update(self._seen(key, row)), None, at=self._at)

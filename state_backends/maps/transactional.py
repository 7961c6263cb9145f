"""Transactional map: a map state that counts once if a replayed batch brings the same tuples as the first attempt.

A row that already carries the batch's txid is not updated again. A row stores one version. If a replay can differ, use
OpaqueMap.
"""

from collections.abc import Collection
from typing import Any

from tidegauge.state_backends.errors import RepeatedUpdateError
from tidegauge.state_backends.maps.batch_map import BatchMap, refuse_newer
from tidegauge.state_backends.protocols import Updater
from tidegauge.state_backends.spec.row import Key, Versioned


class TransactionalMap(BatchMap):
    """A map state whose rows hold value and txid; a row that carries the open txid is not updated again.

    backing: where the rows are. atomic: whether all writes of one batch are stored together or not at all.
    Update a key in one call per batch, or give atomic=True. A replay skips every key that the failed attempt wrote, so
    if that attempt failed between two calls for a key, the second one would be lost. A second call is therefore an
    error. With atomic=True it builds on the first one.
    Updates of a row that a newer batch wrote raise StaleBatchError.
    Trident's TransactionalMap (apache/storm, trident/state/map/TransactionalMap.java), which lets an older batch write.
    """

    def _seen(self, key: Key, row: Versioned | None) -> Any:
        return None if row is None else self._live(row.value, row.at)

    def _updated(self, key: Key, row: Versioned | None, updater: Updater) -> Versioned:
        if row is None:
            return self._first(updater)
        if self._txid is not None and not self._atomic and key in self._written:
            raise RepeatedUpdateError(
                f"state {self._backing.spec.name!r}: batch {self._txid} updates key {key!r} in a second call, which a "
                "replay would skip; update it in one call, in which a key may repeat, or give the map atomic=True if "
                "all writes of a batch are stored in one transaction"
            )
        if self._txid is None or key in self._written:
            return self._again(row, updater)
        refuse_newer(key, row, self._txid)
        # A replay: the row already has the update, because a replayed batch brings the same tuples.
        if row.txid == self._txid:
            return row
        return Versioned(updater.update(self._live(row.value, row.at)), self._txid, at=self._at)

    def _note(self, asked: Collection[Key], rows: Collection[Key]) -> None:
        # Unless atomic, a key that this replay skipped counts too: a second call for it would be skipped as well.
        self._written.update(rows if self._atomic else asked)

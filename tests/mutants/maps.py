"""Mutants of the map states, their updaters, and the backing map in memory."""

from tests.mutants.mutant import Mutant

BATCH_MAP = "state_backends/maps/batch_map.py"
OPAQUE = "state_backends/maps/opaque.py"
TRANSACTIONAL = "state_backends/maps/transactional.py"
NON_TRANSACTIONAL = "state_backends/maps/non_transactional.py"
SNAPSHOTTABLE = "state_backends/maps/snapshottable.py"
UPDATERS = "state_backends/maps/updaters.py"
MEMORY = "state_backends/backends/memory.py"

MAP_STATES = ["tests/state_backends/maps/test_map_states.py"]
BACKING_MAPS = ["tests/state_backends/backends/test_backing_maps.py"]

MUTANTS = [
    Mutant(
        "maps/opaque-replay-reads-the-failed-attempt",
        OPAQUE,
        "return self._live(row.prev, row.prev_at)",
        "return self._live(row.value, row.at)",
        MAP_STATES,
    ),
    Mutant(
        "maps/opaque-replay-builds-on-the-failed-attempt",
        OPAQUE,
        "updater.update(self._live(row.prev, row.prev_at))",
        "updater.update(self._live(row.value, row.at))",
        MAP_STATES,
    ),
    Mutant(
        "maps/opaque-replay-ignores-the-ttl-of-prev",
        OPAQUE,
        "updater.update(self._live(row.prev, row.prev_at))",
        "updater.update(row.prev)",
        MAP_STATES,
    ),
    Mutant(
        "maps/opaque-update-gives-prev-the-batch-time",
        OPAQUE,
        "row.value, row.txid, self._at, row.at)",
        "row.value, row.txid, self._at, self._at)",
        MAP_STATES,
    ),
    Mutant(
        "maps/opaque-update-keeps-the-old-prev",
        OPAQUE,
        "Versioned(value, self._txid, row.value, row.txid, self._at, row.at)",
        "Versioned(value, self._txid, row.prev, row.prev_txid, self._at, row.prev_at)",
        MAP_STATES,
    ),
    Mutant(
        "maps/opaque-takes-a-newer-row-for-a-replay",
        OPAQUE,
        "refuse_newer(key, row, self._txid)\n        return row.txid == self._txid",
        "return (row.txid or 0) >= self._txid",
        MAP_STATES,
    ),
    Mutant(
        "maps/opaque-second-update-starts-over",
        OPAQUE,
        "if self._txid is None or key in self._written:\n            return self._again(row, updater)",
        "if self._txid is None:\n            return self._again(row, updater)",
        MAP_STATES,
    ),
    Mutant(
        "maps/transactional-replay-counts-again",
        TRANSACTIONAL,
        "        if row.txid == self._txid:\n            return row\n",
        "",
        MAP_STATES,
    ),
    Mutant(
        "maps/transactional-older-batch-writes",
        TRANSACTIONAL,
        "        refuse_newer(key, row, self._txid)\n",
        "",
        MAP_STATES,
    ),
    Mutant(
        "maps/transactional-update-ignores-the-ttl",
        TRANSACTIONAL,
        "updater.update(self._live(row.value, row.at))",
        "updater.update(row.value)",
        MAP_STATES,
    ),
    Mutant(
        "maps/non-transactional-row-has-no-batch-time",
        NON_TRANSACTIONAL,
        "None, at=self._at)",
        "None)",
        MAP_STATES,
    ),
    Mutant(
        "maps/rollback-remembers-what-the-batch-wrote",
        BATCH_MAP,
        "self._written.clear()\n        return self._backing.revert(txid)",
        "return self._backing.revert(txid)",
        MAP_STATES,
    ),
    Mutant(
        "maps/begin-remembers-what-the-last-attempt-wrote",
        BATCH_MAP,
        "self._at = at\n        self._written.clear()",
        "self._at = at",
        MAP_STATES,
    ),
    Mutant(
        "maps/commit-leaves-the-batch-open",
        BATCH_MAP,
        "self._txid = self._at = None",
        "self._at = None",
        MAP_STATES,
    ),
    Mutant(
        "maps/a-key-twice-in-a-call-loses-the-first-update",
        BATCH_MAP,
        "self._again(rows[key], updater) if key in rows else self._updated(key, stored[key], updater)",
        "self._updated(key, stored[key], updater)",
        MAP_STATES,
    ),
    Mutant(
        "maps/a-skipped-replay-counts-as-written",
        BATCH_MAP,
        "if row is not stored[key]:",
        "if row is not None:",
        MAP_STATES,
    ),
    Mutant(
        "maps/a-batch-forgets-what-it-wrote",
        BATCH_MAP,
        "        self._note(stored, rows)\n",
        "",
        MAP_STATES,
    ),
    Mutant(
        "maps/second-update-gives-prev-the-time-of-now",
        BATCH_MAP,
        "row.prev, row.prev_txid, self._at, row.prev_at)",
        "row.prev, row.prev_txid, self._at, row.at)",
        MAP_STATES,
    ),
    Mutant(
        "maps/update-outside-a-batch-does-not-restart-the-ttl",
        BATCH_MAP,
        "row.prev, row.prev_txid, self._at, row.prev_at)",
        "row.prev, row.prev_txid, row.at, row.prev_at)",
        MAP_STATES,
    ),
    Mutant(
        "maps/second-update-ignores-the-ttl",
        BATCH_MAP,
        "value = updater.update(self._live(row.value, row.at))",
        "value = updater.update(row.value)",
        MAP_STATES,
    ),
    Mutant(
        "maps/ttl-counts-from-the-clock-in-a-batch",
        BATCH_MAP,
        "is_live(False, at, self._ttl, self._at or datetime.now(UTC))",
        "is_live(False, at, self._ttl, datetime.now(UTC))",
        MAP_STATES,
    ),
    Mutant(
        "maps/snapshot-is-set-under-the-empty-key",
        SNAPSHOTTABLE,
        "self._inner.multi_put([self._key], [value])",
        "self._inner.multi_put([()], [value])",
        MAP_STATES,
    ),
    Mutant(
        "maps/combine-takes-a-falsy-value-for-nothing",
        UPDATERS,
        "return self.partial if stored is None else",
        "return self.partial if not stored else",
        MAP_STATES,
    ),
    Mutant(
        "maps/reduce-takes-a-falsy-value-for-nothing",
        UPDATERS,
        "self.init() if stored is None else stored",
        "self.init() if not stored else stored",
        MAP_STATES,
    ),
    Mutant(
        "maps/memory-reverts-a-row-onto-a-removed-one-away",
        MEMORY,
        "if row.prev_txid is not None:",
        "if row.prev is not None:",
        BACKING_MAPS,
    ),
    Mutant(
        "maps/memory-takes-a-row-of-an-older-batch",
        MEMORY,
        "if stored is not None and (stored.txid or 0) > (row.txid or 0):",
        "if stored is None and (row.txid or 0) < 0:",
        BACKING_MAPS,
    ),
]

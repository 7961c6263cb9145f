"""A backing map that remembers rows: fewer round trips for a writer that meets the same keys batch after batch.

It wraps any other and keeps the same contract, but only for one writer per key: what another process writes to a
remembered row is not seen until the row leaves the cache. What it cannot do, whatever it remembers, is take a row back:
the map below refuses a row older than the stored one. Trident's CachedMap remembers before it has written, and
remembers misses; here a row is remembered after it was stored, and an absent key is asked for every time, as another
process may have put it meanwhile.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from state_backends.errors import SpecError
from state_backends.protocols import IBackingMap
from state_backends.row import Key, Versioned, check_unique, pair


class CachedMap:
    """Keeps the `cache_keys` rows used last; reads count as use.

    Not thread-safe: one task, one map, as with the connection below it. Rows are handed out as they are remembered:
    make new values of them, change none in place. A call that fails forgets everything. So does `forget`: call it after
    rolling back a transaction that this map has written in, as nothing else would tell it.
    Raises SpecError for a cache of less than one row.
    """

    def __init__(self, inner: IBackingMap, cache_keys: int = 1_000) -> None:
        if cache_keys < 1:
            raise SpecError(f"state {inner.spec.name!r}: cache_keys {cache_keys!r} must be 1 or more")
        self.spec = inner.spec
        self._inner = inner
        self._cache_keys = cache_keys
        self._rows: OrderedDict[Key, Versioned] = OrderedDict()

    def multi_get(self, keys: Sequence[Key]) -> list[Versioned | None]:
        """Return the row of each key, in the order asked; the inner map is asked, once, for those not remembered."""
        typed = self.spec.check_keys(keys)
        rows: dict[Key, Versioned | None] = {key: self._rows.get(key) for key in typed}
        missed = [key for key, row in rows.items() if row is None]
        if missed:
            with self._forgetting_on_failure():
                rows |= zip(missed, self._inner.multi_get(missed), strict=True)
        for key, row in rows.items():
            self._remember(key, row)
        return [rows[key] for key in typed]

    def multi_put(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
        """Store rows as the inner map does. Its errors pass through, and leave nothing remembered."""
        new = pair(self.spec, keys, rows)
        # Write first, remember second: a failed write must not leave a row in the cache that nobody stored.
        with self._forgetting_on_failure():
            self._inner.multi_put(list(new), list(new.values()))
        for key, row in new.items():
            self._remember(key, row if _is_timed(row) else None)

    def multi_remove(self, keys: Sequence[Key]) -> None:
        typed = check_unique(self.spec, keys)
        with self._forgetting_on_failure():
            self._inner.multi_remove(typed)
        for key in typed:
            self._remember(key, None)

    def scan(
        self, start: Key | None = None, stop: Key | None = None, prefix: Key | None = None
    ) -> Iterator[tuple[Key, Versioned]]:
        """Scan the inner map, which holds every row that is remembered here."""
        return self._inner.scan(start, stop, prefix)

    def revert(self, txid: int) -> int:
        self.forget()
        return self._inner.revert(txid)

    def forget(self) -> None:
        """Forget every row; the next read of each asks the inner map."""
        self._rows.clear()

    @contextmanager
    def _forgetting_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # Whether it was stored is not known, and what its transaction wrote before may be gone with it.
            self.forget()
            raise

    def _remember(self, key: Key, row: Versioned | None) -> None:
        self._rows.pop(key, None)
        if row is not None:
            self._rows[key] = row
        if len(self._rows) > self._cache_keys:
            self._rows.popitem(last=False)


def _is_timed(row: Versioned) -> bool:
    """Whether the row carries its times; if not the store gives it its own, from which its ttl counts."""
    return row.at is not None and (row.prev_txid is None or row.prev_at is not None)

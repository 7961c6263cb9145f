"""A backing map that keeps what is put to itself until it is told to store it, each row once and as it came out.

For a store whose writes share no transaction with the rest of a task. A task that dies half way has stored nothing of
a key but its end, so that the run in its stead cannot take half of it for the whole.
"""

from collections.abc import Iterator, Sequence

from state_backends.protocols import IBackingMap
from state_backends.row import Key, Versioned, pair

# Rows per write: few enough for the lists on their way to stay small.
STORED_ROWS = 10_000


class DeferredMap:
    """Wraps a backing map. What is put is read back from here; others see it once `store` has run."""

    def __init__(self, inner: IBackingMap) -> None:
        self.spec = inner.spec
        self._inner = inner
        self._held: dict[Key, Versioned] = {}

    def multi_get(self, keys: Sequence[Key]) -> list[Versioned | None]:
        typed = self.spec.check_keys(keys)
        absent = list({key: None for key in typed if key not in self._held})
        found = self._held | dict(zip(absent, self._inner.multi_get(absent), strict=True))
        return [found[key] for key in typed]

    def multi_put(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
        """Hold rows[i] under keys[i]. Raises KeyShapeError, DuplicateKeyError; whatever else is wrong, `store` says."""
        self._held |= pair(self.spec, keys, rows)

    def multi_remove(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self._held.pop(self.spec.check_key(key), None)
        self._inner.multi_remove(keys)

    def scan(
        self, start: Key | None = None, stop: Key | None = None, prefix: Key | None = None
    ) -> Iterator[tuple[Key, Versioned]]:
        """Store what is held, then scan the inner map."""
        self.store()
        return self._inner.scan(start, stop, prefix)

    def revert(self, txid: int) -> int:
        self._held.clear()
        return self._inner.revert(txid)

    def store(self) -> None:
        """Put what is held into the inner map, and raise what that raises."""
        keys = list(self._held)
        for first in range(0, len(keys), STORED_ROWS):
            chunk = keys[first : first + STORED_ROWS]
            self._inner.multi_put(chunk, [self._held[key] for key in chunk])
        self._held.clear()

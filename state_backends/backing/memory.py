"""A backing map in a dict: for tests, notebooks, and as the plainest reading of the contract."""

from collections.abc import Iterator, Sequence

from state_backends.backing.keys import check_unique
from state_backends.spec import StateSpec
from state_backends.versioned import Key, Versioned


class MemoryBackingMap:
    """Rows of one state in a dict of this process; gone with it."""

    def __init__(self, spec: StateSpec) -> None:
        self.spec = spec
        self._rows: dict[Key, Versioned] = {}

    def multi_get(self, keys: Sequence[Key]) -> list[Versioned | None]:
        return [self._rows.get(self.spec.check_key(key, index)) for index, key in enumerate(keys)]

    def multi_put(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
        checked = check_unique(self.spec, keys)
        self._rows.update(zip(checked, rows, strict=True))

    def multi_remove(self, keys: Sequence[Key]) -> None:
        for key in check_unique(self.spec, keys):
            self._rows.pop(key, None)

    def scan(
        self, start: Key | None = None, stop: Key | None = None, prefix: Key | None = None
    ) -> Iterator[tuple[Key, Versioned]]:
        for key in sorted(self._rows):
            below = start is not None and key < start
            beyond = stop is not None and key >= stop
            outside = prefix is not None and key[: len(prefix)] != prefix
            if not (below or beyond or outside):
                yield key, self._rows[key]

    def revert(self, txid: int) -> int:
        if self.spec.kind != "opaque":
            return 0
        written = [key for key, row in self._rows.items() if row.txid == txid]
        for key in written:
            row = self._rows.pop(key)
            if row.prev_txid is not None:
                self._rows[key] = Versioned(row.prev, row.prev_txid)
        return len(written)

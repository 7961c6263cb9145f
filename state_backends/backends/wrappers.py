"""A backing map that remembers rows: fewer round trips for a writer that meets the same keys batch after batch.

It wraps any other and keeps the same contract, but only for one writer per key: what another process writes to a
remembered row is not seen until the row leaves the cache. What it cannot do, whatever it remembers, is take a row back:
the map below refuses a row older than the stored one. Trident's CachedMap remembers before it has written, and
remembers misses; here a row is remembered after it was stored, and an absent key is asked for every time, as another
process may have put it meanwhile.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

import psycopg

from tidegauge.state_backends.backends.postgres.rows import PostgresBackingMap
from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.protocols import IBackingMap
from tidegauge.state_backends.spec.row import Key, Versioned, check_unique, json_text, pair


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
        # Write first, remember second: a failed write must not leave a row in the cache that was not stored.
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


# A backing map that writes every new version to the state's changelog as well, whatever store keeps the rows.
#
# Where rows and changelog are in PostgreSQL on one connection, both are one transaction. Otherwise the entry is
# written first and the row second, so no row counts whose entry is missing: a transactional row that is there is not
# put again by a replay, and nothing else would write its entry. Entries ahead of their rows are of the open batch,
# which no reader sees; they are written again when the batch's task runs again, or go when it is reverted. That order
# holds only if the entries are committed before the rows are put: give the log a connection of its own then, in
# autocommit mode.


class RowLog(Protocol):
    """What a logged map asks of its log; Changelog is one."""

    @property
    def conn(self) -> psycopg.Connection: ...

    def append_rows(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> int: ...

    def revert(self, txid: int) -> int: ...


class LoggedMap:
    """Wraps a backing map; what is put or removed through it is in `log` too, under the row's txid.

    Raises SpecError for a non-transactional state, whose rows have no txid to be logged under.
    """

    def __init__(self, inner: IBackingMap, log: RowLog) -> None:
        if inner.spec.kind == "non_transactional":
            raise SpecError(f"state {inner.spec.name!r}: a changelog needs txids; choose kind opaque or transactional")
        self.spec = inner.spec
        self._inner = inner
        self._log = log
        self._json = [name for name, sql_type in self.spec.value_columns.items() if sql_type == "jsonb"]

    def multi_get(self, keys: Sequence[Key]) -> list[Versioned | None]:
        return self._inner.multi_get(keys)

    def multi_put(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
        """Append and store. Raises what the inner map does, and psycopg.Error; a refused call stores no row.

        Entries of a refused call may stay where the inner map is another store: they are of a batch that cannot be
        committed before it is reverted.
        """
        now = datetime.now(UTC)
        new = {key: replace(row, at=row.at or now) for key, row in pair(self.spec, keys, rows).items()}
        self._check_json(new)
        with self._together():
            self._log.append_rows(list(new), list(new.values()))
            self._inner.multi_put(list(new), list(new.values()))

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Forget rows; what the changelog has of their last version becomes a tombstone, as they bring no txid."""
        typed = check_unique(self.spec, keys)
        rows = zip(typed, self._inner.multi_get(typed), strict=True)
        gone = {key: Versioned(None, row.txid, at=row.at) for key, row in rows if row is not None}
        with self._together():
            self._log.append_rows(list(gone), list(gone.values()))
            self._inner.multi_remove(typed)

    def scan(
        self, start: Key | None = None, stop: Key | None = None, prefix: Key | None = None
    ) -> Iterator[tuple[Key, Versioned]]:
        return self._inner.scan(start, stop, prefix)

    def revert(self, txid: int) -> int:
        """Put rows back and forget their entries; either first, as a revert that was cut short runs again."""
        with self._together():
            self._log.revert(txid)
            return self._inner.revert(txid)

    def _together(self) -> AbstractContextManager[Any]:
        inner = self._inner
        if isinstance(inner, PostgresBackingMap) and inner._conn is self._log.conn:
            return self._log.conn.transaction()
        return nullcontext()

    def _check_json(self, rows: dict[Key, Versioned]) -> None:
        """Raise ValueShapeError where an inner map would, before anything is logged."""
        for key, row in rows.items():
            for name in self._json if row.value is not None else ():
                json_text(self.spec, key, row.value[name] if self.spec.measures else row.value)


# A backing map that keeps what is put to itself until it is told to store it, each row once and as it came out.
#
# For a store whose writes share no transaction with the rest of a task. A task that dies half way has stored nothing
# of a key but its end, so that the run in its stead cannot take half of it for the whole.


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

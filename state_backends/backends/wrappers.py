"""Backing maps that wrap another one: CachedMap caches rows, LoggedMap writes a changelog, DeferredMap writes later.

CachedMap saves round trips for a writer that reads the same keys batch after batch. It keeps the contract of the map
below it, but only for one writer per key: what another process writes to a cached row is not seen until the row leaves
the cache. An outdated cache cannot replace a newer row, because the map below refuses a row older than the stored one.
Trident's CachedMap caches before it has written, and caches misses. Here a row is cached after it was stored, and an
absent key is read every time, because another process may have put it meanwhile.
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
    """Caches the `cache_keys` rows used last; reads count as use.

    Not thread-safe: use one map per task, as with the connection below it. Returned rows are the cached objects, so
    make new values and change none in place. A call that fails forgets every row. Call `forget` after rolling back a
    transaction in which this map has written, because the map does not notice that.
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
        """Return the row of each key, in the order asked. The inner map is read once, for the rows not cached."""
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
        """Store rows as the inner map does. Its errors pass through, and clear the cache."""
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
        """Scan the inner map, which has every row that is cached here."""
        return self._inner.scan(start, stop, prefix)

    def revert(self, txid: int) -> int:
        self.forget()
        return self._inner.revert(txid)

    def forget(self) -> None:
        """Forget every row, so that the next read of each reads the inner map."""
        self._rows.clear()

    @contextmanager
    def _forgetting_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # All rows, because it is unknown what was stored, and earlier writes of the transaction may be rolled back.
            self.forget()
            raise

    def _remember(self, key: Key, row: Versioned | None) -> None:
        self._rows.pop(key, None)
        if row is not None:
            self._rows[key] = row
        if len(self._rows) > self._cache_keys:
            self._rows.popitem(last=False)


def _is_timed(row: Versioned) -> bool:
    """Return whether the row has its times. If not, the store sets them, so the cache cannot know what is stored."""
    return row.at is not None and (row.prev_txid is None or row.prev_at is not None)


# LoggedMap writes every new version to the state's changelog as well, whichever store keeps the rows.
#
# If rows and changelog are in PostgreSQL on one connection, both are written in one transaction. Otherwise the entry is
# written first and the row second, so that no row counts whose entry is missing: a replay does not put a transactional
# row again, so nothing else would write its entry. Entries ahead of their rows belong to the open batch, which no
# reader sees. They are written again when the batch's task runs again, or deleted when it is reverted. That order holds
# only if the entries are committed before the rows are put, so give the log a connection of its own then, in autocommit
# mode.


class RowLog(Protocol):
    """The calls that a LoggedMap makes to its log, such as a Changelog."""

    @property
    def conn(self) -> psycopg.Connection: ...

    def append_rows(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> int: ...

    def revert(self, txid: int) -> int: ...


class LoggedMap:
    """Wraps a backing map. Everything that is put or removed through it is also written to `log`, under the row's txid.

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
        """Log rows, then store them. Raises what the inner map does, and psycopg.Error; a refused call stores no row.

        Entries of a refused call may stay if the inner map is another store. They do no harm, because their batch
        cannot be committed before it is reverted.
        """
        now = datetime.now(UTC)
        new = {key: replace(row, at=row.at or now) for key, row in pair(self.spec, keys, rows).items()}
        self._check_json(new)
        with self._together():
            self._log.append_rows(list(new), list(new.values()))
            self._inner.multi_put(list(new), list(new.values()))

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove rows. A removal has no txid, so the changelog's entry of the last version becomes a tombstone."""
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
        """Put rows back and delete their entries. The order does not matter, because a revert that is cut short runs
        again."""
        with self._together():
            self._log.revert(txid)
            return self._inner.revert(txid)

    def _together(self) -> AbstractContextManager[Any]:
        inner = self._inner
        if isinstance(inner, PostgresBackingMap) and inner._conn is self._log.conn:
            return self._log.conn.transaction()
        return nullcontext()

    def _check_json(self, rows: dict[Key, Versioned]) -> None:
        """Raise ValueShapeError for a value that an inner map would refuse, before anything is logged."""
        for key, row in rows.items():
            for name in self._json if row.value is not None else ():
                json_text(self.spec, key, row.value[name] if self.spec.measures else row.value)


# DeferredMap holds what is put until `store` is called, which writes each row once, with its last value.
#
# For a store whose writes share no transaction with the rest of a task. A task that dies halfway has then stored only
# last values of keys, so that the task that runs in its place cannot take a partial value for the whole.


# Rows per write, so that the lists in memory stay small.
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
        """Hold rows[i] under keys[i]. Raises KeyShapeError, DuplicateKeyError; any other error is raised by `store`."""
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
        """Put what is held into the inner map. Its errors pass through."""
        keys = list(self._held)
        for first in range(0, len(keys), STORED_ROWS):
            chunk = keys[first : first + STORED_ROWS]
            self._inner.multi_put(chunk, [self._held[key] for key in chunk])
        self._held.clear()

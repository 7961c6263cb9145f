"""A backing map that writes every new version to the state's changelog as well, whatever store keeps the rows.

Where rows and changelog are in PostgreSQL on one connection, both are one transaction. Otherwise the entry is written
first and the row second, so no row counts whose entry is missing: a transactional row that is there is not put again
by a replay, and nothing else would write its entry. Entries ahead of their rows are of the open batch, which no
reader sees; they are written again when the batch's task runs again, or go when it is reverted. That order holds only
if the entries are committed before the rows are put: give the log a connection of its own then, in autocommit mode.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

import psycopg

from state_backends.backing.postgres import PostgresBackingMap
from state_backends.errors import SpecError
from state_backends.protocols import IBackingMap
from state_backends.row import Key, Versioned, check_unique, json_text, pair


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

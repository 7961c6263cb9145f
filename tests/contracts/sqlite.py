"""A backing map in SQLite: the example of docs/write-a-backend.md, kept here so that the contract runs on it."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from state_backends import StateSpec, Versioned
from state_backends.key_bytes import KeyBytes, after_prefix
from state_backends.row import Key, check_unique, json_text, pair, stale

COLUMNS = "value, txid, prev, prev_txid, at, prev_at"


class SqliteBackingMap:
    """Rows of one state in a SQLite table of its name. conn: in autocommit mode (`isolation_level=None`)."""

    def __init__(self, conn: sqlite3.Connection, spec: StateSpec) -> None:
        self.spec = spec
        self._conn = conn
        self._bytes = KeyBytes(spec)
        conn.execute(f"CREATE TABLE IF NOT EXISTS {spec.name} (key BLOB PRIMARY KEY, {COLUMNS}) WITHOUT ROWID")

    def multi_get(self, keys: Sequence[Key]) -> list[Versioned | None]:
        return [self._get(self.spec.check_key(key, index)) for index, key in enumerate(keys)]

    def multi_put(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
        new = pair(self.spec, keys, rows)
        with self._transaction():
            for key, row in new.items():
                stored = self._get(key)
                if stored is not None and (stored.txid or 0) > (row.txid or 0):
                    raise stale(self.spec, key, row.txid, stored.txid)
                self._put(key, row)

    def multi_remove(self, keys: Sequence[Key]) -> None:
        gone = [[self._bytes.encode(key)] for key in check_unique(self.spec, keys)]
        with self._transaction():
            self._conn.executemany(f"DELETE FROM {self.spec.name} WHERE key = ?", gone)

    def scan(
        self, start: Key | None = None, stop: Key | None = None, prefix: Key | None = None
    ) -> Iterator[tuple[Key, Versioned]]:
        under = self._bytes.encode(self.spec.check_prefix(prefix or ()))
        first = b"" if start is None else self._bytes.encode(self.spec.check_key(start))
        beyond = None if stop is None else self._bytes.encode(self.spec.check_key(stop))
        for key, *row in self._conn.execute(
            f"SELECT key, {COLUMNS} FROM {self.spec.name} WHERE key >= max(?1, ?2) "
            "AND (?3 IS NULL OR key < ?3) AND (?4 IS NULL OR key < ?4) ORDER BY key",
            [under, first, after_prefix(under), beyond],
        ):
            yield self._bytes.decode(key), _versioned(row)

    def revert(self, txid: int) -> int:
        if self.spec.kind != "opaque":
            return 0
        name = self.spec.name
        with self._transaction():
            new = self._conn.execute(f"DELETE FROM {name} WHERE txid = ? AND prev_txid IS NULL", [txid]).rowcount
            old = self._conn.execute(
                f"UPDATE {name} SET value = prev, txid = prev_txid, at = prev_at, prev = NULL, prev_txid = NULL, "
                "prev_at = NULL WHERE txid = ?",
                [txid],
            ).rowcount
        return new + old

    def _get(self, key: Key) -> Versioned | None:
        row = self._conn.execute(
            f"SELECT {COLUMNS} FROM {self.spec.name} WHERE key = ?", [self._bytes.encode(key)]
        ).fetchone()
        return None if row is None else _versioned(row)

    def _put(self, key: Key, row: Versioned) -> None:
        now = datetime.now(UTC)
        kept = [self._text(key, row.value), None, None, None, (row.at or now).isoformat(), None]
        if self.spec.kind != "non_transactional":
            kept[1] = row.txid
        if self.spec.kind == "opaque" and row.prev_txid is not None:
            kept[2:4] = self._text(key, row.prev), row.prev_txid
            kept[5] = (row.prev_at or now).isoformat()
        self._conn.execute(
            f"INSERT OR REPLACE INTO {self.spec.name} VALUES (?, ?, ?, ?, ?, ?, ?)", [self._bytes.encode(key), *kept]
        )

    def _text(self, key: Key, value: object) -> str | None:
        return None if value is None else json_text(self.spec, key, value)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._conn.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._conn.execute("ROLLBACK")
            raise
        self._conn.execute("COMMIT")


def _versioned(row: Sequence[object]) -> Versioned:
    value, txid, prev, prev_txid, at, prev_at = row
    return Versioned(_value(value), txid, _value(prev), prev_txid, _time(at), _time(prev_at))


def _value(text: object) -> object:
    return None if text is None else json.loads(text)


def _time(text: object) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)

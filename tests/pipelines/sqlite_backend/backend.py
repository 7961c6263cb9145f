"""A backend over SQLite: the example of docs/write-a-backend.md, whole enough that a pipeline can feed it.

One file holds the rows of every state and a table of guards: which attempt may write a state, and which batch readers
see. A write checks the guard in its own transaction, so that an attempt which was overtaken cannot land.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidegauge.state_backends import StateSpec, Versioned
from tidegauge.state_backends.backends.external import ExternalBackend
from tidegauge.state_backends.backends.guard import Attempt, BatchRecord, StoreStatus, refuse
from tidegauge.state_backends.committed import is_live
from tidegauge.state_backends.errors import BackendUnavailable, LostWritesError, MovedOnError
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.reader.scanned import CommittedRow, Published
from tidegauge.state_backends.spec.key_bytes import KeyBytes, after_prefix
from tidegauge.state_backends.spec.row import Key, check_unique, json_text, pair, stale

COLUMNS = "value, txid, prev, prev_txid, at, prev_at"
PAGE_ROWS = 100


class SqliteBackingMap:
    """Rows of one state in a SQLite table of its name. conn: in autocommit mode (`isolation_level=None`)."""

    def __init__(self, conn: sqlite3.Connection, spec: StateSpec) -> None:
        self.spec = spec
        self._conn = conn
        self._bytes = KeyBytes(spec)
        self._table = f"state_{spec.name}"
        self._attempt: Attempt | None = None
        conn.execute(f"CREATE TABLE IF NOT EXISTS {self._table} (key BLOB PRIMARY KEY, {COLUMNS}) WITHOUT ROWID")
        conn.execute("CREATE TABLE IF NOT EXISTS guard (state PRIMARY KEY, attempt, epoch, committed, rebuilding)")
        conn.execute(
            "CREATE TABLE IF NOT EXISTS record "
            "(state, txid, by, keys, is_reverted, has_written, PRIMARY KEY (state, txid))"
        )

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
                if stored is None or stored.txid != row.txid:
                    self._count(row.txid, 1)

    def multi_remove(self, keys: Sequence[Key]) -> None:
        gone = [[self._bytes.encode(key)] for key in check_unique(self.spec, keys)]
        with self._transaction():
            self._conn.executemany(f"DELETE FROM {self._table} WHERE key = ?", gone)

    def scan(
        self, start: Key | None = None, stop: Key | None = None, prefix: Key | None = None
    ) -> Iterator[tuple[Key, Versioned]]:
        under = self._bytes.encode(self.spec.check_prefix(prefix or ()))
        first = b"" if start is None else self._bytes.encode(self.spec.check_key(start))
        beyond = None if stop is None else self._bytes.encode(self.spec.check_key(stop))
        for key, *row in self._conn.execute(
            f"SELECT key, {COLUMNS} FROM {self._table} WHERE key >= max(?1, ?2) "
            "AND (?3 IS NULL OR key < ?3) AND (?4 IS NULL OR key < ?4) ORDER BY key",
            [under, first, after_prefix(under), beyond],
        ):
            yield self._bytes.decode(key), _versioned(row)

    def revert(self, txid: int) -> int:
        with self._transaction(reverts=True):
            # Readers who were shown the batch go back before its rows do.
            self._conn.execute(
                "UPDATE guard SET committed = ?2 - 1 WHERE state = ?1 AND committed >= ?2", [self.spec.name, txid]
            )
            self._conn.execute("UPDATE record SET is_reverted = 1 WHERE state = ? AND txid = ?", [self.spec.name, txid])
            if self.spec.kind != "opaque":
                return 0
            new = self._conn.execute(f"DELETE FROM {self._table} WHERE txid = ? AND prev_txid IS NULL", [txid]).rowcount
            old = self._conn.execute(
                f"UPDATE {self._table} SET value = prev, txid = prev_txid, at = prev_at, prev = NULL, "
                "prev_txid = NULL, prev_at = NULL WHERE txid = ?",
                [txid],
            ).rowcount
            self._count(txid, -new - old)
        return new + old

    def admit(self, fence: int, txid: int, attempt: int, token: str = "", epoch: str = "") -> None:
        own = Attempt(fence, txid, attempt, token, epoch)
        with self._transaction(checked=False):
            admitted = self._guard()[0]
            if admitted and self._is_newer(admitted, own):
                raise refuse(self.spec.name, own, admitted[:4], admitted.epoch)
            self._conn.execute(
                "INSERT INTO guard VALUES (?1, ?2, ?3, 0, 0) ON CONFLICT DO UPDATE SET attempt = ?2, epoch = ?3",
                [self.spec.name, json.dumps(own[:4]), epoch],
            )
            if attempt:
                self._conn.execute(
                    "INSERT INTO record VALUES (?1, ?2, ?3, 0, ?4, 0) "
                    "ON CONFLICT DO UPDATE SET by = ?3, is_reverted = ?4",
                    [self.spec.name, txid, own.name, attempt == 1],
                )
                self._conn.execute("DELETE FROM record WHERE state = ? AND txid < ? - 1", [self.spec.name, txid])

    def under(self, fence: int, txid: int, attempt: int, token: str = "", epoch: str = "") -> "SqliteBackingMap":
        other = copy(self)
        other._attempt = Attempt(fence, txid, attempt, token, epoch)
        return other

    def check(self, txid: int, keys: int | None) -> None:
        with self._transaction():
            if self._lacks(txid, keys):
                raise LostWritesError(
                    f"state {self.spec.name!r}: batch {txid} lacks some of its {keys} keys; try it again"
                )

    def publish(self, txid: int, keys: int | None = None) -> None:
        with self._transaction():
            if self._lacks(txid, keys):
                raise findings.lost_keys(self.spec, txid, self.record(txid).keys or 0, keys or 0)
            self._conn.execute(
                "INSERT INTO guard VALUES (?1, NULL, '', ?2, 0) "
                "ON CONFLICT DO UPDATE SET committed = max(committed, ?2), rebuilding = 0",
                [self.spec.name, txid],
            )

    def status(self) -> StoreStatus:
        attempt, committed, is_rebuilding = self._guard()
        known = self._conn.execute("SELECT 1 FROM guard WHERE state = ?", [self.spec.name]).fetchone()
        is_empty = known is None and next(self.scan(), None) is None
        return StoreStatus(committed, attempt.txid if attempt else 0, is_empty, is_rebuilding)

    def record(self, txid: int) -> BatchRecord:
        found = self._conn.execute(
            "SELECT by, keys, is_reverted, has_written FROM record WHERE state = ? AND txid = ?", [self.spec.name, txid]
        ).fetchone()
        return BatchRecord(*(found or ("", 0)))

    def begin_rebuild(self) -> None:
        with self._transaction():
            self._conn.execute("INSERT OR REPLACE INTO guard VALUES (?, NULL, '', 0, 1)", [self.spec.name])
            self._conn.execute("DELETE FROM record WHERE state = ?", [self.spec.name])
            self._conn.execute(f"DELETE FROM {self._table}")

    def check_store(self) -> str:
        return ""

    def multi_get_committed(
        self, keys: Sequence[Key], *, clock: datetime | None = None
    ) -> tuple[Published, list[CommittedRow]]:
        with self._snapshot() as txid:
            return Published(txid), [self._seen(row, txid, clock) for row in self.multi_get(keys)]

    def scan_committed(
        self,
        start: Key | None = None,
        stop: Key | None = None,
        prefix: Key | None = None,
        *,
        after: Key | None = None,
    ) -> tuple[Published, Iterator[tuple[Key, CommittedRow]]]:
        low, high, under = (self._bytes.encode(self.spec.check_prefix(key or ())) for key in (start, stop, prefix))
        behind = b"" if after is None else self._bytes.encode(self.spec.check_key(after)) + b"\0"
        with self._snapshot() as txid:
            found = self._conn.execute(
                f"SELECT key, {COLUMNS} FROM {self._table} WHERE key >= max(?1, ?2, ?3) "
                "AND (?4 IS NULL OR key < ?4) AND (?5 IS NULL OR key < ?5) ORDER BY key",
                [low, under, behind, after_prefix(under), high or None],
            ).fetchall()
        return Published(txid), ((self._bytes.decode(key), self._seen(_versioned(row), txid)) for key, *row in found)

    def _seen(self, row: Versioned | None, txid: int, clock: datetime | None = None) -> CommittedRow:
        """Return the version that a reader of batch `txid` sees."""
        if row is not None and self.spec.kind == "opaque" and (row.txid or 0) > txid:
            if row.prev_txid is not None and row.prev_txid > txid:
                raise MovedOnError(f"state {self.spec.name!r}: a row has moved on from batch {txid}")
            row = None if row.prev_txid is None else Versioned(row.prev, row.prev_txid, at=row.prev_at)
        if row is None or row.value is None:
            return CommittedRow("missing", None, None if row is None else row.txid, None if row is None else row.at)
        assert row.at is not None
        if not is_live(False, row.at, self.spec.ttl, clock or datetime.now(UTC)):
            return CommittedRow("expired", None, row.txid, row.at)
        return CommittedRow("found", row.value, row.txid, row.at)

    def _get(self, key: Key) -> Versioned | None:
        row = self._conn.execute(
            f"SELECT {COLUMNS} FROM {self._table} WHERE key = ?", [self._bytes.encode(key)]
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
            f"INSERT OR REPLACE INTO {self._table} VALUES (?, ?, ?, ?, ?, ?, ?)", [self._bytes.encode(key), *kept]
        )

    def _text(self, key: Key, value: object) -> str | None:
        return None if value is None else json_text(self.spec, key, value)

    def _guard(self) -> tuple[Attempt | None, int, bool]:
        """Return the admitted attempt, the committed txid, and whether the state is being rebuilt."""
        found = self._conn.execute(
            "SELECT attempt, epoch, committed, rebuilding FROM guard WHERE state = ?", [self.spec.name]
        ).fetchone()
        attempt, epoch, committed, is_rebuilding = found or (None, "", 0, 0)
        return Attempt(*json.loads(attempt), epoch) if attempt else None, committed, bool(is_rebuilding)

    @staticmethod
    def _is_newer(admitted: Attempt, own: Attempt) -> bool:
        if admitted.epoch != own.epoch:
            return own.attempt != 0  # only a driver that starts takes over from another epoch
        return admitted[:3] > own[:3] or (admitted.fence == own.fence and admitted.token != own.token)

    def _count(self, txid: int | None, change: int) -> None:
        """Keep count of the keys that carry the txid of a batch on record."""
        self._conn.execute(
            "UPDATE record SET keys = keys + ?1, has_written = has_written OR ?1 > 0 WHERE state = ?2 AND txid = ?3",
            [change, self.spec.name, txid],
        )

    def _may_write(self, admitted: Attempt | None, reverts: bool) -> bool:
        own = self._attempt
        return own is None or (admitted == own and (reverts or self.record(own.txid).is_reverted))

    def _lacks(self, txid: int, keys: int | None) -> bool:
        if keys is None or self.spec.kind == "non_transactional":
            return False
        have = self.record(txid).keys or 0
        return have < keys or (self.spec.kind == "opaque" and have > keys)

    @contextmanager
    def _transaction(self, *, checked: bool = True, reverts: bool = False) -> Iterator[None]:
        """Write, once it is certain that this attempt may."""
        self._conn.execute("BEGIN IMMEDIATE")
        try:
            admitted = self._guard()[0]
            if checked and self._attempt is not None and not self._may_write(admitted, reverts):
                epoch = self._attempt.epoch if admitted is None else admitted.epoch
                raise refuse(self.spec.name, self._attempt, (admitted or ())[:4], epoch)
            yield
        except BaseException:
            self._conn.execute("ROLLBACK")
            raise
        self._conn.execute("COMMIT")

    @contextmanager
    def _snapshot(self) -> Iterator[int]:
        """Read everything within at one moment; gives the committed txid."""
        self._conn.execute("BEGIN")
        try:
            _, committed, is_rebuilding = self._guard()
            if is_rebuilding:
                raise findings.rebuilding(self.spec)
            yield committed
        finally:
            self._conn.execute("ROLLBACK")


@dataclass
class Page:
    rows: list[tuple[bytes, Versioned]]


class SqliteUpkeep:
    """Frees rows of one state, a page at a time."""

    def __init__(self, conn: sqlite3.Connection, spec: StateSpec) -> None:
        self._conn, self._name, self._table = conn, spec.name, f"state_{spec.name}"

    def pages(self) -> Iterator[Page]:
        after = b""
        while found := self._conn.execute(
            f"SELECT key, {COLUMNS} FROM {self._table} WHERE key > ? ORDER BY key LIMIT {PAGE_ROWS}", [after]
        ).fetchall():
            yield Page([(key, _versioned(row)) for key, *row in found])
            after = found[-1][0]

    def expire(self, page: Page, settled: int | None, clock: datetime, ttl: timedelta | None) -> int:
        return self._free(
            key
            for key, row in page.rows
            if row.value is not None and _is_settled(row, settled) and row.at and not is_live(False, row.at, ttl, clock)
        )

    def drop_tombstones(self, page: Page, settled: int | None) -> int:
        return self._free(key for key, row in page.rows if row.value is None and _is_settled(row, settled))

    def clear(self) -> None:
        for table in ("guard", "record"):
            self._conn.execute(f"DELETE FROM {table} WHERE state = ?", [self._name])
        self._conn.execute(f"DROP TABLE IF EXISTS {self._table}")

    def sizes(self) -> tuple[int, int]:
        rows, size = self._conn.execute(
            f"SELECT count(*), coalesce(sum(length(key) + length(value)), 0) FROM {self._table}"
        ).fetchone()
        return rows, size

    def _free(self, keys: Iterator[bytes]) -> int:
        return self._conn.executemany(f"DELETE FROM {self._table} WHERE key = ?", [[key] for key in keys]).rowcount


class SqliteBackend(ExternalBackend):
    """States in one SQLite file. It suits one machine: executors and the web open the same file."""

    title = "SQLite"

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        self._connect()

    def guarded(self, spec: StateSpec) -> SqliteBackingMap:
        return SqliteBackingMap(self._connect(), spec)

    def upkeep(self, spec: StateSpec) -> SqliteUpkeep:
        return SqliteUpkeep(self._connect(), spec)

    def _connect(self) -> sqlite3.Connection:
        try:
            conn = sqlite3.connect(self._path, timeout=30, isolation_level=None, check_same_thread=False)
            conn.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            raise BackendUnavailable(f"sqlite: {error}: {self._path}") from error
        return conn


def _is_settled(row: Versioned, settled: int | None) -> bool:
    return settled is None or (row.txid or 0) <= settled


def _versioned(row: Sequence[Any]) -> Versioned:
    value, txid, prev, prev_txid, at, prev_at = row
    return Versioned(_value(value), txid, _value(prev), prev_txid, _time(at), _time(prev_at))


def _value(text: Any) -> Any:
    return None if text is None else json.loads(text)


def _time(text: Any) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)

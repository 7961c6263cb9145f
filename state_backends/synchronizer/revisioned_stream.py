"""Revisioned stream: an ordered log of records with conditional appends. The layer below a synchronizer.

Pravega's RevisionedStreamClient, with a table for its segment. A revision is the number of records ever appended:
truncation does not renumber. Revisions of different logs cannot be compared.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
from psycopg.pq import TransactionStatus

from tidegauge.state_backends.errors import InvalidLogError, RecordTooLargeError, RevisionError, TruncatedError

# Pravega's documented limit for one write. It is small, because every client has to read every record.
MAX_RECORD_BYTES = 1024 * 1024

PAGE_RECORDS = 100

# Consecutive reconnects in one call; after these, the caller gets the error.
RECONNECTS = 3


@dataclass(frozen=True)
class Head:
    """The head of a log. revision: records ever appended; mark: the position of the newest compacted record, or None;
    oldest: the first revision that can be read from; idle_seconds: since the last append."""

    revision: int
    mark: int | None
    oldest: int
    idle_seconds: float


@dataclass(frozen=True)
class Entry:
    """One record, and the revision of the log right after it."""

    revision: int
    record: Any


class RevisionedStream:
    """One client of the log `name`, which is created when it is first opened.

    conn: a psycopg connection, best in autocommit mode, because an append in a transaction blocks others until its end.
    Every call is one statement, or one per page read, so threads may share the client.
    reconnect: opens another connection after the server has closed one. The statement is then sent again with the same
    sequence number, so that an append whose reply was lost is recognized: it is stored once and reported as stored
    (unless the record was truncated in between). None: the error of the broken connection passes through, and whether
    the append was stored is unknown. Connections belong to the caller.
    max_record_bytes: of a record as JSON in UTF-8.
    """

    def __init__(
        self,
        conn: psycopg.Connection,
        name: str,
        *,
        reconnect: Callable[[], psycopg.Connection] | None = None,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self.name = name
        self._conn = conn
        self._reconnect = reconnect
        self._reconnecting = threading.Lock()
        self._max_record_bytes = max_record_bytes
        self._writer = uuid4()
        self._sequence = count(1)
        self._execute(_OPEN, {})

    def head(self) -> Head:
        """Return the head of the log. Raises InvalidLogError if it has been dropped."""
        rows = self._execute(_HEAD, {})
        if not rows:
            raise self._dropped()
        return Head(*rows[0])

    def read_from(self, revision: int) -> Iterator[Entry]:
        """Yield the records after `revision`, up to the current end of the log. Raises as `read_range` does."""
        return self.read_range(revision, self.head().revision)

    def read_range(self, start: int, stop: int) -> Iterator[Entry]:
        """Yield the records between two revisions, read page by page; none if the two are equal.

        Raises RevisionError if start > stop or the log ends before `stop`. Iterating raises TruncatedError at the first
        record that was truncated; records of a page already read are not affected.
        """
        if start > stop:
            raise RevisionError(f"log {self.name!r}: a range cannot start at {start} and end at {stop}")
        return self._pages(start, stop)

    def write(self, record: Any) -> int:
        """Append a record without a condition, and return the revision after it. record: any JSON value.

        Raises RecordTooLargeError; TypeError or ValueError if the record is not JSON.
        """
        revision = self._append(record, None, self._max_record_bytes)
        assert revision is not None
        return revision

    def write_conditionally(self, revision: int, record: Any, *, any_size: bool = False) -> int | None:
        """Append a record if the log is at `revision`; return the revision after it, or None if the log is at another.

        Of n clients that write at one revision exactly one succeeds, in one round trip each, at any isolation level.
        any_size: do not check the record's size. Raises as `write` does.
        """
        return self._append(record, revision, None if any_size else self._max_record_bytes)

    def compare_and_set_mark(self, expected: int | None, mark: int | None) -> bool:
        """Set the mark if it equals `expected`; return whether it did. It may move back, or be cleared with None."""
        return bool(self._execute(_MARK, {"expected": expected, "mark": mark}))

    def truncate(self, revision: int) -> int:
        """Drop the records before `revision`; return how many. The oldest revision never decreases."""
        [(dropped,)] = self._execute(_TRUNCATE, {"revision": revision})
        return int(dropped)

    def _pages(self, start: int, stop: int) -> Iterator[Entry]:
        while start < stop:
            page = self._execute(_PAGE, {"start": start, "stop": stop, "records": PAGE_RECORDS})
            # Revisions have no gaps: if a page starts later, or is empty, its first records were truncated.
            if not page or page[0][0] != start:
                raise self._unreadable(start, stop)
            for number, record in page:
                start = number + 1
                yield Entry(start, json.loads(record))

    def _unreadable(self, start: int, stop: int) -> Exception:
        head = self.head()
        if start < head.oldest:
            return TruncatedError(
                f"log {self.name!r}: revision {start} was truncated, the oldest is {head.oldest}; "
                "read again from the mark"
            )
        return RevisionError(f"log {self.name!r}: it ends at revision {head.revision}, before {stop}")

    def _append(self, record: Any, expected: int | None, max_bytes: int | None) -> int | None:
        text = json.dumps(record, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        if max_bytes is not None and (size := len(text.encode())) > max_bytes:
            raise RecordTooLargeError(
                f"log {self.name!r}: a record of {size} bytes is over the limit of {max_bytes}; write less at once"
            )
        values = {"expected": expected, "record": text, "writer": self._writer, "sequence": next(self._sequence)}
        conn = self._conn
        [(revision, exists)] = self._execute(_APPEND, values)
        if revision is None and self._conn is not conn:
            # Sent again, because the first statement may have committed only while the second waited for its lock.
            [(revision, exists)] = self._execute(_APPEND, values)
        if not exists:
            raise self._dropped()
        return None if revision is None else int(revision)

    def _execute(self, query: LiteralString, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        reconnects = 0
        while True:
            conn = self._conn
            try:
                return conn.execute(query, {"name": self.name, **values}).fetchall()
            except (psycopg.errors.SerializationFailure, psycopg.errors.UniqueViolation):
                # Retried, because a new snapshot shows the append that committed first: another, or this one itself.
                if conn.info.transaction_status != TransactionStatus.IDLE:
                    raise
            except psycopg.OperationalError:
                if self._reconnect is None or not conn.closed or reconnects == RECONNECTS:
                    raise
                reconnects += 1
                self._replace(conn, self._reconnect)

    def _replace(self, broken: psycopg.Connection, reconnect: Callable[[], psycopg.Connection]) -> None:
        with self._reconnecting:
            if self._conn is broken:
                self._conn = reconnect()

    def _dropped(self) -> InvalidLogError:
        return InvalidLogError(f"log {self.name!r} has been dropped; open it again")


_OPEN: LiteralString = (
    "INSERT INTO tidegauge.synchronizer (name) VALUES (%(name)s) ON CONFLICT DO NOTHING RETURNING revision"
)

_HEAD: LiteralString = (
    "SELECT revision, mark, oldest, extract(epoch FROM clock_timestamp() - appended_at)::float8 "
    "FROM tidegauge.synchronizer WHERE name = %(name)s"
)

_PAGE: LiteralString = (
    # As text, because a connection may have its own JSON loader, as Django's has.
    "SELECT revision, record::text FROM tidegauge.synchronizer_log WHERE synchronizer = %(name)s "
    "AND revision >= %(start)s AND revision < %(stop)s ORDER BY revision LIMIT %(records)s"
)

# The update locks the head row and then sees the newest revision, so the condition holds until commit.
_APPEND: LiteralString = """
WITH known AS (
    SELECT revision FROM tidegauge.synchronizer_log
    WHERE synchronizer = %(name)s AND writer = %(writer)s AND sequence = %(sequence)s
), head AS (
    UPDATE tidegauge.synchronizer SET revision = revision + 1, appended_at = clock_timestamp()
    WHERE name = %(name)s AND (%(expected)s::bigint IS NULL OR revision = %(expected)s)
      AND NOT EXISTS (SELECT FROM known)
    RETURNING revision
), written AS (
    INSERT INTO tidegauge.synchronizer_log (synchronizer, revision, record, writer, sequence)
    SELECT %(name)s, revision - 1, %(record)s::json, %(writer)s, %(sequence)s FROM head RETURNING revision
)
SELECT (SELECT revision + 1 FROM known UNION ALL SELECT revision + 1 FROM written),
       EXISTS (SELECT FROM tidegauge.synchronizer WHERE name = %(name)s)
"""

_MARK: LiteralString = (
    "UPDATE tidegauge.synchronizer SET mark = %(mark)s WHERE name = %(name)s "
    "AND mark IS NOT DISTINCT FROM %(expected)s::bigint RETURNING name"
)

_TRUNCATE: LiteralString = """
WITH head AS (
    UPDATE tidegauge.synchronizer SET oldest = greatest(oldest, least(%(revision)s::bigint, revision))
    WHERE name = %(name)s RETURNING oldest
), dropped AS (
    DELETE FROM tidegauge.synchronizer_log l USING head
    WHERE l.synchronizer = %(name)s AND l.revision < head.oldest RETURNING 1
)
SELECT count(*) FROM dropped
"""

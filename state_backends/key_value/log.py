"""The log of a key-value store: every write in order, from which the store can be restored. Samza's changelog.

A write is a message: a key and the JSON text of its value. This module converts messages to and from JSON text and rows
of a backing map, and has two logs that keep them, in memory and in PostgreSQL.
Positions count messages from 1; position 0 is before the first. A log has one writer: each append names the end that
the writer knows, so a second store over the same log, or one that was replaced, gets FencedError.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import psycopg

from tidegauge.state_backends.errors import FencedError, ValueShapeError
from tidegauge.state_backends.protocols import IBackingMap
from tidegauge.state_backends.spec.row import Key, Versioned, json_text
from tidegauge.state_backends.spec.state_spec import StateSpec

# Messages per round trip: few round trips, and at most a few MB for values of the usual size.
PAGE_MESSAGES = 500


@dataclass(frozen=True, slots=True)
class Message:
    """One write. text: the value as JSON; None: a tombstone, the key was deleted. at: write time, for the ttl."""

    key: Key
    text: str | None
    at: datetime


def freeze(spec: StateSpec, key: Key, value: Any, max_bytes: int | None = None) -> str:
    """Return the value of a key as JSON text. Raises ValueShapeError, naming the key.

    Values are kept as text, because that costs less than deep copies (measured: 2.0 us to write and 1.5 us to read;
    each copy takes 3.5), gives the size, and returns a tuple or a non-text dict key just as after a restart.
    """
    if value is None:
        raise _unfit(spec, key, "is null; delete the key instead")
    text = json_text(spec, key, value)
    size = len(text.encode())
    if max_bytes is not None and size > max_bytes:
        raise _unfit(spec, key, f"has {size} bytes as JSON, over the limit of {max_bytes}; split it")
    return text


def thaw(text: str) -> Any:
    """Return a new object of the value, which the caller may change."""
    return json.loads(text)


def key_text(key: Key) -> str:
    # JSON has no Infinity and no NaN, so floats are stored as text, as are times, dates and uuids.
    return json.dumps([part if isinstance(part, int | str) else str(part) for part in key])


def key_from_text(spec: StateSpec, text: str) -> Key:
    parts = zip(json.loads(text), spec.key.values(), strict=True)
    return spec.check_key([float(part) if kind == "double precision" else part for part, kind in parts])


def _unfit(spec: StateSpec, key: Key, reason: str) -> ValueShapeError:
    return ValueShapeError(f"state {spec.name!r}: the value of key {key!r} {reason}")


def apply(backing: IBackingMap, messages: Iterable[Message]) -> None:
    """Write the last message of each key: put those with a value, remove the keys of tombstones."""
    newest = {message.key: message for message in messages}
    rows = {m.key: Versioned(thaw(m.text), None, at=m.at) for m in newest.values() if m.text is not None}
    backing.multi_put(list(rows), list(rows.values()))
    backing.multi_remove([key for key in newest if key not in rows])


def fetch(backing: IBackingMap, keys: Sequence[Key]) -> list[Message | None]:
    """Return the stored value of each key as a message, in the order asked; None where a key is absent."""
    rows = zip(keys, backing.multi_get(keys), strict=True)
    return [_message(backing.spec, key, row) for key, row in rows]


def scan(backing: IBackingMap, start: Key | None, stop: Key | None) -> Iterator[Message]:
    """Yield the stored values of [start, stop) as messages, in key order."""
    return (message for key, row in backing.scan(start, stop) if (message := _message(backing.spec, key, row)))


def _message(spec: StateSpec, key: Key, row: Versioned | None) -> Message | None:
    if row is None or row.value is None:
        return None
    return Message(key, freeze(spec, key, row.value), row.at or datetime.now(UTC))


class KeyValueLog(Protocol):
    """The calls that a store makes to its log."""

    def append(self, messages: Sequence[Message]) -> None:
        """Append messages in order, all or none. Raises FencedError if another writer has appended since."""

    def end(self) -> int:
        """Return the position of the last message, 0 if there is none."""

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Message]:
        """Yield the messages after position `after`, up to and including `upto`; None reads to the end."""

    def compact(self, upto: int) -> int:
        """Delete each message up to `upto` that a later one up to `upto` replaces. Returns the number deleted.

        After that, no restore can go back to before `upto`, so use the position of the last checkpoint.
        """


class MemoryKeyValueLog:
    """A log in a list of this process, for tests and notebooks."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages = dict(enumerate(messages, start=1))
        self._end = len(self._messages)

    def append(self, messages: Sequence[Message]) -> None:
        self._messages |= enumerate(messages, start=self._end + 1)
        self._end += len(messages)

    def end(self) -> int:
        return self._end

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Message]:
        last = self._end if upto is None else upto
        yield from [message for position, message in self._messages.items() if after < position <= last]

    def compact(self, upto: int) -> int:
        newest = {message.key: position for position, message in self._messages.items() if position <= upto}
        replaced = [p for p, message in self._messages.items() if p <= upto and newest[message.key] != p]
        for position in replaced:
            del self._messages[position]
        return len(replaced)


class PostgresKeyValueLog:
    """A log in the table `tidegauge.key_value_log`, named after the store's state.

    conn: an open psycopg connection, whose transactions are the caller's. With autocommit a crash may leave messages
    in the log that the store lacks; a restore adds them. In a transaction on the store's own connection, log and store
    change together. After rolling back such a transaction, open a new log and a new store.
    """

    def __init__(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        self._conn = conn
        self._spec = spec
        self._end = self._stored_end()

    def append(self, messages: Sequence[Message]) -> None:
        """Append messages in one statement. Raises FencedError; other psycopg errors pass through."""
        columns = [[key_text(m.key) for m in messages], [m.text for m in messages], [m.at for m in messages]]
        try:
            self._conn.execute(
                "INSERT INTO tidegauge.key_value_log (store, position, key, value, at) "
                "SELECT %s, %s + ordinality, key::jsonb, value::json, at "
                "FROM unnest(%s::text[], %s::text[], %s::timestamptz[]) WITH ORDINALITY m (key, value, at, ordinality)",
                [self._spec.name, self._end, *columns],
            )
        except psycopg.errors.UniqueViolation as error:
            raise FencedError(
                f"store {self._spec.name!r}: another writer has appended to its log after position {self._end}; "
                "only one store may write to a log, so stop this one"
            ) from error
        self._end += len(messages)

    def end(self) -> int:
        return self._end

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Message]:
        """Yield messages, read page by page; the connection is free between two pages."""
        last = self._end if upto is None else upto
        while page := self._conn.execute(
            "SELECT position, key::text, value::text, at FROM tidegauge.key_value_log "
            "WHERE store = %s AND position > %s AND position <= %s ORDER BY position LIMIT %s",
            [self._spec.name, after, last, PAGE_MESSAGES],
        ).fetchall():
            for position, key, text, at in page:
                after = position
                yield Message(key_from_text(self._spec, key), text, at)

    def compact(self, upto: int) -> int:
        return self._conn.execute(
            "DELETE FROM tidegauge.key_value_log old WHERE store = %(store)s AND position <= %(upto)s AND EXISTS ("
            "SELECT FROM tidegauge.key_value_log new WHERE new.store = old.store AND new.key = old.key "
            "AND new.position > old.position AND new.position <= %(upto)s)",
            {"store": self._spec.name, "upto": upto},
        ).rowcount

    def _stored_end(self) -> int:
        row = self._conn.execute(
            "SELECT coalesce(max(position), 0) FROM tidegauge.key_value_log WHERE store = %s", [self._spec.name]
        ).fetchone()
        assert row is not None
        return int(row[0])

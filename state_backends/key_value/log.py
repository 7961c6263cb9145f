"""The log of a key-value store: every write in order, from which the store can be made again. Samza's changelog.

Positions count messages from 1; 0 stands before the first. A log has one writer: each append says what it takes the
end to be, so a second store over the same log, or one left behind by its successor, is refused with FencedError.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import psycopg

from state_backends.errors import FencedError
from state_backends.key_value.json_text import key_from_text, key_text
from state_backends.row import Key
from state_backends.spec import StateSpec

# One round trip reads this many messages: few trips, and a few MB at most for values of the usual size.
PAGE_MESSAGES = 500


@dataclass(frozen=True, slots=True)
class Message:
    """One write. text: the value as JSON; None is a tombstone, the key was deleted. at: when, for the time to live."""

    key: Key
    text: str | None
    at: datetime


class KeyValueLog(Protocol):
    """What a store asks of its log."""

    def append(self, messages: Sequence[Message]) -> None:
        """Append messages in order, all or none. Raises FencedError if another writer has appended since."""

    def end(self) -> int:
        """Return the position of the last message, 0 where there is none."""

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Message]:
        """Yield the messages after position `after`, up to and with `upto`; None goes to the end."""

    def compact(self, upto: int) -> int:
        """Forget messages up to `upto` that a later one up to `upto` replaces. Returns their number.

        `upto` must be a position that no restore will go back beyond, such as that of the last checkpoint.
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
    """A log in the table `tidemark.key_value_log`, named after the store's state.

    conn: an open psycopg connection, whose transactions are the caller's. With autocommit a crash may leave messages
    that the store lacks, which a restore brings; over the store's own connection, inside a transaction, log and store
    change together. After rolling such a transaction back, open a new log and a new store.
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
                "INSERT INTO tidemark.key_value_log (store, position, key, value, at) "
                "SELECT %s, %s + ordinality, key::jsonb, value::json, at "
                "FROM unnest(%s::text[], %s::text[], %s::timestamptz[]) WITH ORDINALITY m (key, value, at, ordinality)",
                [self._spec.name, self._end, *columns],
            )
        except psycopg.errors.UniqueViolation as error:
            raise FencedError(
                f"store {self._spec.name!r}: another writer has appended to its log after position {self._end}; "
                "one store may write a log, so stop this one"
            ) from error
        self._end += len(messages)

    def end(self) -> int:
        return self._end

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Message]:
        """Yield messages, read page by page, so that the connection is free in between."""
        last = self._end if upto is None else upto
        while page := self._conn.execute(
            "SELECT position, key::text, value::text, at FROM tidemark.key_value_log "
            "WHERE store = %s AND position > %s AND position <= %s ORDER BY position LIMIT %s",
            [self._spec.name, after, last, PAGE_MESSAGES],
        ).fetchall():
            for position, key, text, at in page:
                after = position
                yield Message(key_from_text(self._spec, key), text, at)

    def compact(self, upto: int) -> int:
        return self._conn.execute(
            "DELETE FROM tidemark.key_value_log old WHERE store = %(store)s AND position <= %(upto)s AND EXISTS ("
            "SELECT FROM tidemark.key_value_log new WHERE new.store = old.store AND new.key = old.key "
            "AND new.position > old.position AND new.position <= %(upto)s)",
            {"store": self._spec.name, "upto": upto},
        ).rowcount

    def _stored_end(self) -> int:
        row = self._conn.execute(
            "SELECT coalesce(max(position), 0) FROM tidemark.key_value_log WHERE store = %s", [self._spec.name]
        ).fetchone()
        assert row is not None
        return int(row[0])

"""The messages of a key-value store as rows of a backing map, and back."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from state_backends.key_value.json_text import freeze, thaw
from state_backends.key_value.log import Message
from state_backends.protocols import IBackingMap
from state_backends.row import Key, Versioned
from state_backends.spec import StateSpec


def apply(backing: IBackingMap, messages: Iterable[Message]) -> None:
    """Write the last message of each key, in order: put what has a value, remove what has none."""
    newest = {message.key: message for message in messages}
    rows = {m.key: Versioned(thaw(m.text), None, at=m.at) for m in newest.values() if m.text is not None}
    backing.multi_put(list(rows), list(rows.values()))
    backing.multi_remove([key for key in newest if key not in rows])


def fetch(backing: IBackingMap, keys: Sequence[Key]) -> list[Message | None]:
    """Return what is stored under each key, in the order asked; None where a key is absent."""
    rows = zip(keys, backing.multi_get(keys), strict=True)
    return [_message(backing.spec, key, row) for key, row in rows]


def scan(backing: IBackingMap, start: Key | None, stop: Key | None) -> Iterator[Message]:
    """Yield what is stored in [start, stop), in key order."""
    return (message for key, row in backing.scan(start, stop) if (message := _message(backing.spec, key, row)))


def _message(spec: StateSpec, key: Key, row: Versioned | None) -> Message | None:
    if row is None or row.value is None:
        return None
    return Message(key, freeze(spec, key, row.value), row.at or datetime.now(UTC))

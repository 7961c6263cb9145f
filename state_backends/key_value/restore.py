"""Restore: make the rows of a key-value store again from its log, back to the last checkpoint."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from state_backends.key_value.errors import PositionError
from state_backends.key_value.json_text import key_text
from state_backends.key_value.log import KeyValueLog, Message
from state_backends.key_value.rows import apply, fetch
from state_backends.protocols import IBackingMap
from state_backends.row import Key

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did: messages replayed, the bytes of their keys and values as JSON, and keys undone after."""

    messages: int
    bytes: int
    undone: int


def checked_end(log: KeyValueLog, upto: int | None, after: int) -> int:
    """Return where a restore from `after` up to `upto` ends; None means the end of the log. Raises PositionError."""
    end = log.end() if upto is None else upto
    if not 0 <= after <= end <= log.end():
        raise PositionError(
            f"cannot restore from position {after} to {end} of a log that ends at {log.end()}; "
            "a checkpoint that the log does not reach asks for all of it"
        )
    return end


def restore(backing: IBackingMap, log: KeyValueLog, end: int, after: int, batch_keys: int) -> Restored:
    """Replay the messages after position `after` up to `end`, `batch_keys` at a time, and undo the later ones.

    after: where the map stands; 0: not known. An `end` of 0 undoes the whole log.
    Undoing a message logs the older value of its key, or a tombstone, so that every later reader of the log agrees.
    A log that fails midway leaves the messages before applied, and its error passes through; restore again then.
    """
    later = list(dict.fromkeys(message.key for message in log.read(after=end)))
    if not after:
        # The map may hold what the later messages wrote: it goes first, so that the replay alone decides.
        backing.multi_remove(later)
    messages, size = _replay(backing, log.read(after, end), batch_keys)
    for keys in _batches(later, batch_keys):
        _undo(backing, log, keys)
    return Restored(messages, size, len(later))


def _replay(backing: IBackingMap, messages: Iterable[Message], batch_keys: int) -> tuple[int, int]:
    count = size = 0
    for batch in _batches(messages, batch_keys):
        apply(backing, batch)
        count += len(batch)
        size += sum(len((key_text(message.key) + (message.text or "")).encode()) for message in batch)
    return count, size


def _undo(backing: IBackingMap, log: KeyValueLog, keys: list[Key]) -> None:
    at = datetime.now(UTC)
    older = zip(keys, fetch(backing, keys), strict=True)
    log.append([message or Message(key, None, at) for key, message in older])


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items; where the items end in an error, yield those before it, then raise it."""
    batch: list[T] = []
    try:
        for item in items:
            batch.append(item)
            if len(batch) == size:
                yield batch
                batch = []
    except (Exception, KeyboardInterrupt):
        yield batch
        raise
    if batch:
        yield batch

"""Key-value store: any JSON value under a typed key, for state that belongs to no batch. Samza's KeyValueStore.

Writes are buffered and reach the backing map in batches, with only the last write of each key; reads see them at once.
A log, if one is given, gets each batch before the backing map does, so that the store can be restored from it.
Differences from Samza: a snapshot includes buffered writes; absent keys are not cached; a value that is too large is
refused before anything changes, never dropped; changing an object after a put or a get does not change the store.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from tidegauge.state_backends.committed import is_live
from tidegauge.state_backends.errors import KeyShapeError, SpecError, StoreClosedError
from tidegauge.state_backends.key_value.log import KeyValueLog, Message, apply, fetch, freeze, scan, thaw
from tidegauge.state_backends.key_value.restore import Restored, checked_end, restore
from tidegauge.state_backends.protocols import IBackingMap
from tidegauge.state_backends.spec.row import Key

# Samza's defaults: task.changelog's 1 MiB, stores.*.write.batch.size, stores.*.object.cache.size.
MAX_VALUE_BYTES = 1 << 20
WRITE_BATCH_KEYS = 500
MIN_CACHE_KEYS = 1_000


T = TypeVar("T")


def now() -> datetime:
    return datetime.now(UTC)


class KeyValueStore:
    """A store of one task over the rows of a state with `value="jsonb"` and `kind="non_transactional"`.

    cache_keys: entries in the read cache, least recently used evicted first; None: the larger of write_batch_keys and
        1,000; 0: no cache.
    write_batch_keys: keys in the write buffer; 1 writes through.
    max_value_bytes: the largest value, as JSON; None for no limit.
    log: where writes are logged; None: the store cannot be restored. restore_batch_keys: keys that a restore writes at
        a time. clock: returns the time of writes and reads, by which the state's ttl is judged.
    Not thread-safe: one store per task. If the backing map fails, its error passes through and the writes stay in the
    buffer: the next flush retries them. After rolling back a transaction in which the store wrote, open a new store.
    Raises SpecError for a missing backing map, a state of another kind, or a size out of range.
    """

    def __init__(
        self,
        backing: IBackingMap,
        *,
        cache_keys: int | None = None,
        write_batch_keys: int = WRITE_BATCH_KEYS,
        restore_batch_keys: int = WRITE_BATCH_KEYS,
        max_value_bytes: int | None = MAX_VALUE_BYTES,
        log: KeyValueLog | None = None,
        clock: Callable[[], datetime] = now,
    ) -> None:
        if backing is None:
            raise SpecError("a key-value store needs a backing map, got None")
        self.spec = backing.spec
        self.cache_keys = max(write_batch_keys, MIN_CACHE_KEYS) if cache_keys is None else cache_keys
        self._backing = backing
        self._write_batch_keys = write_batch_keys
        self._restore_batch_keys = restore_batch_keys
        self._max_value_bytes = max_value_bytes
        self._log = log
        self._clock = clock
        self._buffer: dict[Key, Message] = {}
        self._cache: OrderedDict[Key, Message] = OrderedDict()
        self._closed = False
        self._check_declared()

    def get(self, key: Key) -> Any:
        """Return the value of a key, None if it is absent. Raises KeyShapeError."""
        return next(iter(self.get_all([key]).values()), None)

    def get_all(self, keys: Sequence[Key]) -> dict[Key, Any]:
        """Return the values of those keys that exist. The backing map is read once, for the keys that are not cached.

        Keys are returned typed: a date given as text comes back as a date. Raises KeyShapeError.
        """
        self._check_open()
        found = {key: self._buffer.get(key) or self._cache.get(key) for key in self._typed(keys)}
        missed = [key for key, message in found.items() if message is None]
        if missed:
            found |= zip(missed, fetch(self._backing, missed), strict=True)
        for message in found.values():
            self._cache_message(message)
        clock = self._clock()
        return {key: thaw(m.text) for key, m in found.items() if m and m.text and self._is_live(m, clock)}

    def put(self, key: Key, value: Any) -> None:
        """Put a JSON value under a key. Raises KeyShapeError; ValueShapeError if it is null, not JSON, or too large."""
        self.put_all([(key, value)])

    def put_all(self, entries: Iterable[tuple[Key, Any]]) -> None:
        """Put entries in order; of two with one key the later wins. If one is refused, none is put. Raises as `put`."""
        self._check_open()
        at = self._clock()
        self._write(
            [Message(*self._checked(index, entry), at) for index, entry in enumerate(self._listed(entries, "entries"))]
        )

    def delete(self, key: Key) -> None:
        """Delete a key. An absent key is not an error; it is logged too, as another reader of the log may have it."""
        self.delete_all([key])

    def delete_all(self, keys: Sequence[Key]) -> None:
        """Delete keys; if one is refused, none is deleted. Raises KeyShapeError."""
        self._check_open()
        at = self._clock()
        self._write([Message(key, None, at) for key in self._typed(keys)])

    def range(self, start: Key, stop: Key) -> Iterator[tuple[Key, Any]]:
        """Return (key, value) in key order, from `start` (included) to `stop` (excluded); empty if start > stop.

        All entries are read by the call: later writes do not show in the iterator.
        """
        return iter(self.snapshot(start, stop))

    def all(self) -> Iterator[tuple[Key, Any]]:
        """Return every (key, value) in key order, read as `range` does."""
        self._check_open()
        return iter(self._read(None, None))

    def snapshot(self, start: Key, stop: Key) -> tuple[tuple[Key, Any], ...]:
        """Return the entries of a range as they are now.

        Buffered writes are included. Samza leaves them out: there only range and all flush the buffer first.
        """
        self._check_open()
        return self._read(self.spec.check_key(start), self.spec.check_key(stop))

    def flush(self) -> int:
        """Write the buffer. Returns the log's last position, to be kept in a checkpoint; 0: empty log, or no log.

        If it fails midway, the next flush may log the batch a second time, which does not change what a restore gives.
        """
        self._check_open()
        self._write_buffer()
        return 0 if self._log is None else self._log.end()

    def close(self) -> None:
        """Flush and close: every later call raises StoreClosedError. A second close does nothing."""
        if not self._closed:
            self._write_buffer()
            self._closed = True

    def restore(self, upto: int | None = None, after: int = 0) -> Restored:
        """Bring the backing map to the state in the log; drop the write buffer and the cache.

        upto: the position of the last checkpoint; later messages are undone, with 0 all of them. None: the log's end.
        after: the position that the backing map already reflects; 0: not known, so the log is replayed from its start.
        Raises PositionError if they lie outside the log, SpecError without a log. See `restore.restore`.
        """
        self._check_open()
        if self._log is None:
            raise SpecError(f"store {self.spec.name!r}: has no log to restore from; give it one")
        end = checked_end(self._log, upto, after)
        self._buffer.clear()
        self._cache.clear()
        return restore(self._backing, self._log, end, after, self._restore_batch_keys)

    def _check_declared(self) -> None:
        if self.spec.value != "jsonb" or self.spec.kind != "non_transactional":
            raise SpecError(
                f"store {self.spec.name!r}: a key-value store needs value='jsonb' and kind='non_transactional'; "
                "rows of other states belong to batches, so update them through their map"
            )
        if min(self._write_batch_keys, self._restore_batch_keys) < 1 or self.cache_keys < 0:
            raise SpecError(
                f"store {self.spec.name!r}: write_batch_keys {self._write_batch_keys!r} and restore_batch_keys "
                f"{self._restore_batch_keys!r} must be 1 or more, cache_keys {self.cache_keys!r} 0 or more"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(f"store {self.spec.name!r} is closed; open a new one")

    def _typed(self, keys: Sequence[Key]) -> list[Key]:
        return self.spec.check_keys(self._listed(keys, "keys"))

    def _checked(self, index: int, entry: tuple[Key, Any]) -> tuple[Key, str]:
        if not isinstance(entry, list | tuple) or len(entry) != 2:
            raise KeyShapeError(f"entry {index}: expected a pair of key and value, got {entry!r:.80}", index)
        key = self.spec.check_key(entry[0], index)
        return key, freeze(self.spec, key, entry[1], self._max_value_bytes)

    def _listed(self, given: Iterable[T], content: str) -> Iterable[T]:
        if not isinstance(given, Iterable):
            raise KeyShapeError(f"store {self.spec.name!r}: expected a list of {content}, got {given!r}")
        return given

    def _write(self, messages: Iterable[Message]) -> None:
        for message in messages:
            # A rewritten key moves to the end, because the buffer holds each key once, in the order of last writes.
            self._buffer.pop(message.key, None)
            self._buffer[message.key] = message
            self._cache.pop(message.key, None)
        if len(self._buffer) >= self._write_batch_keys:
            self._write_buffer()

    def _write_buffer(self) -> None:
        if not self._buffer:
            return
        if self._log is not None:
            # Log first, so that the log always has what the map has.
            self._log.append(list(self._buffer.values()))
        apply(self._backing, self._buffer.values())
        # Emptied only now, so that the next flush retries writes that have failed.
        written, self._buffer = self._buffer, {}
        for message in written.values():
            self._cache_message(message)

    def _read(self, start: Key | None, stop: Key | None) -> tuple[tuple[Key, Any], ...]:
        self._write_buffer()
        clock = self._clock()
        messages = scan(self._backing, start, stop)
        return tuple((m.key, thaw(m.text)) for m in messages if m.text and self._is_live(m, clock))

    def _is_live(self, message: Message, clock: datetime) -> bool:
        return is_live(message.text is None, message.at, self.spec.ttl, clock)

    def _cache_message(self, message: Message | None) -> None:
        # Absent keys are not cached, because another process may put them.
        if message is None or message.text is None:
            return
        self._cache[message.key] = message
        self._cache.move_to_end(message.key)
        if len(self._cache) > self.cache_keys:
            self._cache.popitem(last=False)

"""Key-value store: any JSON value under a typed key, for state that belongs to no batch. Samza's KeyValueStore.

Writes wait in a buffer and reach the backing map in batches, the last write of each key only; reads see them at once.
A log, where one is given, gets each batch before the backing map does, so that a store can be made again from it.
Where Samza's layers surprise, this one does what a caller expects: a snapshot holds the writes that were waiting, an
absent key is not remembered as absent, a value that is too large is refused before anything changes and never dropped,
and a value changed after a put, or after a get, changes nothing here.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from state_backends.errors import KeyShapeError, SpecError
from state_backends.key_value.errors import StoreClosedError
from state_backends.key_value.json_text import freeze, thaw
from state_backends.key_value.log import KeyValueLog, Message
from state_backends.key_value.restore import Restored, checked_end, restore
from state_backends.key_value.rows import apply, fetch, scan
from state_backends.live import is_live
from state_backends.protocols import IBackingMap
from state_backends.versioned import Key

# Samza's defaults: task.changelog's 1 MiB, stores.*.write.batch.size, stores.*.object.cache.size.
MAX_VALUE_BYTES = 1 << 20
WRITE_BATCH_KEYS = 500
MIN_CACHE_KEYS = 1_000


T = TypeVar("T")


def now() -> datetime:
    return datetime.now(UTC)


class KeyValueStore:
    """A store of one task over the rows of a state with `value="jsonb"` and `kind="non_transactional"`.

    cache_keys: how many entries used last are kept for reads; None: the larger of a write batch and 1,000; 0: none.
    write_batch_keys: how many keys may wait to be written; 1 writes through.
    max_value_bytes: the largest value, as JSON; None for no limit.
    log: where writes are logged; None: the store cannot be restored. restore_batch_keys: how many keys a restore
        writes at a time. clock: gives the time from which and at which the state's ttl counts.
    Not thread-safe: one task, one store. If the backing map fails, its error passes through and the writes go on
    waiting: the next flush tries them again. After rolling back a transaction it wrote in, open a new store.
    Raises SpecError for a state of another sort, or a size that makes no sense.
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
        self._waiting: dict[Key, Message] = {}
        self._cache: OrderedDict[Key, Message] = OrderedDict()
        self._closed = False
        self._check_declared()

    def get(self, key: Key) -> Any:
        """Return the value of a key, None where it is absent. Raises KeyShapeError."""
        return next(iter(self.get_all([key]).values()), None)

    def get_all(self, keys: Sequence[Key]) -> dict[Key, Any]:
        """Return key to value of the keys that are there; the backing map is asked once, for those not remembered.

        Keys come back typed: a date that was asked for as text is a date.
        """
        self._check_open()
        found = {key: self._waiting.get(key) or self._cache.get(key) for key in self._typed(keys)}
        missed = [key for key, message in found.items() if message is None]
        if missed:
            found |= zip(missed, fetch(self._backing, missed), strict=True)
        for message in found.values():
            self._remember(message)
        clock = self._clock()
        return {key: thaw(m.text) for key, m in found.items() if m and m.text and self._is_live(m, clock)}

    def put(self, key: Key, value: Any) -> None:
        """Put a JSON value under a key. Raises KeyShapeError; ValueShapeError for null, no JSON, or too large."""
        self.put_all([(key, value)])

    def put_all(self, entries: Iterable[tuple[Key, Any]]) -> None:
        """Put entries in order, so the later of two with one key wins; one that is refused refuses them all."""
        self._check_open()
        at = self._clock()
        self._write(
            [Message(*self._checked(index, entry), at) for index, entry in enumerate(self._listed(entries, "entries"))]
        )

    def delete(self, key: Key) -> None:
        """Forget a key. One that is absent is no error, and is logged: another reader of the log may hold it."""
        self.delete_all([key])

    def delete_all(self, keys: Sequence[Key]) -> None:
        """Forget keys; one that is refused refuses them all."""
        self._check_open()
        at = self._clock()
        self._write([Message(key, None, at) for key in self._typed(keys)])

    def range(self, start: Key, stop: Key) -> Iterator[tuple[Key, Any]]:
        """Return (key, value) in key order, from `start` (with it) to `stop` (without it); empty if they are reversed.

        Entries are read whole and at once: what is written later does not show in an iterator opened before.
        """
        return iter(self.snapshot(start, stop))

    def all(self) -> Iterator[tuple[Key, Any]]:
        """Return every (key, value) in key order, under the rules of `range`."""
        self._check_open()
        return iter(self._read(None, None))

    def snapshot(self, start: Key, stop: Key) -> tuple[tuple[Key, Any], ...]:
        """Return the entries of a range as they are now, to be gone through as often as wanted.

        Writes that wait are in it. Samza's leaves them out; there only range and all write them down first.
        """
        self._check_open()
        return self._read(self.spec.check_key(start), self.spec.check_key(stop))

    def flush(self) -> int:
        """Write down what waits. Returns the log's last position, for a checkpoint to keep; 0: empty, or no log.

        A flush that fails midway may log its batch again when it is tried again, which a restore takes as one.
        """
        self._check_open()
        self._write_down()
        return 0 if self._log is None else self._log.end()

    def close(self) -> None:
        """Flush, then refuse all further use with StoreClosedError. A second close does nothing."""
        if not self._closed:
            self._write_down()
            self._closed = True

    def restore(self, upto: int | None = None, after: int = 0) -> Restored:
        """Bring the backing map to what the log says, and forget what waits or is remembered.

        upto: the position of the last checkpoint; later messages are undone, by 0 all. None replays the log to its end.
        after: the position at which the backing map stands already; 0: not known, and all is replayed.
        Raises PositionError outside the log; SpecError without a log; see `restore.restore` for how it goes.
        """
        self._check_open()
        if self._log is None:
            raise SpecError(f"store {self.spec.name!r}: has no log to restore from; give it one")
        end = checked_end(self._log, upto, after)
        self._waiting.clear()
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
            # A rewrite moves the key to the newest place, and never makes two entries of it.
            self._waiting.pop(message.key, None)
            self._waiting[message.key] = message
            self._cache.pop(message.key, None)
        if len(self._waiting) >= self._write_batch_keys:
            self._write_down()

    def _write_down(self) -> None:
        if not self._waiting:
            return
        if self._log is not None:
            # Log first: what the map holds, the log can give back.
            self._log.append(list(self._waiting.values()))
        apply(self._backing, self._waiting.values())
        written, self._waiting = self._waiting, {}
        for message in written.values():
            self._remember(message)

    def _read(self, start: Key | None, stop: Key | None) -> tuple[tuple[Key, Any], ...]:
        self._write_down()
        clock = self._clock()
        messages = scan(self._backing, start, stop)
        return tuple((m.key, thaw(m.text)) for m in messages if m.text and self._is_live(m, clock))

    def _is_live(self, message: Message, clock: datetime) -> bool:
        return is_live(message.text is None, message.at, self.spec.ttl, clock)

    def _remember(self, message: Message | None) -> None:
        # Absent keys are not remembered: another process may put them.
        if message is None or message.text is None:
            return
        self._cache[message.key] = message
        self._cache.move_to_end(message.key)
        if len(self._cache) > self.cache_keys:
            self._cache.popitem(last=False)

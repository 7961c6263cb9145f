"""State synchronizer: an object that many processes change together, each holding a copy of its own.

Nobody owns the object. Whoever wants to change it writes down the change, on condition that nobody else has written
since; whoever was too late reads on and decides again. Optimism pays while updates seldom meet and the object is small;
what has one writer anyway, or is large, belongs in a table.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import psycopg

from state_backends.synchronizer.copy import Apply, Copy, after, applied
from state_backends.synchronizer.errors import (
    ContentionError,
    NoInitialStateError,
    RecordTooLargeError,
    TruncatedError,
)
from state_backends.synchronizer.revisioned_stream import MAX_RECORD_BYTES, Head, RevisionedStream

# Pravega's documented limit: every client holds the state in memory and a new one reads it whole.
MAX_STATE_BYTES = 1024 * 1024

MAX_ATTEMPTS = 1_000
TIMEOUT_SECONDS = 30.0

# Losers wait for a chance time up to this, so that many of them do not meet again at once.
LONGEST_PAUSE_SECONDS = 0.05

Generate = Callable[[Any], Iterable[Any]]
Compactor = Callable[[Any], Any]


class StateSynchronizer:
    """One client of the shared object `name`. Pravega's StateSynchronizer (its StateSynchronizerImpl.java).

    conn: a psycopg connection; see RevisionedStream, also for `reconnect` and `max_record_bytes`. How long a write
        waits for one in an open transaction is the connection's lock_timeout.
    apply: `apply(state, update) -> state`, the same on every client: no clock, no chance, nothing from outside. It
        returns a new object and leaves the old one alone, so that readers of `state` need no lock.
    max_state_bytes: of the state as JSON in UTF-8. max_attempts, timeout_seconds: of one `update_state` or `compact`.

    States and updates are JSON values; None is no state. They come to `apply` and to readers as JSON gives them back
    (a tuple as a list, a key as text), on the client that wrote them too. Threads may share a client.
    """

    def __init__(
        self,
        conn: psycopg.Connection,
        name: str,
        apply: Apply,
        *,
        reconnect: Callable[[], psycopg.Connection] | None = None,
        max_record_bytes: int = MAX_RECORD_BYTES,
        max_state_bytes: int = MAX_STATE_BYTES,
        max_attempts: int = MAX_ATTEMPTS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.name = name
        self.log = RevisionedStream(conn, name, reconnect=reconnect, max_record_bytes=max_record_bytes)
        self._apply = apply
        self._max_state_bytes = max_state_bytes
        self._max_attempts = max_attempts
        self._timeout_seconds = timeout_seconds
        self._copy: Copy | None = None
        self._adopting = threading.Lock()

    @property
    def state(self) -> Any:
        """The local copy, which may be old; None before the first fetch. Never asks the log."""
        return self._copy.state if self._copy else None

    @property
    def revision(self) -> int | None:
        """The revision of the local copy; it never goes back. Two clients at one revision have equal states."""
        return self._copy.revision if self._copy else None

    @property
    def mark(self) -> int | None:
        """Where the newest compacted record is in the log, and where new clients begin; None before the first."""
        return self.log.head().mark

    @property
    def oldest(self) -> int:
        """The first revision that can still be read from."""
        return self.log.head().oldest

    @property
    def records_since_compaction(self) -> int:
        """How many records of updates the local copy was rebuilt from: 0 right after a compaction of one's own."""
        return self._copy.revision - self._copy.base - 1 if self._copy else 0

    def fetch_updates(self) -> None:
        """Bring the local copy up to the end that the log has now.

        A copy that lies before the oldest record is loaded again from the mark, and again if the log is truncated
        meanwhile: each time further on, so that it ends. Where two threads fetch, the newer copy stays.
        Raises NoInitialStateError where the log has records but no initial value, CorruptedStateError where a record
        is no synchronizer's. A log without any record leaves the state None.
        """
        while True:
            head = self.log.head()
            try:
                self._adopt(self._replayed(head))
                return
            except TruncatedError:
                continue

    def initialize(self, value: Any) -> None:
        """Write the initial value if the log is empty; otherwise change nothing, and load what is there.

        Raises NoInitialStateError where the value is None, RecordTooLargeError where it is over the limit.
        """
        value = _as_read(value)
        if value is None:
            raise NoInitialStateError(f"synchronizer {self.name!r}: None stands for no state; begin with {{}} or []")
        self._check_size(value)
        if self.log.write_conditionally(0, {"init": value}) is None:
            self.fetch_updates()
        else:
            self._adopt(Copy(value, revision=1, base=0))

    def update_state(self, generator: Generate) -> Any:
        """Write the updates that `generator(state)` gives, if the state is still the newest; else fetch and run again.

        generator: returns a list of updates, or yields them and returns a value:

            def join(members):
                if name not in members:
                    yield {"add": name}
                return len(members)

        It runs once per attempt and must have no effect outside. Its updates are one record: all are written, and
        nothing comes between, or none is. A run that wants to write nothing is checked against the log as well, so
        that "nothing to do" is never said of an old copy. On return the updates are in the local state.
        Returns what the run that was written (or had nothing to write) returned; None for a list.
        Raises NoInitialStateError; RecordTooLargeError where the record, or the state after it, is over its limit;
        ContentionError where every attempt came too late; and whatever the generator or `apply` raises. Then nothing
        has been written.
        """
        for copy in self._attempts():
            updates, returned = _run(generator, copy.state)
            if self._written(copy, updates):
                return returned
        raise self._outrun()

    def update_state_unconditionally(self, updates: Iterable[Any]) -> None:
        """Append updates, as one record, whatever the state has become; the local state has them at the next fetch.

        For updates that hold whatever came before; `apply` sees all earlier ones. To fetch, look, and then write
        without condition is a race: use `update_state`.
        The state's size can only be checked on the local copy; it may outgrow its limit, and can be compacted still.
        Raises NoInitialStateError before the initial value is there, for such a log could never begin.
        """
        if not (record := _as_read(list(updates))):
            return
        if self._copy is not None:
            self._checked(self._copy, record)
        elif not self.log.head().revision:
            raise self._uninitialized()
        self.log.write({"updates": record})

    def compact(self, compactor: Compactor = lambda state: state) -> None:
        """Write the state as a new initial record, so that new clients need read nothing older, and drop old history.

        compactor: returns the value that replaces the state; None: do not compact after all. Every client that reads
        the record replaces its state by this value, clients that are up to date included, so it must mean the same as
        the state it replaces: what a compactor leaves out is lost for all.
        History is kept back to the previous compaction: a client that is behind, but not before that one, reads on
        without loading the state again. Never refused for its size.
        Raises NoInitialStateError and ContentionError as `update_state` does.
        """
        for copy in self._attempts():
            value = _as_read(compactor(copy.state))
            if value is None:
                return
            revision = self.log.write_conditionally(copy.revision, {"init": value}, any_size=True)
            if revision is not None:
                self._adopt(Copy(value, revision, base=copy.revision))
                self._move_mark(copy.revision)
                return
        raise self._outrun()

    def _replayed(self, head: Head) -> Copy | None:
        copy = self._copy
        if copy is None or copy.revision < head.oldest:
            copy, start = None, max(head.mark or 0, head.oldest)
        else:
            start = copy.revision
        for entry in self.log.read_range(start, max(start, head.revision)):
            copy = after(copy, entry, self._apply, self.name)
        if copy is None and head.revision:
            raise self._uninitialized()
        return copy

    def _adopt(self, copy: Copy | None) -> None:
        with self._adopting:
            if copy is not None and (self._copy is None or copy.revision > self._copy.revision):
                self._copy = copy

    def _attempts(self) -> Iterator[Copy]:
        deadline = time.monotonic() + self._timeout_seconds
        if self._copy is None:
            self.fetch_updates()
        for attempt in range(self._max_attempts):
            if attempt:
                time.sleep(random.uniform(0, min(LONGEST_PAUSE_SECONDS, 0.001 * attempt)))  # noqa: S311
                self.fetch_updates()
            if self._copy is None:
                raise self._uninitialized()
            yield self._copy
            if time.monotonic() > deadline:
                return

    def _written(self, copy: Copy, updates: list[Any]) -> bool:
        if not updates:
            return self.log.head().revision == copy.revision
        updates = _as_read(updates)
        state = self._checked(copy, updates)
        revision = self.log.write_conditionally(copy.revision, {"updates": updates})
        if revision is None:
            return False
        self._adopt(replace(copy, state=state, revision=revision))
        return True

    def _checked(self, copy: Copy, updates: list[Any]) -> Any:
        state = applied(copy.state, updates, self._apply)
        self._check_size(state, before=copy.state)
        return state

    def _check_size(self, state: Any, before: Any = None) -> None:
        size = _size(state)
        # One that is too large already may shrink step by step.
        if size > self._max_state_bytes and size > _size(before):
            raise RecordTooLargeError(
                f"synchronizer {self.name!r}: its state would take {size} bytes, over the limit of "
                f"{self._max_state_bytes}; remove something first, or split it over several synchronizers"
            )

    def _move_mark(self, revision: int) -> None:
        """Move the mark forward, unless a later compaction has, and drop what lies before the old one."""
        old = self.mark
        while old is None or old < revision:
            if self.log.compare_and_set_mark(old, revision):
                self.log.truncate(old or 0)
                return
            old = self.mark

    def _outrun(self) -> ContentionError:
        return ContentionError(
            f"synchronizer {self.name!r}: others were quicker in each of up to {self._max_attempts} attempts over "
            f"{self._timeout_seconds:g} s; try again later, or write without a condition"
        )

    def _uninitialized(self) -> NoInitialStateError:
        return NoInitialStateError(f"synchronizer {self.name!r} has no initial value; call initialize first")


def _run(generator: Generate, state: Any) -> tuple[list[Any], Any]:
    returned: Any = None

    def updates() -> Iterator[Any]:
        nonlocal returned
        returned = yield from generator(state)  # type: ignore[func-returns-value]

    return list(updates()), returned


def _as_read(value: Any) -> Any:
    """Return the value as every other client will read it."""
    return json.loads(json.dumps(value, allow_nan=False))


def _size(value: Any) -> int:
    return len(json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode())

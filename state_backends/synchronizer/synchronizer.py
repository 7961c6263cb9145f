"""State synchronizer: a shared object that many processes change, each with a local copy. Optimistic concurrency.

A client that changes the object appends an update to the log, on condition that no other client has appended since its
copy was read; if one has, it reads the new updates and decides again. This works well for small objects with few
conflicts. An object with one writer, or a large one, belongs in a table.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from tidegauge.state_backends.errors import (
    ContentionError,
    CorruptedStateError,
    NoInitialStateError,
    RecordTooLargeError,
    TruncatedError,
)
from tidegauge.state_backends.synchronizer.revisioned_stream import MAX_RECORD_BYTES, Entry, Head, RevisionedStream

# Pravega's documented limit. It is small, because every client holds the state in memory and a new one reads it whole.
MAX_STATE_BYTES = 1024 * 1024

MAX_ATTEMPTS = 1_000
TIMEOUT_SECONDS = 30.0

# Longest random pause after a conflict, because many clients that retry at once would conflict again.
LONGEST_PAUSE_SECONDS = 0.05

Apply = Callable[[Any, Any], Any]
Generate = Callable[[Any], Iterable[Any]]
Compactor = Callable[[Any], Any]


@dataclass(frozen=True)
class Copy:
    """The local copy. state: as of `revision`; base: the position of the initial record that the copy started from."""

    state: Any
    revision: int
    base: int


class StateSynchronizer:
    """One client of the shared object `name`. Pravega's StateSynchronizer (its StateSynchronizerImpl.java).

    conn: a psycopg connection; see RevisionedStream, also for `reconnect` and `max_record_bytes`. Its lock_timeout
        limits how long a write waits for a write in another open transaction.
    apply: `apply(state, update) -> state`, deterministic and the same on every client: no clock, no random numbers, no
        other input. It returns a new object and does not change the old one, so readers of `state` need no lock.
    max_state_bytes: of the state as JSON in UTF-8. max_attempts, timeout_seconds: of one `update_state` or `compact`.

    States and updates are JSON values; None means no state. `apply` and readers get them as read back from JSON (a
    tuple as a list, a dict key as text), also on the client that wrote them. Threads may share a client.
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
        """The local copy, which may be out of date; None before the first fetch. Does not read the log."""
        return self._copy.state if self._copy else None

    @property
    def revision(self) -> int | None:
        """The revision of the local copy, which only increases. Two clients at one revision have equal states."""
        return self._copy.revision if self._copy else None

    @property
    def mark(self) -> int | None:
        """The position of the newest compacted record, where new clients start; None before the first compaction."""
        return self.log.head().mark

    @property
    def oldest(self) -> int:
        """The first revision that can still be read from."""
        return self.log.head().oldest

    @property
    def records_since_compaction(self) -> int:
        """The number of update records after the copy's initial record: 0 right after a compaction by this client."""
        return self._copy.revision - self._copy.base - 1 if self._copy else 0

    def fetch_updates(self) -> None:
        """Bring the local copy to the current end of the log.

        A copy older than the oldest record is loaded again from the mark, and again if the log is truncated meanwhile;
        each retry starts at a later mark, so it ends. If two threads fetch at once, the newer copy is kept.
        Raises NoInitialStateError if the log has records but no initial value, CorruptedStateError if a record was not
        written by a synchronizer. With an empty log the state stays None.
        """
        while True:
            head = self.log.head()
            try:
                self._adopt(self._replayed(head))
                return
            except TruncatedError:
                continue

    def initialize(self, value: Any) -> None:
        """Write the initial value if the log is empty; otherwise write nothing and load the stored state.

        Raises NoInitialStateError if the value is None, RecordTooLargeError if it is over the limit.
        """
        value = _as_read(value)
        if value is None:
            raise NoInitialStateError(f"synchronizer {self.name!r}: None means no state; initialize with {{}} or []")
        self._check_size(value)
        if self.log.write_conditionally(0, {"init": value}) is None:
            self.fetch_updates()
        else:
            self._adopt(Copy(value, revision=1, base=0))

    def update_state(self, generator: Generate) -> Any:
        """Write the updates that `generator(state)` returns if the state is the newest; else fetch and run it again.

        generator: returns a list of updates, or yields them and returns a value:

            def join(members):
                if name not in members:
                    yield {"add": name}
                return len(members)

        It runs once per attempt and must have no side effects. Its updates are one record: all are written, with
        nothing between them, or none. A run without updates is checked against the log too, so that "nothing to do" is
        never decided on an outdated copy. On return the local state has the updates.
        Returns the return value of the run that was written (or had no updates); None for a list.
        Raises NoInitialStateError; RecordTooLargeError if the record, or the state after it, is over its limit;
        ContentionError if every attempt met a newer record; and what the generator or `apply` raises. After an error
        nothing has been written.
        """
        for copy in self._attempts():
            updates, returned = _run(generator, copy.state)
            if self._written(copy, updates):
                return returned
        raise self._contention()

    def update_state_unconditionally(self, updates: Iterable[Any]) -> None:
        """Append updates as one record, without a condition; the local state has them after the next fetch.

        For updates that are valid whatever was written before them. To fetch, decide and then write without a condition
        is a race: use `update_state`.
        The state's size is checked on the local copy only, so it can grow over its limit; it can still be compacted.
        Raises NoInitialStateError before the initial value is written: such a log could not be initialized any more.
        """
        if not (record := _as_read(list(updates))):
            return
        if self._copy is not None:
            self._checked(self._copy, record)
        elif not self.log.head().revision:
            raise self._uninitialized()
        self.log.write({"updates": record})

    def compact(self, compactor: Compactor = lambda state: state) -> None:
        """Write the state as a new initial record, from which new clients read, and truncate older history.

        compactor: returns the value that replaces the state; None: do not compact after all. Every client that reads
        the record replaces its state by this value, clients that are up to date included, so it must mean the same as
        the state it replaces: what a compactor leaves out is lost for all.
        History is kept back to the previous compaction: a client that is behind, but not before that one, reads on
        without loading the state again. A compaction is never refused because of its size.
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
        raise self._contention()

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
        # A state that is already too large may shrink step by step.
        if size > self._max_state_bytes and size > _size(before):
            raise RecordTooLargeError(
                f"synchronizer {self.name!r}: its state would take {size} bytes, over the limit of "
                f"{self._max_state_bytes}; remove something first, or split it over several synchronizers"
            )

    def _move_mark(self, revision: int) -> None:
        """Move the mark forward unless a later compaction has, and truncate the log to the old mark."""
        old = self.mark
        while old is None or old < revision:
            if self.log.compare_and_set_mark(old, revision):
                self.log.truncate(old or 0)
                return
            old = self.mark

    def _contention(self) -> ContentionError:
        return ContentionError(
            f"synchronizer {self.name!r}: other clients wrote first in all of up to {self._max_attempts} attempts in "
            f"{self._timeout_seconds:g} s; retry later, or write without a condition"
        )

    def _uninitialized(self) -> NoInitialStateError:
        return NoInitialStateError(f"synchronizer {self.name!r} has no initial value; call initialize first")


def after(copy: Copy | None, entry: Entry, apply: Apply, log: str) -> Copy | None:
    """Return the copy after one more record of the log; None before the first initial record.

    Raises CorruptedStateError if the record is neither an initial value nor a list of updates.
    """
    match entry.record:
        case {"init": value} if value is not None:
            return Copy(value, entry.revision, base=entry.revision - 1)
        case {"updates": list(updates)}:
            # Updates before the first initial record read are skipped, because its value includes them.
            return copy and Copy(applied(copy.state, updates, apply), entry.revision, copy.base)
    raise CorruptedStateError(
        f"synchronizer {log!r}: the record before revision {entry.revision} is neither an initial value nor a list of "
        "updates; something else writes to this log"
    )


def applied(state: Any, updates: list[Any], apply: Apply) -> Any:
    """Return the state after the updates, in their order."""
    for update in updates:
        state = apply(state, update)
    return state


def compact_log(conn: psycopg.Connection, name: str, apply: Apply | None = None) -> int:
    """Truncate a log to its newest compacted value, for clients that do not compact it. Returns the records dropped.

    apply: the log's apply function, to write the current value first; None: only its own clients can do that.
    Safe for every client: one that is behind loads the state again from the mark.
    """
    if apply is not None:
        # Contention is ignored, because it means that the log has active clients, which compact it.
        with suppress(ContentionError):
            _write_current_value(StateSynchronizer(conn, name, apply))
    log = RevisionedStream(conn, name)
    return log.truncate(log.head().mark or 0)


def _write_current_value(synchronizer: StateSynchronizer) -> None:
    synchronizer.fetch_updates()
    if synchronizer.records_since_compaction:
        synchronizer.compact()


def _run(generator: Generate, state: Any) -> tuple[list[Any], Any]:
    returned: Any = None

    def updates() -> Iterator[Any]:
        nonlocal returned
        returned = yield from generator(state)  # type: ignore[func-returns-value]

    return list(updates()), returned


def _as_read(value: Any) -> Any:
    """Return the value as other clients will read it."""
    return json.loads(json.dumps(value, allow_nan=False))


def _size(value: Any) -> int:
    return len(json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode())

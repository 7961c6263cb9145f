"""State lock: one operation ("work") at a time on a state's tables, so that two of them cannot undo each other.

A state has live tables (the rows, view and changelog that are read) and shadow tables, which are filled to replace
them. A work locks one of the two, or both. Two works exclude each other if they lock the same tables:

    work         live  shadow  what it does
    declaration   x            adds measures, drops a changelog, replaces the view in place
    migration     x      x     copies the live tables into the shadow and swaps: neither may change meanwhile
    reprocess            x     fills the shadow from the input for hours, while the live tables are fed and trimmed
    swap          x            puts the shadow of a reprocess in place, or takes it back; its owner holds the shadow
    rebuild       x            writes the rows again, from the changelog
    retirement    x      x     archives or drops the rows, renames the tables, or moves the rows elsewhere
    rewind        x            takes rows and changelog back to an earlier batch
    compaction    x            deletes entries and tombstones; while the changelog was copied, that revived removed keys
    expiry        x            deletes expired rows
    audit         x            compares the rows with the changelog

Batches are not works: the ledger decides who may write them, and a work that must not run beside a batch holds the
pipeline. The locks are advisory locks of the session, so that they end even if their holder is killed. A row in
`tidegauge.state_work` says who holds them. It may outlive a killed holder, until the next holder's token replaces the
former one. So the token shows whether a shadow is still what its owner has filled (see `check_owner`).
"""

import os
import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass

import psycopg

from tidegauge.state_backends.errors import StateBusyError

# Distinguish the locks of one name; the ledger's is 7103845. In the order in which they are taken, so that two works
# cannot deadlock: the owner of a shadow waits for the live tables, and no holder of the live tables waits for a shadow.
LOCK_CLASSES = {"shadow": 7103847, "live": 7103846}

# How long a work waits for another. Maintenance stops after its current page, which takes well under a second.
PATIENCE_MS = 30_000

WORKS: dict[str, Sequence[str]] = {
    "declaration": ["live"],
    "migration": ["shadow", "live"],
    "reprocess": ["shadow"],
    "swap": ["live"],
    "rebuild": ["live"],
    "retirement": ["shadow", "live"],
    "rewind": ["live"],
    "compaction": ["live"],
    "expiry": ["live"],
    "audit": ["live"],
}

# One key of 64 bits, because a lock with two keys leaves 32 bits for the name, and of 77,000 names two would then share
# a lock with a probability of one half.
LOCK = "SELECT pg_advisory_lock(hashtextextended(%(name)s, %(lock_class)s))"
UNLOCK = "SELECT pg_advisory_unlock(hashtextextended(%(name)s, %(lock_class)s))"

# Asked before a lock is taken: PostgreSQL gives a session its own lock twice, but two works of one session must exclude
# each other too.
IS_MINE = """
SELECT EXISTS (SELECT FROM tidegauge.lock_sessions(%(lock_class)s, %(name)s) l
WHERE l.granted AND l.pid = pg_backend_pid())
"""

IS_AWAITED = "SELECT EXISTS (SELECT FROM tidegauge.lock_sessions(%(lock_class)s, %(name)s) l WHERE NOT l.granted)"

RECORD = """
INSERT INTO tidegauge.state_work AS w (state, tables, work, token, host, pid, backend_pid, since)
VALUES (%(state)s, %(tables)s, %(work)s, %(token)s, %(host)s, %(pid)s, pg_backend_pid(), clock_timestamp())
ON CONFLICT (state, tables) DO UPDATE SET work = excluded.work, token = excluded.token, host = excluded.host,
pid = excluded.pid, backend_pid = excluded.backend_pid, since = excluded.since
"""


@dataclass(frozen=True)
class StateWork:
    """A work that holds its locks. name: a key of WORKS. token: random, made each time the locks are taken."""

    conn: psycopg.Connection
    state: str
    name: str
    token: str

    def is_awaited(self) -> bool:
        """Return whether another work waits for this one. Maintenance then stops, because it can continue later."""
        return any(_ask(self.conn, IS_AWAITED, self.state, tables) for tables in WORKS[self.name])


@contextmanager
def state_lock(conn: psycopg.Connection, state: str, work: str, *, patience_ms: int = 1) -> Iterator[StateWork]:
    """Hold the locks of a work on a state until the end of the context, or of the session.

    conn: in autocommit mode, outside of a transaction. state: need not be registered yet. work: a key of WORKS.
    patience_ms: how long to wait for a work that holds the live tables. It does not wait for a shadow that is in use,
    because a reprocess holds one for hours.
    Raises StateBusyError, which names the other work, its host, pid and since when.
    """
    taken = StateWork(conn, state, work, secrets.token_hex(8))
    held: list[str] = []
    try:
        for tables in WORKS[work]:
            _take(taken, tables, patience_ms if tables == "live" else 1)
            held.append(tables)
            _record(taken, tables)
        yield taken
    finally:
        # If the session has ended, there is nothing to release, and the error that ended it must not be hidden.
        with suppress(psycopg.OperationalError, psycopg.InterfaceError):
            for tables in reversed(held):
                _release(taken, tables)


@contextmanager
def state_locks(conn: psycopg.Connection, states: Iterable[str], work: str) -> Iterator[None]:
    """Hold the locks of a work on several states, each taken as by `state_lock` within PATIENCE_MS.

    They are taken in the order of the names, so that two works on several states cannot deadlock.
    """
    with ExitStack() as locks:
        for state in sorted(states):
            locks.enter_context(state_lock(conn, state, work, patience_ms=PATIENCE_MS))
        yield


def lock_unless(
    held: StateWork | None, conn: psycopg.Connection, state: str, work: str
) -> AbstractContextManager[StateWork]:
    """Return a context that holds the locks of a work: those of the caller, or new ones if `held` is None."""
    return nullcontext(held) if held is not None else state_lock(conn, state, work)


def take_session_lock(conn: psycopg.Connection, lock_class: int, name: str, patience_ms: int) -> bool:
    """Take the advisory lock of a name for the session, within `patience_ms`. Returns whether it was taken."""
    try:
        with conn.transaction():
            before = conn.execute("SELECT current_setting('lock_timeout')").fetchone()
            conn.execute("SELECT set_config('lock_timeout', %s, true)", [f"{patience_ms}ms"])
            # The lock belongs to the session, so it outlives this transaction.
            conn.execute(LOCK, {"lock_class": lock_class, "name": name})
            # The setting lasts until the end of the transaction, which may be the caller's, so put it back.
            conn.execute("SELECT set_config('lock_timeout', %s, true)", before)
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def release_session_lock(conn: psycopg.Connection, lock_class: int, name: str) -> None:
    """Release what `take_session_lock` has taken, once. The end of the session does the same."""
    conn.execute(UNLOCK, {"lock_class": lock_class, "name": name})


def check_owner(conn: psycopg.Connection, state: str, token: str) -> None:
    """Check that no other work has owned the state's shadow since `token` took it.

    Call it in the transaction that swaps the shadow: it locks the record, so that no other work can take the shadow
    over until that ends. Raises StateBusyError.
    """
    found = conn.execute(
        "SELECT token FROM tidegauge.state_work WHERE state = %s AND tables = 'shadow' FOR SHARE", [state]
    ).fetchone()
    if found is None or found[0] != token:
        other, whose = holder(conn, state, "shadow")
        raise StateBusyError(
            f"state {state!r}: its shadow tables were taken over by {whose}, so their contents are lost; try again",
            other,
        )


def holder(conn: psycopg.Connection, state: str, tables: str) -> tuple[str, str]:
    """Return the work that holds a state's tables, or held them last, and a description of its process."""
    row = conn.execute(
        "SELECT work, host, pid, since FROM tidegauge.state_work WHERE state = %s AND tables = %s", [state, tables]
    ).fetchone()
    if row is None:
        return "", "a work that has just ended"
    return row[0], f"{row[0]} on host {row[1]!r}, pid {row[2]}, since {row[3]:%Y-%m-%d %H:%M:%S %Z}"


def _take(work: StateWork, tables: str, patience_ms: int) -> None:
    lock_class, mine = LOCK_CLASSES[tables], _ask(work.conn, IS_MINE, work.state, tables)
    if mine or not take_session_lock(work.conn, lock_class, work.state, patience_ms):
        other, whose = holder(work.conn, work.state, tables)
        raise StateBusyError(
            f"state {work.state!r}: {work.name} cannot begin, its {tables} tables are held by {whose}; try again when "
            "that has ended",
            other,
        )


def _record(work: StateWork, tables: str) -> None:
    work.conn.execute(
        RECORD,
        {
            "state": work.state,
            "tables": tables,
            "work": work.name,
            "token": work.token,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        },
    )


def _release(work: StateWork, tables: str) -> None:
    work.conn.execute("DELETE FROM tidegauge.state_work WHERE state = %s AND token = %s", [work.state, work.token])
    release_session_lock(work.conn, LOCK_CLASSES[tables], work.state)


def _ask(conn: psycopg.Connection, question: str, state: str, tables: str) -> bool:
    row = conn.execute(question, {"name": state, "lock_class": LOCK_CLASSES[tables]}).fetchone()
    return bool(row and row[0])

"""Table locks: lock tables for a change without making readers wait behind it.

A change of a table waits until its readers have ended, and every later reader waits behind the change: one export of an
hour would stop all lookups for that hour. So a change first waits until no reader stays longer than milliseconds. Only
then does it request the locks, all together and for less than a second.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import psycopg
from psycopg import sql

from tidegauge.state_backends.errors import TablesBusyError

# Readers of a batch end within milliseconds, so a reader that is still there after this long is an export, a backup, or
# a session that has not committed.
LOOK_SECONDS = 0.05

# Time limit for all locks of one attempt together, including the time that one of them waits.
LOCK_SECONDS = 0.5

# Pause between two looks at a reader that stays.
PAUSE_SECONDS = 1.0

# After this time, the driver reports which sessions block it, and tries again later.
WAIT_SECONDS = 180.0

# Views first, because readers of a view lock it before its tables; then by name.
RELATIONS = """
SELECT c.relkind = 'v', n.nspname, c.relname, c.oid || ARRAY(SELECT inhrelid FROM pg_inherits WHERE inhparent = c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname IN ('tidegauge_live', 'tidegauge_state', 'tidegauge_changelog') AND c.relkind IN ('r', 'p', 'v')
AND c.relname = ANY(%s) ORDER BY c.relkind <> 'v', n.nspname, c.relname
"""

# Every role may see a session's locks, but only its own role and monitors see since when its transaction lasts.
# Autovacuums, which have no user, are left out, because they end when a lock waits for them. So are readers of the
# catalog, because it can be read while it is locked.
HOLDERS = """
SELECT DISTINCT l.pid, l.virtualtransaction, a.application_name, a.usename, a.xact_start
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND (a.pid IS NULL OR a.usesysid IS NOT NULL)
AND (l.relation = ANY(%s)
     OR l.relation = 'tidegauge.state'::regclass AND l.mode NOT IN ('AccessShareLock', 'RowShareLock'))
ORDER BY l.pid
"""

# A deadlock would fail the statement of one of its sessions. So this one gives up before any other session looks for a
# deadlock. Only if an autovacuum has a table does it wait longer, because that is then told to end.
LOCK_TIMEOUT = """
SELECT set_config('lock_timeout', (d.ms * CASE WHEN EXISTS (
    SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE a.usesysid IS NULL AND l.granted AND l.relation = ANY(%s)) THEN 1.2 ELSE 0.5 END)::integer::text, true)
FROM (SELECT extract(epoch FROM current_setting('deadlock_timeout')::interval) * 1000 AS ms) d
"""


# UndefinedTable, because another change may have replaced a table between the look and the lock.
RETRIED = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.UndefinedTable)


class _Relation(NamedTuple):
    """oids: its own and those of its partitions."""

    is_view: bool
    schema: str
    name: str
    oids: list[int]


class _Holder(NamedTuple):
    pid: int | None
    transaction: str
    application: str | None
    role: str | None
    since: object

    def __str__(self) -> str:
        if self.pid is None:
            return "a prepared transaction"
        since = f", in a transaction since {self.since:%Y-%m-%d %H:%M:%S %Z}" if self.since else ""
        return f"pid {self.pid} ({self.application or 'unnamed'!r} of {self.role}{since})"


class TableLocks:
    """The locks that a change of some states' tables needs.

    conn: in autocommit mode. states: those whose tables change. on_waiting: called with the sessions in the way.
    """

    def __init__(
        self,
        conn: psycopg.Connection,
        states: Sequence[str],
        on_waiting: Callable[[str], object] = lambda readers: None,
    ) -> None:
        self._conn = conn
        self._states = states
        self._on_waiting = on_waiting
        self._deadline = time.monotonic() + WAIT_SECONDS

    def await_readers(self) -> None:
        """Return once every session that held the tables at the start has released them.

        Takes no lock itself. Raises TablesBusyError, which names the sessions that stay, WAIT_SECONDS after this object
        was created.
        """
        staying, pause = self._holders(), LOOK_SECONDS
        while staying:
            time.sleep(pause)
            staying &= self._holders()
            self._report(", ".join(sorted(map(str, staying))))
            pause = PAUSE_SECONDS

    def take(self) -> None:
        """Lock the catalog against other registrations, and the tables, until the caller's transaction ends.

        Raises LockNotAvailable or DeadlockDetected if a reader came meanwhile: end the transaction, and try again.
        """
        relations = self._relations()
        before = self._conn.execute("SELECT current_setting('lock_timeout')").fetchone()
        self._conn.execute(LOCK_TIMEOUT, [_oids(relations)])
        # In this mode, because it does not block readers of the catalog.
        self._conn.execute("LOCK TABLE tidegauge.state IN SHARE ROW EXCLUSIVE MODE")
        limit = time.monotonic() + LOCK_SECONDS
        for relation in relations:
            if time.monotonic() > limit:
                raise psycopg.errors.LockNotAvailable
            self._conn.execute(_lock_sql(relation))
        self._conn.execute("SELECT set_config('lock_timeout', %s, true)", before)

    def _report(self, readers: str) -> None:
        if readers and time.monotonic() > self._deadline:
            raise TablesBusyError(
                f"state {', '.join(map(repr, self._states))}: cannot be changed, as other sessions have read the "
                f"tables for more than {WAIT_SECONDS:g} s: {readers}; wait until they end, or end them with "
                "pg_terminate_backend(pid), and try again"
            )
        if readers:
            self._on_waiting(readers)

    def _relations(self) -> list[_Relation]:
        return [_Relation(*row) for row in self._conn.execute(RELATIONS, [list(self._states)])]

    def _holders(self) -> set[_Holder]:
        return {_Holder(*row) for row in self._conn.execute(HOLDERS, [_oids(self._relations())])}


@contextmanager
def locked_tables(
    conn: psycopg.Connection, states: Sequence[str], on_waiting: Callable[[str], object] = lambda readers: None
) -> Iterator[None]:
    """Open a transaction that has taken TableLocks, trying until it has. Raises TablesBusyError."""
    locks = TableLocks(conn, states, on_waiting)
    with ExitStack() as transaction:
        while not _has_taken(locks, conn, transaction):
            time.sleep(LOOK_SECONDS)
        yield


def _has_taken(locks: TableLocks, conn: psycopg.Connection, transaction: ExitStack) -> bool:
    locks.await_readers()
    try:
        with ExitStack() as begun:
            begun.enter_context(conn.transaction())
            locks.take()
            transaction.push(begun.pop_all())
    except RETRIED:
        return False
    return True


def _oids(relations: Sequence[_Relation]) -> list[int]:
    return [oid for relation in relations for oid in relation.oids]


def _lock_sql(relation: _Relation) -> sql.Composed:
    name = sql.Identifier(relation.schema, relation.name)
    if relation.is_view:
        # Not LOCK, because that would also lock the tables below the view, including the ledger's. This locks the view
        # and changes nothing.
        return sql.SQL("ALTER VIEW {} ALTER COLUMN txid DROP DEFAULT").format(name)
    return sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(name)

"""The database as the library wants it: the psycopg connection inside Django's, or one of one's own."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar, cast

import psycopg
from django.db import connection as django_connection

from state_backends import BACKENDS, BackendUnavailable, Catalog, StateSpec, state_reader
from state_backends.committed import ledger_sql
from state_backends.reader.reader import Reader

Answer = TypeVar("Answer")


class Planned:
    """A connection whose statements PostgreSQL plans once and remembers, where Django's are text, planned each time."""

    def __init__(self, conn: psycopg.Connection) -> None:
        self._conn = conn

    def execute(self, query: Any, params: Any = None) -> psycopg.Cursor:
        return psycopg.Cursor(self._conn).execute(query, params)


def connection() -> psycopg.Connection:
    """Return this thread's psycopg connection, opened if need be. Its transactions are Django's."""
    django_connection.ensure_connection()
    return cast(psycopg.Connection, django_connection.connection)


def read(question: Callable[[psycopg.Connection], Answer]) -> Answer:
    """Return the answer to a question that changes nothing, asked again on a new connection if the old one was dead.

    Connections are kept, and the database may restart; asking twice then costs less than a check before each question.
    """
    conn = connection()
    try:
        return question(_planned(conn))
    except psycopg.OperationalError:
        if not conn.closed or django_connection.in_atomic_block:
            raise
        django_connection.close()
        return question(_planned(connection()))


def own_connection() -> psycopg.Connection:
    """Return a new connection in autocommit mode, for work that outlives a transaction. The caller closes it."""
    parameters = django_connection.get_connection_params()
    # Django's cursors and type adapters are for its ORM.
    plain = {name: value for name, value in parameters.items() if name not in ("context", "cursor_factory")}
    return psycopg.connect(**plain, autocommit=True)


def _planned(conn: psycopg.Connection) -> psycopg.Connection:
    return cast(psycopg.Connection, Planned(conn))


# Marks: what an answer depends on besides the question, read at the cost of one row.
#
# While the mark of a state stays the same, so do its rows as a reader of whole batches sees them, but for those that
# expire meanwhile.


# A row of the catalog has another xmin after every change to it: the definition, ttl, a table made anew.
CATALOG = "SELECT xmin::text, created_at FROM tidemark.state WHERE name = %s"

BATCH = ledger_sql(
    "p.committed_txid, p.committed_attempt, p.committed_time, s.xmin::text, s.created_at, now()"
).as_bytes()


@dataclass(frozen=True)
class BatchVersion:
    """txid, attempt, at: of the committed batch. made: of the catalog's row. clock: what a reader takes for now."""

    txid: int
    attempt: int
    at: datetime | None
    made: tuple[Any, ...]
    clock: datetime


def of_catalog(conn: psycopg.Connection, name: str) -> tuple[Any, ...] | None:
    """Return what changes in the catalog whenever a state does; None where there is no such state."""
    return conn.execute(CATALOG, [name]).fetchone()


def of_batch(conn: psycopg.Connection, name: str) -> BatchVersion | None:
    row = conn.execute(BATCH, [name]).fetchone()
    return None if row is None else BatchVersion(row[0], row[1], row[2], (row[3], row[4]), row[5])


# The specs of states, remembered per process: a lookup costs one query, not a look into the catalog first.
#
# A remembered spec is compared with the catalog at most once a second; a state that gained a measure shows it by
# then.


logger = logging.getLogger(__name__)

Answered = TypeVar("Answered")

CHECK_SECONDS = 1.0

BACKEND_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class _Held:
    """mark: what changes in the catalog when the state does. checked_at: on the monotonic clock."""

    reader: Reader
    mark: tuple[Any, ...] | None
    checked_at: float


_held: dict[str, _Held] = {}


def reader(conn: psycopg.Connection, name: str) -> Reader:
    """Return a reader of a state over `conn`, its statements composed once per process. Raises UnknownStateError."""
    return marked_reader(conn, name)[0]


def marked_reader(conn: psycopg.Connection, name: str) -> tuple[Reader, tuple[Any, ...] | None]:
    """Return the same with the mark of the catalog that the reader goes by; the catalog may have moved on since."""
    now = time.monotonic()
    held = _held.get(name)
    if held is None or now - held.checked_at > CHECK_SECONDS:
        held = _held[name] = _checked(conn, name, held, now)
    return held.reader.on(conn), held.mark


def external_sizes(specs: Iterable[StateSpec]) -> dict[str, tuple[int, int]]:
    """Return rows and bytes of each state whose rows are outside the database, by its name.

    Rows are counted, with those that are removed or expired and not cleaned up yet; bytes are an estimate. A state
    whose store does not answer is left out.
    """
    found = {}
    for spec in specs:
        if not BACKENDS[spec.backend].capabilities.in_ledger:
            try:
                found[spec.name] = BACKENDS[spec.backend].sizes(connection(), spec)
            except BackendUnavailable as error:
                # The rest of the page does not need it.
                logger.warning("no size of state %s: %s", spec.name, error)
    return found


def limit_backend_calls() -> None:
    """Bound calls of this process to stores outside the database: no page should wait longer than this."""
    for backend in BACKENDS.values():
        backend.timeout_seconds = BACKEND_TIMEOUT_SECONDS


def forget() -> None:
    """Look into the catalog again for every state."""
    _held.clear()


def asked_again(question: Callable[[], Answered]) -> Answered:
    """Return the answer to a question, asked once more where a state was made anew since we looked into the catalog."""
    try:
        return question()
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        forget()
        return question()


def _checked(conn: psycopg.Connection, name: str, held: _Held | None, now: float) -> _Held:
    mark = of_catalog(conn, name)
    if held is not None and mark == held.mark and mark is not None:
        return replace(held, checked_at=now)
    _held.pop(name, None)
    return _Held(state_reader(conn, Catalog(conn).get(name)), mark, now)

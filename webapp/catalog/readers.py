"""Readers of states, the database connections that they use, and the versions that their answers depend on.

A reader is cached per process, so that a lookup costs one query and does not read the catalog first. A cached reader is
compared with the catalog at most once a second, so a new measure shows after a second. While the version of a state
stays the same, so do its rows as a reader of whole batches sees them, except for rows that expire meanwhile.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar, cast

import psycopg
from django.conf import settings
from django.db import connection as django_connection

from tidegauge.state_backends import BACKENDS, BackendUnavailable, Catalog, StateSpec, session, state_reader
from tidegauge.state_backends.committed import COMMITTED_BATCH, ledger_sql
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.reader.reader import CommittedBatch, LedgerRow, Reader, ReadSteps
from tidegauge.state_backends.reader.refused import RefusedReader
from tidegauge.state_backends.schema.feeding import Feeding, feeding
from tidegauge.webapp.core import pooler

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

CHECK_SECONDS = 1.0
# On the event loop the first of several lookups that come later than this checks the reader, while the others use it.
CHECK_AHEAD_SECONDS = 0.7

# The server whose definition of a state a reader has: the primary, or a replica by its name.
PRIMARY = ""

# The longest time that a page may wait for a store outside the database.
BACKEND_TIMEOUT_SECONDS = 5.0

# Every change of a catalog row changes its xmin: a new definition or ttl, a reprocess, a finding.
CATALOG = b"SELECT xmin::text, created_at FROM tidegauge.state WHERE name = %s"

BATCH = ledger_sql(COMMITTED_BATCH + ", s.xmin::text, s.created_at, now()").as_bytes()


class PrimaryOnlyError(Exception):
    """The rows are outside the database, so a replica would combine its older ledger with newer rows."""


class Planned:
    """A connection whose statements PostgreSQL plans once. Django's cursors would have them planned each time."""

    def __init__(self, conn: psycopg.Connection) -> None:
        self._conn = conn

    def execute(self, query: Any, params: Any = None, *, binary: bool = False) -> psycopg.Cursor:
        return psycopg.Cursor(self._conn).execute(query, params, binary=binary)


def connection() -> psycopg.Connection:
    """Return this thread's psycopg connection, opened if needed. Django controls its transactions."""
    django_connection.ensure_connection()
    return cast(psycopg.Connection, django_connection.connection)


def read(question: Callable[[psycopg.Connection], Answer]) -> Answer:
    """Return the answer to a question that changes nothing, asked again on a new connection if the old one was closed.

    Connections are kept, and the database may restart meanwhile. Asking again after a failure costs less than checking
    the connection before each question.
    """
    conn = connection()
    try:
        return question(_planned(conn))
    except psycopg.OperationalError:
        if not conn.closed or django_connection.in_atomic_block:
            raise
        django_connection.close()
        return question(_planned(connection()))


def own_connection(work: str = "this work") -> psycopg.Connection:
    """Return a new connection in autocommit mode to the server itself, for work that outlives a transaction.

    The caller closes it. work: named in the error. Raises NoSessionError if the address leads to a connection pooler.
    """
    conn = psycopg.connect(**session_parameters(), autocommit=True)
    with _closed_on_error(conn):
        if pooler.is_pooled(conn):
            raise pooler.NoSessionError(work)
        session.prepare(conn)
    return conn


def check_session(work: str) -> None:
    """Raise NoSessionError if `work` cannot get a session. Checks nothing while the database is unavailable."""
    with suppress(psycopg.Error):
        own_connection(work).close()


def own_statements() -> psycopg.Connection:
    """Return a new connection in autocommit mode, which may lead to a pooler. The caller closes it."""
    conn = psycopg.connect(**plain_parameters(), autocommit=True)
    with _closed_on_error(conn):
        pooler.prepare(conn)
    return conn


def session_parameters() -> dict[str, Any]:
    """Return psycopg's parameters of connections that need a session of their own."""
    direct = settings.DATABASE_DIRECT_URL
    return {"conninfo": direct, **session.CLIENT} if direct else plain_parameters()


def plain_parameters() -> dict[str, Any]:
    """Return psycopg's parameters, without Django's cursors and type adapters, because they are made for its ORM."""
    parameters = django_connection.get_connection_params()
    return {name: value for name, value in parameters.items() if name not in ("context", "cursor_factory")}


@contextmanager
def _closed_on_error(conn: psycopg.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        conn.close()
        raise


def _planned(conn: psycopg.Connection) -> psycopg.Connection:
    return cast(psycopg.Connection, Planned(conn))


@dataclass(frozen=True)
class _CachedReader:
    """version: the state's version in the catalog. feeding: as of that version. checked_at: on the monotonic clock."""

    reader: Reader
    feeding: Feeding
    version: tuple[Any, ...] | None
    checked_at: float


# By server and state, because a replica may have an earlier definition.
_cached: dict[tuple[str, str], _CachedReader] = {}
_feeding: dict[str, Feeding] = {}
_checked_ahead: set[tuple[str, str]] = set()


def reader(conn: psycopg.Connection, name: str) -> Reader:
    """Return a reader of a state over `conn`; it is composed once per process. Raises UnknownStateError."""
    return versioned_reader(conn, name)[0]


def versioned_reader(conn: psycopg.Connection, name: str) -> tuple[Reader, tuple[Any, ...] | None]:
    """Return a reader, and the catalog version that it was made for; the catalog may have changed since."""
    now, place = time.monotonic(), (getattr(conn, "source", PRIMARY), name)
    held = _cached.get(place)
    if held is None or place in _checked_ahead or now - held.checked_at > CHECK_SECONDS:
        try:
            held = _cached[place] = _checked(conn, name, held, now)
        except BaseException:
            _cached.pop(place, None)
            raise
        finally:
            _checked_ahead.discard(place)
        _feeding[name] = held.feeding
    if place[0] != PRIMARY and BACKENDS[held.reader.spec.backend].tables is None:
        raise PrimaryOnlyError(f"the rows of state {name!r} are not in the database, so no replica of it has them")
    return held.reader.on(conn), held.version


def fresh_reader(name: str) -> tuple[Reader, tuple[Any, ...] | None] | None:
    """Return what `versioned_reader` does for the primary if it need not be checked, without a connection."""
    place = (PRIMARY, name)
    held = _cached.get(place)
    if held is None:
        return None
    age = time.monotonic() - held.checked_at
    is_fresh = age < CHECK_AHEAD_SECONDS or (age < CHECK_SECONDS and place in _checked_ahead)
    return (held.reader, held.version) if is_fresh else None


def checking(name: str) -> ReadSteps[tuple[Reader, tuple[Any, ...] | None] | None]:
    """Check a cached reader for the event loop, and return what `versioned_reader` does for the primary.

    None: the state has no reader, or another definition by now, which a thread has to read.
    """
    place, now = (PRIMARY, name), time.monotonic()
    held = _cached.get(place)
    if held is None:
        return None
    _checked_ahead.add(place)  # until a check finds the definition unchanged, or has read the new one
    version = yield LedgerRow(CATALOG, [name])
    if version is None or version != held.version:
        return None
    if _cached.get(place) is held:
        _cached[place] = replace(held, checked_at=now)
        _checked_ahead.discard(place)
    return held.reader, held.version


def feeding_of(name: str) -> Feeding:
    """Return how far a state was fed when its reader was made; without a reader it counts as fed."""
    return _feeding.get(name, Feeding())


def external_sizes(specs: Iterable[StateSpec]) -> dict[str, tuple[int, int]]:
    """Return rows and bytes of each state whose rows are outside the database, by its name.

    The count includes rows that were removed or have expired but are not cleaned up yet; bytes are an estimate. A state
    whose store does not answer is left out.
    """
    found = {}
    for spec in specs:
        if BACKENDS[spec.backend].tables is None:
            try:
                found[spec.name] = BACKENDS[spec.backend].sizes(connection(), spec)
            except BackendUnavailable as error:
                # Only logged, because the rest of the page does not need the size.
                logger.warning("no size of state %s: %s", spec.name, error)
    return found


def limit_backend_calls() -> None:
    """Limit the time of this process's calls to stores outside the database to BACKEND_TIMEOUT_SECONDS."""
    for backend in BACKENDS.values():
        backend.timeout_seconds = BACKEND_TIMEOUT_SECONDS


def clear_cache() -> None:
    """Read the catalog again for every state."""
    _cached.clear()
    _feeding.clear()


def retry_if_redeclared(question: Callable[[], Answer]) -> Answer:
    """Return the answer to a question, asked once more if the state was redeclared since its reader was cached."""
    try:
        return question()
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        clear_cache()
        return question()


def _checked(conn: psycopg.Connection, name: str, held: _CachedReader | None, now: float) -> _CachedReader:
    version = catalog_version(conn, name)
    if held is not None and version == held.version and version is not None:
        return replace(held, checked_at=now)
    spec, found = Catalog(conn).get(name), findings.recorded_finding(conn, name)
    reader = RefusedReader(spec, found) if found else state_reader(conn, spec)
    return _CachedReader(reader, feeding(conn, name), version, now)


@dataclass(frozen=True)
class BatchVersion:
    """catalog: the version of the state's row in the catalog. clock: the time by which readers expire rows."""

    batch: CommittedBatch
    catalog: tuple[Any, ...]
    clock: datetime

    @classmethod
    def of(cls, row: Sequence[Any]) -> "BatchVersion":
        """row: of the statement BATCH, whose parameter is the name of a state."""
        return cls(CommittedBatch(*row[:4]), (row[4], row[5]), row[6])


def catalog_version(conn: psycopg.Connection, name: str) -> tuple[Any, ...] | None:
    """Return a value that changes with every change of a state in the catalog; None for an unknown state."""
    return conn.execute(CATALOG, [name]).fetchone()


def batch_version(conn: psycopg.Connection, name: str) -> BatchVersion | None:
    row = conn.execute(BATCH, [name]).fetchone()
    return None if row is None else BatchVersion.of(row)

"""Install and upgrade Tidegauge's own tables: numbered SQL files, each applied once to a database.

To change the schema:

1. Add state_backends/schema/migrations/NNNN_name.sql with the next number. It runs once, in a transaction. Leave the
   files before it as they are, comments included: a file that differs from what was applied is refused.
2. Change the models in webapp/catalog/models.py to match; a test compares them with the tables.
3. Run `tidegauge makemigrations states --name NAME`, with --empty if it detects no change: Django follows new models
   of these tables, but not new columns. Let its first operation be
   `migrations.RunPython(install_tables, migrations.RunPython.noop)`, with install_tables of
   tidegauge.webapp.catalog.migrations.
"""

import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import psycopg
from psycopg.errors import LockNotAvailable, UndefinedTable

from tidegauge.state_backends.errors import SchemaVersionError, TablesBusyError
from tidegauge.state_backends.session import check_version

MIGRATIONS = Path(__file__).with_name("migrations")

# Any constant will do; it keeps two installers from applying the same migration at once.
INSTALL_LOCK = 710384501

# How long a migration whose tables are in use is retried, and the pause between tries, in which their readers go on.
WAIT_SECONDS, PAUSE_SECONDS = 180.0, 2.0

VERSION_TABLE = """
CREATE SCHEMA IF NOT EXISTS tidegauge;
CREATE TABLE IF NOT EXISTS tidegauge.schema_version (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    digest     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
"""


class Migration(NamedTuple):
    number: int
    name: str
    statements: bytes

    @property
    def digest(self) -> str:
        return sha256(self.statements).hexdigest()

    def __str__(self) -> str:
        return f"{self.number:04}_{self.name}"


def install(conn: psycopg.Connection) -> None:
    """Apply the migrations that the database lacks, in order, one transaction each. Safe to call at every start.

    An up-to-date database is only read, by one SELECT, because even a statement that changes nothing locks its table: a
    driver that starts would wait for a backup, and all readers for the driver.
    Raises SchemaVersionError, before any change, if an applied migration is unknown here or has changed since;
    ServerVersionError for a server that is too old; TablesBusyError if its tables are read for minutes.
    """
    check_version(conn.info.server_version)
    known = migrations()
    if not _pending(known, _applied(conn)):
        return
    for migration in known:
        _apply_patiently(conn, known, migration)


def _apply_patiently(conn: psycopg.Connection, known: Sequence[Migration], migration: Migration) -> None:
    """Apply a migration, retrying until it gets its locks in time, so that readers go on between two attempts."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return _apply(conn, known, migration)
        except LockNotAvailable as error:
            if time.monotonic() > deadline:
                raise TablesBusyError(
                    f"database schema: migration '{migration}' changes tables that other sessions have read for more "
                    f"than {WAIT_SECONDS:g} s, such as a backup; wait until they end (pg_stat_activity), and try again"
                ) from error
            time.sleep(PAUSE_SECONDS)


def _apply(conn: psycopg.Connection, known: Sequence[Migration], migration: Migration) -> None:
    with conn.transaction():
        conn.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
        if not _applied(conn):
            conn.execute(VERSION_TABLE)
        # Read after the lock was taken, because another installer may have applied it meanwhile.
        if migration in _pending(known, _applied(conn)):
            before = conn.execute("SELECT current_setting('lock_timeout')").fetchone()
            # Short, because every reader waits behind a lock that the migration waits for.
            conn.execute("SET LOCAL lock_timeout = '500ms'")
            conn.execute(migration.statements)
            conn.execute("SELECT set_config('lock_timeout', %s, true)", before)
            _record(conn, migration)


def migrations() -> list[Migration]:
    """Return the migrations of this version of Tidegauge by number."""
    names = sorted(MIGRATIONS.glob("*.sql"))
    return [Migration(int(file.stem[:4]), file.stem[5:], file.read_bytes()) for file in names]


def _pending(known: Sequence[Migration], applied: Mapping[int, tuple[str, str]]) -> list[Migration]:
    by_number = {migration.number: migration for migration in known}
    for number, (name, digest) in applied.items():
        migration = by_number.get(number)
        if migration is None:
            raise SchemaVersionError(
                f"database schema: migration '{number:04}_{name}' is applied, which this version of Tidegauge does not "
                "have; run the version that applied it, or a later one"
            )
        if migration.digest != digest:
            raise SchemaVersionError(
                f"database schema: '{migration}.sql' has changed since it was applied; restore the file, and put the "
                "change into a new migration"
            )
    return [migration for migration in known if migration.number not in applied]


def _applied(conn: psycopg.Connection) -> dict[int, tuple[str, str]]:
    """Return name and digest of each applied migration; none if the version table is absent."""
    try:
        # A savepoint if a transaction is open, because the error would abort that.
        with conn.transaction():
            rows = conn.execute("SELECT number, name, digest FROM tidegauge.schema_version ORDER BY number").fetchall()
    except UndefinedTable:
        return {}
    return {number: (name, digest) for number, name, digest in rows}


def _record(conn: psycopg.Connection, migration: Migration) -> None:
    conn.execute(
        "INSERT INTO tidegauge.schema_version (number, name, digest) VALUES (%s, %s, %s)",
        [migration.number, migration.name, migration.digest],
    )

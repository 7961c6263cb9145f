"""The database: server, tables, roles, clock, replication slots and sizes."""

from collections.abc import Iterator

import psycopg

from tidegauge.pipelines.embedded import servers
from tidegauge.state_backends.errors import ClockError, ServerVersionError
from tidegauge.state_backends.ledger.batch_time import checked_clock
from tidegauge.state_backends.schema import role_setup
from tidegauge.state_backends.schema.roles import of_database
from tidegauge.state_backends.session import check_version, unsafe_settings
from tidegauge.webapp.commands.management.doctor.finding import ERROR, OK, WARNING, Finding
from tidegauge.webapp.core.writing import size as bytes_as_text

MOST_CONNECTIONS = 0.8
MOST_SLOT_BYTES = 1_000_000_000

SERVER = """
SELECT current_setting('server_version'), pg_database_size(current_database()),
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       current_setting('max_connections')::int
"""
SLOTS = """
SELECT slot_name, active, wal_status, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint
FROM pg_replication_slots WHERE NOT temporary ORDER BY 1
"""


def check_server(conn: psycopg.Connection) -> Iterator[Finding]:
    row = conn.execute(SERVER).fetchone()
    assert row is not None
    version, size, used, most = row
    yield Finding("database", OK, f"PostgreSQL {version}, database {conn.info.dbname!r} of {bytes_as_text(size)}")
    try:
        check_version(conn.info.server_version)
    except ServerVersionError as error:
        yield Finding("database", ERROR, str(error), "see docs/recovery.md")
    if names := unsafe_settings(conn):
        yield Finding(
            "database", ERROR, f"{', '.join(names)} off: a crash of its host can lose or damage committed batches",
            "; ".join(f"`psql \"$DATABASE_URL\" -c 'ALTER SYSTEM SET {name} = on'`" for name in names)
            + "; then restart the server",
        )  # fmt: skip
    if used > most * MOST_CONNECTIONS:
        yield Finding(
            "database", WARNING, f"{used} of {most} connections are used",
            "`psql \"$DATABASE_URL\" -c 'SELECT application_name, count(*) FROM pg_stat_activity GROUP BY 1'` shows by "
            "whom; lower TIDEGAUGE_LOOKUP_THREADS or TIDEGAUGE_MAX_WRITERS, or raise max_connections",
        )  # fmt: skip


def check_tables(conn: psycopg.Connection) -> Iterator[Finding]:
    from tidegauge.webapp.serving.health import migrations

    if migrations.missing():
        yield Finding("tables", ERROR, "tables are missing, or are of an older version", "`tidegauge migrate`")
    else:
        yield Finding("tables", OK, "all migrations are applied")


def check_roles(conn: psycopg.Connection) -> Iterator[Finding]:
    from tidegauge.webapp.catalog.roles import django_tables

    user, roles = conn.info.user, of_database(conn)
    if roles is None:
        warns = not servers.are_used() and conn.info.parameter_status("is_superuser") == "on"
        yield Finding(
            "roles", WARNING if warns else OK,
            f"no roles were set up, so every process may do what {user!r} may",
            "set up a role for each kind of process: `tidegauge roles --ask`; see docs/access.md" if warns else "",
        )  # fmt: skip
        return
    found = role_setup.findings(conn, roles, django_tables())
    for line in found:
        yield Finding("roles", ERROR, line, "`tidegauge roles` as a superuser")
    if not found:
        yield Finding("roles", OK, f"the roles are as they should be; this command runs as {user!r}")


def check_clock(conn: psycopg.Connection) -> Iterator[Finding]:
    try:
        at = checked_clock(conn, "doctor")
        yield Finding("clock", OK, f"the database and this host agree: {at:%Y-%m-%d %H:%M:%S %Z}")
    except ClockError as error:
        yield Finding("clock", ERROR, str(error), "on the host whose clock is wrong: `timedatectl set-ntp true`")


def check_slots(conn: psycopg.Connection) -> Iterator[Finding]:
    for name, active, status, kept in conn.execute(SLOTS).fetchall():
        drop = f'`psql "$DATABASE_URL" -c "SELECT pg_drop_replication_slot(\'{name}\')"`'
        if status == "lost":
            yield Finding(
                "slots", ERROR, f"slot {name!r} was invalidated: changes are lost", f"see its reader, or {drop}"
            )
        elif kept > MOST_SLOT_BYTES:
            yield Finding(
                "slots", WARNING, f"slot {name!r} keeps {bytes_as_text(kept)} of the server's log"
                + ("" if active else ", and nothing reads it"),
                f"start the pipeline or standby that reads it; if there is none any more, {drop}",
            )  # fmt: skip
        else:
            yield Finding("slots", OK, f"slot {name!r} keeps {bytes_as_text(kept)}")

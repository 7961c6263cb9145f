"""Connection poolers, such as PgBouncer in transaction mode, between the web application and its database.

A pooler runs each transaction in any of its sessions. What a client sets in a session is then lost to that client and
applies to others, and session locks and notifications do not work. So nothing is set in a session of a pooler: the
settings that statements rely on are compared, and differences are refused. Work that needs a session of its own uses
DATABASE_DIRECT_URL, and is refused without it: maintenance, event streams and exports. An export would hold a session
of the pooler for as long as its client reads, while requests that hold a thread wait for one.
"""

import logging
from typing import Any

import psycopg
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from tidegauge.state_backends import session

logger = logging.getLogger(__name__)

# PgBouncer keeps these per client, whatever session a transaction gets.
KEPT_PER_CLIENT = ("DateStyle", "standard_conforming_strings")
# Not compared, because they concern the connection between pooler and server.
OF_THE_POOLER = (*session.TCP, "client_connection_check_interval", "client_encoding")

REFUSAL = (
    "DATABASE_URL leads to a connection pooler, such as PgBouncer, and {work} needs a session of its own: set "
    "DATABASE_DIRECT_URL to the address of the server itself"
)
NO_LIMIT = (
    "statements through the connection pooler have no time limit: run ALTER ROLE .. SET statement_timeout for the role "
    "of the web process, or set query_timeout in PgBouncer"
)


class PoolerError(ImproperlyConfigured):
    """A connection pooler is used where none can be, or its sessions lack settings that Tidegauge needs."""


class NoSessionError(PoolerError):
    """Work needs a session of its own, and the only address of the database leads to a connection pooler."""

    def __init__(self, work: str) -> None:
        super().__init__(REFUSAL.format(work=work))


def is_pooled(conn: psycopg.Connection[Any]) -> bool:
    """Return whether a pooler is between this client and the server: it reports a process id that it made up."""
    row = conn.execute("SELECT pg_backend_pid()").fetchone()
    return row is None or row[0] != conn.info.backend_pid


def prepare(conn: psycopg.Connection[Any]) -> None:
    """Prepare a new connection for the library's statements. conn: in autocommit mode.

    Raises PoolerError if it leads to a pooler whose sessions do not have the needed settings.
    """
    if not is_pooled(conn):
        session.prepare(conn)
        return
    conn.prepare_threshold = settings.TIDEGAUGE_POOLED_PREPARE_AFTER or None
    for name in KEPT_PER_CLIENT:
        conn.execute("SELECT set_config(%s, %s, false)", [name, session.SETTINGS[name]])
    _check_settings(conn)


def _check_settings(conn: psycopg.Connection[Any]) -> None:
    needed = {name: value for name, value in session.SETTINGS.items() if name not in OF_THE_POOLER}
    found = dict(
        conn.execute(
            "SELECT s.name, current_setting(s.name) FROM unnest(%s::text[]) AS s (name)",
            [[*needed, "synchronous_commit"]],
        ).fetchall()
    )
    if found.pop("synchronous_commit") == "off":
        needed["synchronous_commit"] = "on"
        found["synchronous_commit"] = "off"
    other = [f"{name} = {found[name]!r}, not {value!r}" for name, value in needed.items() if found[name] != value]
    if other:
        raise PoolerError(
            f"the sessions of the connection pooler have {'; '.join(other)}: set the needed values with ALTER ROLE .. "
            "SET, or in the connect_query of PgBouncer"
        )


def limit_statements(connection: Any, **_: Any) -> None:
    """Limit the time of statements in each new connection of Django. Through a pooler, the role's limit applies."""
    conn = connection.connection
    if not is_pooled(conn):
        conn.execute(f"SET statement_timeout = {settings.TIDEGAUGE_STATEMENT_TIMEOUT_MS:d}")
        return
    if not settings.DATABASE_DIRECT_URL:
        logger.error(REFUSAL.format(work="an export"))
    if conn.execute("SELECT current_setting('statement_timeout')").fetchone() == ("0",):
        logger.warning(NO_LIMIT)

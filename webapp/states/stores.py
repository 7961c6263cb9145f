"""The database as the library wants it: the psycopg connection inside Django's, or one of one's own."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import psycopg
from django.db import connection as django_connection

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

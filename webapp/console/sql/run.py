"""Runs one statement of a person over the live views, within limits that the text cannot lift.

The database limits what is read: the role has no other privilege, the transaction is read-only, and each statement ends
after five seconds. The server parses the statement as a single one and tells its columns; then it is run as a subquery,
whose values come as text that the server has cut off, so that no answer fills the memory of this process.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest
from psycopg import sql
from psycopg.pq import ExecStatus

from tidegauge.state_backends.schema import sql_role
from tidegauge.state_backends.schema.roles import LIVE
from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.accounts.permissions import RUN_SQL, key_scope
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.roles import django_tables

MOST_ROWS = 1_000
MOST_SECONDS = 5
MOST_COLUMNS = 100
MOST_CHARACTERS = 20_000
# Of one value, and of all of them.
MOST_OF_A_VALUE, MOST_TOGETHER = 1_000, 4_000_000
AUDITED_CHARACTERS = 2_000

# Not by the text, but where the session begins. `search_path`: so that a state needs no schema before its name.
SESSION = {
    "default_transaction_read_only": "on",
    "statement_timeout": f"{MOST_SECONDS}s",
    "lock_timeout": "1s",
    "idle_in_transaction_session_timeout": "10s",
    "max_parallel_workers_per_gather": "0",
    "search_path": LIVE,
    "timezone": "UTC",
}

NUMBERS = frozenset(
    psycopg.postgres.types[name].oid for name in ("int2", "int4", "int8", "float4", "float8", "numeric")
)


class SqlError(Exception):
    """The statement is not run. The text is for the person who typed it."""


class SqlUnavailableError(SqlError):
    """It cannot be run here now: the page is off, or the role is missing, wrong, or may do too much."""


class StatementError(SqlError):
    """The database refuses the statement. position: in the text, from 0; None if unknown. hint: the database's."""

    def __init__(self, message: str, position: int | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.position = position
        self.hint = hint


@dataclass(frozen=True)
class Answer:
    """columns: names, and whether each has numbers. rows: values as text. more: there are further rows."""

    columns: Sequence[tuple[str, bool]]
    rows: Sequence[Sequence[str | None]]
    more: bool


def may_run(request: HttpRequest) -> bool:
    """Return whether the person may run SQL: not with a restriction, because live views show all keys of all states."""
    return request.user.has_perm(RUN_SQL) and key_scope(request).is_unrestricted


def is_offered(request: HttpRequest) -> bool:
    """Return whether pages lead the person to SQL: where it is switched on, and if they may run it."""
    return bool(settings.TIDEGAUGE_SQL) and may_run(request)


def run(text: str, by: User) -> Answer:
    """Return what one statement answers; each run has an entry in the audit log. Raises SqlError."""
    statement = text.strip().removesuffix(";").rstrip()
    if not statement:
        raise StatementError("there is no statement")
    if len(statement) > MOST_CHARACTERS:
        raise StatementError(f"the statement has more than {MOST_CHARACTERS:,} characters")
    with _session() as conn:
        record("sql.run", "live views", by=by.get_username(), statement=statement[:AUDITED_CHARACTERS])
        columns = _described(conn, statement)
        return _rows(conn, statement, columns)


@contextmanager
def _session() -> Iterator[psycopg.Connection]:
    """Open a session for one statement. Raises SqlUnavailableError."""
    address = settings.TIDEGAUGE_SQL
    if not address:
        raise SqlUnavailableError("SQL is switched off here: TIDEGAUGE_SQL_URL is not set")
    role = address["user"]
    if readers.connection().execute("SELECT FROM pg_roles WHERE rolname = %s", [role]).fetchone() is None:
        raise SqlUnavailableError(
            f"the database has no role {role!r}; an operator makes one with `tidegauge sql-role`, as a superuser, and "
            "writes the address that it prints into TIDEGAUGE_SQL_URL"
        )
    options = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
    given: dict[str, Any] = {"connect_timeout": 3, "application_name": "tidegauge sql"} | address | {"options": options}
    try:
        conn = psycopg.connect(**given, autocommit=True)
    except psycopg.OperationalError:
        # Not the server's own text, which has the address.
        raise SqlUnavailableError(
            f"the role {role!r} cannot sign in to the database; an operator sets its password by `tidegauge sql-role` "
            "and in TIDEGAUGE_SQL_URL, and checks that the address is that of the server, not of a pooler"
        ) from None
    # Closed and not committed, so that nothing that the text does, such as a notification, has an effect.
    with closing(conn):
        if too_much := sql_role.excess(conn, list(django_tables().names)):
            raise SqlUnavailableError(
                f"the role {role!r} {too_much}, so SQL as this role could do more than read live views; use the role "
                "that `tidegauge sql-role` makes"
            )
        conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield conn


def _described(conn: psycopg.Connection, statement: str) -> list[tuple[str, bool]]:
    """Return the columns of a statement, parsed as a single one and not run. Raises StatementError."""
    encoded = statement.encode()
    prepared = conn.pgconn.prepare(b"typed", encoded)
    if prepared.status != ExecStatus.COMMAND_OK:
        error = psycopg.errors.error_from_result(prepared)
        raise _refused(error, _position(error))
    described = conn.pgconn.describe_prepared(b"typed")
    if described.nparams:
        raise StatementError("a parameter such as $1 has no value here; write the value")
    if not described.nfields:
        raise StatementError("only a statement that returns rows can be run: SELECT, VALUES, TABLE, WITH")
    if described.nfields > MOST_COLUMNS:
        raise StatementError(f"{described.nfields} columns are more than the {MOST_COLUMNS} that are shown; name some")
    return [((described.fname(n) or b"").decode(), described.ftype(n) in NUMBERS) for n in range(described.nfields)]


def _rows(conn: psycopg.Connection, statement: str, columns: Sequence[tuple[str, bool]]) -> Answer:
    names = [sql.Identifier(f"c{place}") for place in range(len(columns))]
    cut = (sql.SQL("left({}::text, {})").format(name, sql.Literal(MOST_OF_A_VALUE)) for name in names)
    # On lines of its own, because it may end with a comment.
    query = sql.SQL("SELECT {} FROM (\n{}\n) AS typed ({}) LIMIT {}").format(
        sql.SQL(", ").join(cut), _typed(statement), sql.SQL(", ").join(names), sql.Literal(MOST_ROWS + 1)
    )
    rows: list[Sequence[str | None]] = []
    together = 0
    before = len(query.as_string(conn).partition("(\n")[0]) + 2
    try:
        for row in conn.cursor().stream(query):
            together += sum(len(value or "") for value in row)
            if len(rows) == MOST_ROWS or together > MOST_TOGETHER:
                return Answer(columns, rows, more=True)
            rows.append(row)
    except psycopg.errors.QueryCanceled:
        raise StatementError(f"it was cancelled after {MOST_SECONDS} seconds; narrow what it reads") from None
    except psycopg.Error as error:
        position = _position(error)
        if isinstance(error, psycopg.errors.SyntaxError) and position is not None:
            # It was parsed as a statement of its own before, so what fails now is its place in a subquery.
            raise StatementError("only SELECT, VALUES, TABLE and WITH can be run") from None
        raise _refused(error, None if position is None or position < before else position - before) from None
    return Answer(columns, rows, more=False)


def _typed(statement: str) -> sql.SQL:
    return sql.SQL(statement)  # the one place where text of a person is SQL


def _position(error: psycopg.Error) -> int | None:
    position = error.diag.statement_position
    return int(position) - 1 if position else None


def _refused(error: psycopg.Error, position: int | None) -> StatementError:
    if isinstance(error, psycopg.errors.SyntaxError) and "multiple commands" in (error.diag.message_primary or ""):
        return StatementError("only one statement can be run at a time")
    return StatementError(
        error.diag.message_primary or "the database refuses it", position, error.diag.message_hint or ""
    )

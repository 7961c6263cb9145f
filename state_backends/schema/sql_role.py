"""The database role as which the console runs SQL that people type: it reads the live views and nothing else.

It is another role than web, because a function in the text could take back a role that was set in web's session. And it
is no part of `roles.PARTS`: an installation has it only if it wants the SQL page, with roles or with one user.
"""

from typing import LiteralString

import psycopg
from psycopg import sql

from tidegauge.state_backends.errors import RolesError
from tidegauge.state_backends.schema.role_setup import set_password
from tidegauge.state_backends.schema.roles import LEDGER, LIVE, SOURCES, STATE_SCHEMAS, Roles, of_database

# Sessions at once, over all web processes.
MOST_SESSIONS = 20

# Members of these reach files, programs or sessions of the server.
BEYOND_TABLES = ("pg_read_server_files", "pg_write_server_files", "pg_execute_server_program", "pg_signal_backend")

TOO_MUCH: LiteralString = """
SELECT 'is a superuser or may change roles, databases or replication' FROM pg_roles
WHERE rolname = current_user AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls)
UNION ALL
SELECT format('is a member of %%s', rolname) FROM pg_roles
WHERE rolname = ANY(%(beyond)s) AND pg_has_role(current_user, oid, 'MEMBER')
UNION ALL
(SELECT format('may use %%I.%%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND (n.nspname = ANY(%(schemas)s) OR c.relname = ANY(%(tables)s))
   AND has_schema_privilege(n.oid, 'USAGE') AND (has_any_column_privilege(c.oid, 'SELECT, INSERT, UPDATE')
   OR has_table_privilege(c.oid, 'DELETE, TRUNCATE, TRIGGER')) LIMIT 1)
UNION ALL
(SELECT format('may change %%I.%%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %(live)s AND has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER') LIMIT 1)
LIMIT 1
"""


def make(conn: psycopg.Connection, password: str) -> str:
    """Create or repair the role, and return its name. Idempotent.

    conn: in autocommit mode, of a superuser, or of a role with CREATEROLE that owns the live views. password: empty to
    leave it as it is. Raises RolesError if the connection's role may not do it.
    """
    roles = of_database(conn)
    name = (roles or Roles())["sql"]
    role = sql.Identifier(name)
    try:
        with conn.transaction():
            if conn.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone() is None:
                conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
            conn.execute(sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}").format(role, sql.Literal(MOST_SESSIONS)))
            conn.execute(sql.SQL("ALTER ROLE {} SET default_transaction_read_only = on").format(role))
            if password:
                set_password(conn, name, password)
            for statement in _grants(conn, role, roles):
                conn.execute(statement)
    except psycopg.errors.InsufficientPrivilege as error:
        raise RolesError(
            f"role {name}: {conn.info.user!r} may not make it ({error.diag.message_primary}); connect as a superuser, "
            "or as a role with CREATEROLE that owns the live views; nothing was changed"
        ) from error
    return name


def _grants(conn: psycopg.Connection, role: sql.Identifier, roles: Roles | None) -> list[sql.Composed]:
    database, live = sql.Identifier(conn.info.dbname), sql.Identifier(LIVE)
    connect = sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, role)
    if roles is not None:
        return [connect, sql.SQL("GRANT {} TO {}").format(sql.Identifier(roles["reader"]), role)]
    later = sql.SQL("ALTER DEFAULT PRIVILEGES IN SCHEMA {} GRANT SELECT ON TABLES TO {}")
    return [
        connect,
        sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(live, role),
        sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {} TO {}").format(live, role),
        later.format(live, role),
    ]


def excess(conn: psycopg.Connection, tables: list[str]) -> str:
    """Return what the connection's role may do besides reading live views; empty if nothing.

    tables: names of those of the web application, which are in any schema.
    """
    schemas = [each for each in (LEDGER, *STATE_SCHEMAS, SOURCES) if each != LIVE]
    given = {"beyond": list(BEYOND_TABLES), "schemas": schemas, "tables": tables, "live": LIVE}
    row = conn.execute(TOO_MUCH, given).fetchone()
    return "" if row is None else str(row[0])

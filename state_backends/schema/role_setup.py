"""Set up or repair an installation's database roles, and find what they lack.

Everything is done in one transaction, by a superuser or a role with CREATEROLE that owns the existing objects. These
change their owner, which locks each for a moment; if a lock has to wait too long, nothing is changed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from tidegauge.state_backends.errors import RolesError, TablesBusyError
from tidegauge.state_backends.schema.install import INSTALL_LOCK
from tidegauge.state_backends.schema.roles import (
    DJANGO_SCHEMAS,
    LEDGER,
    LIVE,
    SEARCH_PATH,
    SOURCES,
    STATE_SCHEMAS,
    DjangoTables,
    Roles,
    absent,
    database_grants,
    regrant,
    state_grants,
    table_grants,
)

LOCK_TIMEOUT = "5s"

ADMIN = "SELECT rolname, rolsuper, rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"

# Objects and owners: kind, schema, name (of a function, with its arguments) and owner. Sequences are left out, because
# they follow their tables.
OWNED = """
SELECT 'SCHEMA', NULL, n.nspname::text, pg_get_userbyid(n.nspowner)
FROM pg_namespace n WHERE n.nspname = ANY(%(schemas)s)
UNION ALL
SELECT CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, n.nspname, c.relname::text, pg_get_userbyid(c.relowner)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v') AND (n.nspname = ANY(%(schemas)s)
      OR c.relname = ANY(%(tables)s) AND n.nspname = ANY(%(django)s))
UNION ALL
SELECT 'FUNCTION', n.nspname, format('%%I.%%I(%%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)),
       pg_get_userbyid(p.proowner)
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = ANY(%(schemas)s)
"""

# The default privileges that pipeline grants on what it creates.
DEFAULTS = """
SELECT EXISTS (SELECT FROM pg_default_acl d, aclexplode(d.defaclacl) a
    WHERE d.defaclrole = to_regrole(%(creator)s) AND d.defaclobjtype = 'r' AND d.defaclnamespace = coalesce(
        to_regnamespace(%(schema)s), 0::oid) AND a.grantee = to_regrole(%(grantee)s) AND a.privilege_type = 'SELECT')
"""

MEMBERS = "SELECT pg_has_role(%(member)s, %(role)s, 'USAGE') AND pg_has_role(%(member)s, %(role)s, 'SET')"

FOR_CHANGES = "SELECT rolreplication FROM pg_roles WHERE rolname = %s"


def set_up(
    conn: psycopg.Connection,
    roles: Roles,
    django: DjangoTables,
    passwords: Mapping[str, str],
    *,
    changes: bool = False,
) -> None:
    """Create missing roles, make them the owners of the existing objects, and reset their privileges. Idempotent.

    conn: in autocommit mode. passwords: part to password; a part without one keeps its password, or has none. They are
    hashed here, so that no log of the server has them. changes: pipeline may read changes of tables (PostgresChanges).
    Raises RolesError if the connection's role may not do it, TablesBusyError if a table is in use for too long.
    """
    try:
        with conn.transaction():
            # The installers' lock, so that no migration creates tables meanwhile.
            conn.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
            conn.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
            with _administering(conn, roles):
                _set_up(conn, roles, django, passwords, changes)
    except psycopg.errors.LockNotAvailable as error:
        raise TablesBusyError(
            f"roles: a table that must change its owner was in use for {LOCK_TIMEOUT}; stop drivers and long reads "
            "(pg_stat_activity), and try again; nothing was changed"
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise RolesError(
            f"roles: {conn.info.user!r} may not set them up ({error.diag.message_primary}); connect as a superuser, or "
            "as a role with CREATEROLE that owns the database and its existing tables; nothing was changed"
        ) from error


def findings(conn: psycopg.Connection, roles: Roles, django: DjangoTables) -> list[str]:
    """Return what the roles lack, one line for each; empty if everything is as `set_up` leaves it."""
    if missing := absent(conn, roles):
        return [f"role {name} does not exist" for name in missing]
    if LEDGER not in _schemas(conn):
        return [f"schema {LEDGER} does not exist"]
    found = [f"{kind.lower()} {_shown(schema, name)} belongs to {now}, not to {owner}"
             for kind, schema, name, now, owner in _others(conn, roles, django)]  # fmt: skip
    for grant in [*database_grants(conn, roles), *state_grants(conn, roles), *table_grants(conn, roles, django)]:
        found += [f"{grant.role} lacks {missing}" for missing in grant.missing(conn)]
    granted: list[tuple[str | None, str]] = [(None, roles["web"]), (LIVE, roles["reader"])]
    for place, grantee in granted:
        if not _value(conn, DEFAULTS, {"creator": roles["pipeline"], "schema": place, "grantee": grantee}):
            found.append(f"{grantee} lacks SELECT on tables that {roles['pipeline']} will create")
    for role in (roles["web"], roles["pipeline"]):
        if not _value(conn, MEMBERS, {"member": roles["worker"], "role": role}):
            found.append(f"{roles['worker']} is not a member of {role}")
    return found


def without_password(conn: psycopg.Connection, roles: Roles) -> list[str] | None:
    """Return the roles without a password; None if that is unknown, because only a superuser may read it."""
    try:
        rows = conn.execute(
            "SELECT rolname FROM pg_authid WHERE rolname = ANY(%s) AND rolpassword IS NULL ORDER BY 1", [roles.names]
        )
    except psycopg.errors.InsufficientPrivilege:
        return None
    return [name for (name,) in rows]


def _set_up(
    conn: psycopg.Connection, roles: Roles, django: DjangoTables, passwords: Mapping[str, str], changes: bool
) -> None:
    owner, pipeline = sql.Identifier(roles["owner"]), sql.Identifier(roles["pipeline"])
    for grant in database_grants(conn, roles):
        conn.execute(grant.statement())
    schemas = {LEDGER: owner} | dict.fromkeys(STATE_SCHEMAS, pipeline) | ({SOURCES: pipeline} if changes else {})
    for name in schemas.keys() - _schemas(conn):
        conn.execute(sql.SQL("CREATE SCHEMA {} AUTHORIZATION {}").format(sql.Identifier(name), schemas[name]))
    for kind, schema, name, _, new in list(_others(conn, roles, django)):
        conn.execute(_alter_owner(kind, schema, name, new))
    for part, password in passwords.items():
        set_password(conn, roles[part], password)
    for part in ("owner", "web", "worker"):
        conn.execute(
            sql.SQL("ALTER ROLE {} IN DATABASE {} SET search_path = {}").format(
                sql.Identifier(roles[part]), sql.Identifier(conn.info.dbname), sql.SQL(SEARCH_PATH)
            )
        )
    if changes and not _value(conn, FOR_CHANGES, [roles["pipeline"]]):
        conn.execute(sql.SQL("ALTER ROLE {} REPLICATION").format(pipeline))
    conn.execute(
        sql.SQL("GRANT {}, {} TO {} WITH INHERIT TRUE, SET TRUE").format(
            sql.Identifier(roles["web"]), pipeline, sql.Identifier(roles["worker"])
        )
    )
    defaults = sql.SQL("ALTER DEFAULT PRIVILEGES FOR ROLE {} {} GRANT SELECT ON TABLES TO {}")
    conn.execute(defaults.format(pipeline, sql.SQL(""), sql.Identifier(roles["web"])))
    in_live = sql.SQL("IN SCHEMA {}").format(sql.Identifier(LIVE))
    conn.execute(defaults.format(pipeline, in_live, sql.Identifier(roles["reader"])))
    for grant in state_grants(conn, roles):
        conn.execute(grant.statement())
    regrant(conn, roles, django)


@contextmanager
def _administering(conn: psycopg.Connection, roles: Roles) -> Iterator[None]:
    """Create missing roles. Within the context, a connection's role that is not a superuser is a member of all of them,
    because only a member may give an object to a role."""
    row = conn.execute(ADMIN).fetchone()
    assert row is not None
    admin, is_superuser, may_create = row
    if not may_create:
        raise RolesError(
            f"roles: {admin!r} may not create roles; connect as a superuser, or as a role with CREATEROLE that owns "
            "the database and its existing tables"
        )
    for name in absent(conn, roles):
        conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    names = [] if is_superuser else list(map(sql.Identifier, roles.names))
    for role in names:
        conn.execute(sql.SQL("GRANT {} TO CURRENT_USER WITH INHERIT TRUE, SET TRUE").format(role))
    yield
    for role in names:
        conn.execute(sql.SQL("REVOKE {} FROM CURRENT_USER GRANTED BY CURRENT_USER").format(role))


def _others(
    conn: psycopg.Connection, roles: Roles, django: DjangoTables
) -> Iterator[tuple[LiteralString, str | None, str, str, str]]:
    """Yield the objects that have the wrong owner: kind, schema, name, present owner and right owner."""
    schemas = [LEDGER, *STATE_SCHEMAS, SOURCES]
    given = {"schemas": schemas, "tables": list(django.names), "django": list(DJANGO_SCHEMAS)}
    for kind, schema, name, now in conn.execute(OWNED, given).fetchall():
        is_owners = (schema or name) not in (*STATE_SCHEMAS, SOURCES)
        new = roles["owner"] if is_owners else roles["pipeline"]
        if now != new:
            yield kind, schema, name, now, new


def _alter_owner(kind: LiteralString, schema: str | None, name: str, owner: str) -> sql.Composed:
    # Not an identifier, because PostgreSQL has already quoted a function's name with its arguments.
    words: Any = name
    called = sql.SQL(words) if kind == "FUNCTION" else sql.Identifier(*([schema] if schema else []), name)
    return sql.SQL("ALTER {} {} OWNER TO {}").format(sql.SQL(kind), called, sql.Identifier(owner))


def set_password(conn: psycopg.Connection, role: str, password: str) -> None:
    """Set a role's password, hashed here, so that no log of the server has it."""
    hashed = conn.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    conn.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(hashed)))


def _schemas(conn: psycopg.Connection) -> set[str]:
    return {name for (name,) in conn.execute("SELECT nspname FROM pg_namespace")}


def _shown(schema: str | None, name: str) -> str:
    return f"{schema}.{name}" if schema and "(" not in name else name


def _value(conn: psycopg.Connection, query: LiteralString, parameters: Any) -> bool:
    row = conn.execute(query, parameters).fetchone()
    return bool(row and row[0])

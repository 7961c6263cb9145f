"""Privileges: who owns a table or view and what has been granted on it, so that its successor gets the same."""

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

# A null column: on the whole. Grantee 0 is everybody.
GRANTS = """
SELECT grants.column_name, grants.privilege, r.rolname, grants.grantable FROM (
    SELECT NULL::name AS column_name, a.privilege_type AS privilege, a.grantee, a.is_grantable AS grantable
    FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = to_regclass(%(name)s)
    UNION ALL
    SELECT t.attname, a.privilege_type, a.grantee, a.is_grantable
    FROM pg_attribute t, aclexplode(t.attacl) a WHERE t.attrelid = to_regclass(%(name)s) AND NOT t.attisdropped
) grants LEFT JOIN pg_roles r ON r.oid = grants.grantee
"""

OWNER = """
SELECT r.rolname, c.relacl IS NULL, c.relkind = 'v', c.reloptions FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
WHERE c.oid = to_regclass(%(name)s)
"""

COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%(name)s) AND attnum > 0 AND NOT attisdropped"

Grant = tuple[str | None, str, str | None, bool]


@dataclass(frozen=True)
class Privileges:
    """owner: a role. is_default: nothing was ever granted. grants: column, privilege, role (None: PUBLIC), grantable.

    options: of a view, such as `security_invoker=true`.
    """

    owner: str
    is_default: bool
    is_view: bool
    options: list[str]
    grants: list[Grant]


def read(conn: psycopg.Connection, name: sql.Identifier) -> Privileges | None:
    """Return the privileges on a table or view; None if it does not exist."""
    given = {"name": name.as_string(conn)}
    row = conn.execute(OWNER, given).fetchone()
    if row is None:
        return None
    owner, is_default, is_view, options = row
    return Privileges(owner, is_default, is_view, options or [], conn.execute(GRANTS, given).fetchall())


def restore(conn: psycopg.Connection, name: sql.Identifier, kept: Privileges | None) -> None:
    """Give a table or view the owner and the grants of the one that it replaces; None: leave it as it was created.

    Grants on columns that it does not have are left out.
    """
    made = read(conn, name)
    if kept is None or made is None:
        return
    if made.owner != kept.owner:
        kind = sql.SQL("VIEW" if made.is_view else "TABLE")
        conn.execute(sql.SQL("ALTER {} {} OWNER TO {}").format(kind, name, sql.Identifier(kept.owner)))
    for role in {role for _, _, role, _ in made.grants if not (kept.is_default and role == made.owner)}:
        conn.execute(sql.SQL("REVOKE ALL ON TABLE {} FROM {}").format(name, _role(role)))
    columns = {column for (column,) in conn.execute(COLUMNS, {"name": name.as_string(conn)})}
    for grant in kept.grants:
        if grant[0] is None or grant[0] in columns:
            conn.execute(_grant(name, *grant))


def _grant(name: sql.Identifier, column: str | None, privilege: str, role: str | None, grantable: bool) -> sql.Composed:
    words: Any = privilege  # one of PostgreSQL's own words, from its catalog
    return sql.SQL("GRANT {}{} ON TABLE {} TO {}{}").format(
        sql.SQL(words),
        sql.SQL("") if column is None else sql.SQL(" ({})").format(sql.Identifier(column)),
        name,
        _role(role),
        sql.SQL(" WITH GRANT OPTION" if grantable else ""),
    )


def _role(role: str | None) -> sql.Composable:
    return sql.SQL("PUBLIC") if role is None else sql.Identifier(role)

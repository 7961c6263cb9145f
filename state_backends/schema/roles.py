"""Database roles: which roles the processes of an installation connect as, and what each may do.

    owner     owns the schema `tidegauge` and Django's tables; runs `migrate`
    pipeline  owns the tables, views and changelogs of states; drivers and their tasks
    web       reads states, writes Django's tables and requests; web and events processes
    worker    may do what pipeline and web may; Celery workers and commands of operators
    reader    reads the live views, and may call `tidegauge.tile_start`; people with SQL

Roles belong to a cluster of databases, so the names begin with a prefix, `tidegauge` by default: two installations in
one cluster take two. An installation without roles runs as one user, and nothing here applies to it.

State tables are created and dropped while pipelines run. Tables that pipeline creates get their grants by default
privileges, and another role creates tables as the schema's owner (`as_owner`). A table or view that replaces another
one gets the grants of that one (backends/postgres/privileges.py).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import LiteralString, NamedTuple

import psycopg
from psycopg import sql

from tidegauge.state_backends.spec.table import KEPT_SCHEMAS, SCHEMAS, SHADOW_SCHEMAS

PARTS = ("owner", "pipeline", "web", "worker", "reader")
PREFIX = "tidegauge"

LEDGER, LIVE = "tidegauge", "tidegauge_live"
SOURCES = "tidegauge_source"  # first copies of PostgresChanges; see pipelines/sources/postgres/copy.py
STATE_SCHEMAS = (*SCHEMAS, LIVE, *SHADOW_SCHEMAS, *KEPT_SCHEMAS)

READ: tuple[LiteralString, ...] = ("SELECT",)
WRITE: tuple[LiteralString, ...] = ("SELECT", "INSERT", "UPDATE", "DELETE")
APPEND: tuple[LiteralString, ...] = ("SELECT", "INSERT")

# Where Django's tables are. If an installation's only user is called `tidegauge`, some are in the schema of that name,
# because it is first on that user's search path.
DJANGO_SCHEMAS = ("public", LEDGER)
SEARCH_PATH = '"$user", public, tidegauge'

# What web does with the ledger's tables besides reading: requests, and the list of running processes.
WEB_WRITES: dict[str, tuple[LiteralString, ...]] = {
    "maintenance_run": ("INSERT", "UPDATE"),
    "pipeline_wish": ("INSERT", "UPDATE"),
    "synchronizer": ("INSERT", "UPDATE"),
    "synchronizer_log": ("INSERT", "DELETE"),
}
WEB_UPDATES: dict[str, tuple[str, ...]] = {
    "state": ("ttl", "declared", "edits"),
    "dead_letter": ("replay_at", "replay_by"),
}
# Tables of the ledger that only owner writes.
OWNERS_ALONE = ("schema_version",)

LEDGER_TABLES = """
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = to_regnamespace('tidegauge') AND c.relkind IN ('r', 'p') AND c.relname <> ALL(%s) ORDER BY 1
"""
LIVE_VIEWS = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('tidegauge_live') AND relkind = 'v'"
TABLES_IN = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p', 'v') ORDER BY 1, 2
"""

# Not a cast to regclass, because that needs the privilege to use the schema.
TABLE_OID: LiteralString = (
    "(SELECT x.oid FROM pg_class x WHERE x.relname = %(name)s AND x.relnamespace = "
    "(SELECT oid FROM pg_namespace WHERE nspname = %(schema)s))"
)

# The owner of a schema, if it is another role than the current one, which may switch to it.
SCHEMA_OWNER = """
SELECT r.rolname, current_setting('role') FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
WHERE n.nspname = %s AND r.rolname <> current_user AND pg_has_role(current_user, r.oid, 'SET')
"""
OWNER = "SELECT r.rolname FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner WHERE n.nspname = 'tidegauge'"


@dataclass(frozen=True)
class Roles:
    """The names of an installation's roles."""

    prefix: str = PREFIX

    def __getitem__(self, part: str) -> str:
        return f"{self.prefix}_{part}"

    @property
    def names(self) -> list[str]:
        return [self[part] for part in PARTS]


@dataclass(frozen=True)
class DjangoTables:
    """Tables of the web application. names: all of them. read_only, append_only: those that web does not change."""

    names: Sequence[str] = ()
    read_only: Sequence[str] = ()
    append_only: Sequence[str] = ()

    def places(self, conn: psycopg.Connection) -> list[tuple[str, str]]:
        """Return schema and name of those that exist."""
        found = conn.execute(TABLES_IN, [list(DJANGO_SCHEMAS)]).fetchall()
        return [(schema, name) for schema, name in found if name in self.names]


class Grant(NamedTuple):
    """Privileges of a role on one object. kind: `DATABASE`, `SCHEMA` or `TABLE`. columns: of a table; empty for all."""

    role: str
    kind: LiteralString
    name: tuple[str, ...]
    privileges: tuple[LiteralString, ...]
    columns: tuple[str, ...] = ()

    def statement(self) -> sql.Composed:
        columns = sql.SQL(" ({})").format(sql.SQL(", ").join(map(sql.Identifier, self.columns)))
        return sql.SQL("GRANT {} ON {} {} TO {}").format(
            sql.SQL(", ").join(
                sql.SQL("{}{}").format(sql.SQL(privilege), columns if self.columns else sql.SQL(""))
                for privilege in self.privileges
            ),
            sql.SQL(self.kind),
            sql.Identifier(*self.name),
            sql.Identifier(self.role),
        )

    def missing(self, conn: psycopg.Connection) -> list[str]:
        """Return the privileges that the role lacks, such as `SELECT on table tidegauge.batch`."""
        if self.columns:
            asked = sql.SQL("has_column_privilege(%(role)s, {}, c, p)")
        else:
            asked = sql.SQL(f"has_{self.kind.lower()}_privilege(%(role)s, {{}}, p)")
        rows = conn.execute(
            sql.SQL(
                "SELECT DISTINCT p FROM unnest(%(privileges)s::text[]) p, unnest(%(columns)s::text[]) c "
                "WHERE NOT {} ORDER BY p"
            ).format(asked.format(sql.SQL(TABLE_OID if self.kind == "TABLE" else "%(name)s"))),
            {
                "role": self.role,
                "schema": self.name[0],
                "name": self.name[-1],
                "privileges": list(self.privileges),
                "columns": list(self.columns) or [""],
            },
        )
        return [f"{privilege} on {self.kind.lower()} {'.'.join(self.name)}" for (privilege,) in rows]


def of_database(conn: psycopg.Connection) -> Roles | None:
    """Return the roles that this database was set up with, by the owner of the schema `tidegauge`; None if without."""
    row = conn.execute(OWNER).fetchone()
    if row is None or not row[0].endswith("_owner"):
        return None
    roles = Roles(row[0].removesuffix("_owner"))
    return None if absent(conn, roles) else roles


@contextmanager
def as_owner(conn: psycopg.Connection, schema: str) -> Iterator[None]:
    """Open a transaction as the role that owns the schema, if the current role may switch to it.

    So a table has the same owner and default privileges, whichever role creates it.
    """
    with conn.transaction():
        row = conn.execute(SCHEMA_OWNER, [schema]).fetchone()
        if row is None:
            yield
            return
        owner, before = row
        conn.execute("SELECT set_config('role', %s, true)", [owner])
        yield
        conn.execute("SELECT set_config('role', %s, true)", [before])


def regrant(conn: psycopg.Connection, roles: Roles, django: DjangoTables) -> None:
    """Reset the privileges on the tables of the ledger and the web application to exactly those of the roles.

    Run by owner at each `migrate`, which may have created tables, and by `set_up`. In the caller's transaction.
    """
    tables = [(LEDGER, name) for (name,) in conn.execute(LEDGER_TABLES, [list(django.names)])]
    tables += django.places(conn)
    others = sql.SQL(", ").join(sql.Identifier(name) for name in roles.names if name != roles["owner"])
    for table in tables:
        conn.execute(sql.SQL("REVOKE ALL ON TABLE {} FROM {}").format(sql.Identifier(*table), others))
    for grant in table_grants(conn, roles, django):
        conn.execute(grant.statement())


def table_grants(conn: psycopg.Connection, roles: Roles, django: DjangoTables) -> list[Grant]:
    """Return the privileges on the tables that owner owns."""
    grants = [Grant(roles[part], "SCHEMA", (LEDGER,), ("USAGE",)) for part in ("pipeline", "web", "reader")]
    for (name,) in conn.execute(LEDGER_TABLES, [list(django.names)]).fetchall():
        table = (LEDGER, name)
        grants.append(Grant(roles["pipeline"], "TABLE", table, READ if name in OWNERS_ALONE else WRITE))
        grants.append(Grant(roles["web"], "TABLE", table, (*READ, *WEB_WRITES.get(name, ()))))
        if name in WEB_UPDATES:
            grants.append(Grant(roles["web"], "TABLE", table, ("UPDATE",), WEB_UPDATES[name]))
    for table in django.places(conn):
        changed = APPEND if table[1] in django.append_only else WRITE
        grants.append(Grant(roles["web"], "TABLE", table, READ if table[1] in django.read_only else changed))
        if table[1] in django.append_only:
            grants.append(Grant(roles["worker"], "TABLE", table, ("DELETE",)))
    return grants


def database_grants(conn: psycopg.Connection, roles: Roles) -> list[Grant]:
    """Return the privileges on the database, and on the schema of Django's tables."""
    database = (conn.info.dbname,)
    grants = [Grant(name, "DATABASE", database, ("CONNECT",)) for name in roles.names]
    grants.append(Grant(roles["owner"], "DATABASE", database, ("CREATE",)))
    grants.append(Grant(roles["pipeline"], "DATABASE", database, ("TEMPORARY",)))
    grants.append(Grant(roles["owner"], "SCHEMA", ("public",), ("USAGE", "CREATE")))
    grants += [Grant(roles[part], "SCHEMA", ("public",), ("USAGE",)) for part in ("pipeline", "web")]
    return grants


def state_grants(conn: psycopg.Connection, roles: Roles) -> list[Grant]:
    """Return the privileges on the schemas of states, and on their tables and views."""
    grants = [Grant(roles["reader"], "SCHEMA", (LIVE,), ("USAGE",))]
    grants += [Grant(roles["web"], "SCHEMA", (schema,), ("USAGE",)) for schema in (*SCHEMAS, LIVE)]
    for schema, name in conn.execute(TABLES_IN, [list(STATE_SCHEMAS)]).fetchall():
        grants.append(Grant(roles["web"], "TABLE", (schema, name), READ))
    grants += [Grant(roles["reader"], "TABLE", (LIVE, name), READ) for (name,) in conn.execute(LIVE_VIEWS)]
    return grants


def absent(conn: psycopg.Connection, roles: Roles) -> list[str]:
    """Return the names of roles that do not exist."""
    there = {name for (name,) in conn.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", [roles.names])}
    return [name for name in roles.names if name not in there]

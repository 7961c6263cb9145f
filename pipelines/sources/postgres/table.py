"""A PostgreSQL table to be read as a stream: its columns, its key, and whether its changes can be published."""

from dataclasses import dataclass

import psycopg
from psycopg import sql
from pyspark.sql.types import StructType

from tidegauge.pipelines.errors import SourceSetupError

# PostgreSQL's full name of a type to Spark's short one. There are more types than in states, because these are users'
# own tables. Every other type is read as the text that PostgreSQL writes.
SPARK_TYPES = {
    "boolean": "boolean",
    "smallint": "short",
    "integer": "integer",
    "bigint": "long",
    "real": "float",
    "double precision": "double",
    "date": "date",
    "timestamp without time zone": "timestamp_ntz",
    "timestamp with time zone": "timestamp",
    "bytea": "binary",
}
MAX_DECIMAL_DIGITS = 38  # of Spark's decimals

# A domain is read as its base type. Generated columns are left out, because they are not in the log.
COLUMNS = """
SELECT a.attname, format_type(coalesce(nullif(t.typbasetype, 0), a.atttypid),
                              CASE WHEN t.typbasetype <> 0 THEN t.typtypmod ELSE a.atttypmod END)
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
 ORDER BY a.attnum
"""
KEY = """
SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
 WHERE i.indrelid = %s AND i.indisprimary ORDER BY array_position(i.indkey::smallint[], a.attnum)
"""
# Of the table and of all its partitions.
WITHOUT_IDENTITY = """
SELECT c.oid::regclass::text
  FROM pg_class c
 WHERE (c.oid = %(table)s::regclass OR c.oid IN (SELECT relid FROM pg_partition_tree(%(table)s)))
   AND c.relkind = 'r' AND (c.relreplident = 'n' OR c.relreplident = 'd' AND NOT EXISTS (
       SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))
"""


OTHER_IDENTITY = """
SELECT c.oid::regclass::text
  FROM pg_class c
 WHERE (c.oid = %(table)s::regclass OR c.oid IN (SELECT relid FROM pg_partition_tree(%(table)s)))
   AND c.relkind = 'r' AND position(c.relreplident in %(kinds)s) = 0 ORDER BY 1
"""


@dataclass(frozen=True)
class Table:
    """columns: name to PostgreSQL's type, in order, without generated ones. key: the primary key, or empty."""

    schema: str
    name: str
    columns: dict[str, str]
    key: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    def spark_schema(self) -> StructType:
        schema = StructType()
        for name, kind in self.columns.items():
            schema = schema.add(name, spark_type(kind))
        return schema


def find_table(conn: psycopg.Connection, name: str) -> Table:
    """Return a table's definition. Raises SourceSetupError if it does not exist, or is a view or the like."""
    row = conn.execute(
        "SELECT c.oid, n.nspname, c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.oid = to_regclass(%s)",
        [name],
    ).fetchone()
    if row is None:
        raise SourceSetupError(f"table {name!r}: does not exist in the database; write it as schema.table")
    oid, schema, relation, kind = row
    if kind not in ("r", "p"):
        raise SourceSetupError(f"{name!r} is not a table, and only tables have changes; read the tables it is made of")
    columns: dict[str, str] = dict(conn.execute(COLUMNS, [oid]).fetchall())
    return Table(schema, relation, columns, tuple(column for (column,) in conn.execute(KEY, [oid])))


def column_types(conn: psycopg.Connection, table: Table) -> dict[str, str]:
    """Return the columns of a table as they are now, name to type."""
    row = conn.execute("SELECT to_regclass(%s)::oid", [table.identifier.as_string(conn)]).fetchone()
    return dict(conn.execute(COLUMNS, [row and row[0]]).fetchall())


def check_identity(conn: psycopg.Connection, table: Table) -> None:
    """Raise SourceSetupError if publishing the table would make its own updates and deletes fail."""
    without = conn.execute(WITHOUT_IDENTITY, {"table": table.identifier.as_string(conn)}).fetchall()
    if without:
        names = ", ".join(name for (name,) in without)
        raise SourceSetupError(
            f"table {str(table)!r}: {names} has no replica identity, so PostgreSQL would refuse updates and deletes "
            "once changes are published; give it a primary key, or ALTER TABLE .. REPLICA IDENTITY FULL"
        )


def check_old_rows(conn: psycopg.Connection, table: Table, *, full: bool) -> None:
    """Raise SourceSetupError unless the log has the whole old row of every change, or without `full` its key."""
    identities = "f" if full else "fd"
    others = conn.execute(OTHER_IDENTITY, {"table": table.identifier.as_string(conn), "kinds": identities}).fetchall()
    names = ", ".join(name for (name,) in others)
    if full and others:
        raise SourceSetupError(
            f"table {str(table)!r}: old_rows='full' needs the old rows in the log; run ALTER TABLE {names} "
            "REPLICA IDENTITY FULL, or read old_rows='key' and keep the rows in a state using with_old_rows()"
        )
    if others or not (full or table.key):
        raise SourceSetupError(
            f"table {str(table)!r}: old_rows='key' needs a primary key in the log of {names or 'the table'}; give it "
            "one, with REPLICA IDENTITY DEFAULT, or read old_rows='full' with REPLICA IDENTITY FULL"
        )


def spark_type(kind: str) -> str:
    """Return the Spark type that holds all values of a PostgreSQL type, or `string`."""
    if kind.startswith("numeric("):
        digits, _, scale = kind.removeprefix("numeric(").removesuffix(")").partition(",")
        if int(digits) <= MAX_DECIMAL_DIGITS and 0 <= int(scale or 0) <= int(digits):
            return f"decimal({int(digits)},{int(scale or 0)})"
    return SPARK_TYPES.get(kind, "string")

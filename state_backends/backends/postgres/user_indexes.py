"""Indexes that users have made on a state's tables, so that the tables that replace those get the same."""

from typing import Any

import psycopg
from psycopg import sql

# Those of the table itself: what is made on it is made on its partitions, too.
INDEXES = """
SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass(%(table)s) AND i.indisvalid AND c.relname <> ALL (%(own)s::text[]) ORDER BY c.relname
"""


def read(conn: psycopg.Connection, table: sql.Identifier, own: list[str]) -> list[str]:
    """Return the definitions of a table's indexes. own: the names of Tidegauge's."""
    return [text for (text,) in conn.execute(INDEXES, {"table": table.as_string(conn), "own": own})]


def restore(conn: psycopg.Connection, definitions: list[str]) -> None:
    """Create the indexes on the table that has come in place of the one that had them.

    Raises psycopg.errors.UndefinedColumn where it lacks a column of theirs.
    """
    for text in definitions:
        # PostgreSQL describes that of a partitioned table as one of the table without its partitions.
        made: Any = text.replace(" ON ONLY ", " ON ", 1)
        conn.execute(sql.SQL(made))

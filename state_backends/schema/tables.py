"""SQL that creates and extends the changelog of a state, and column definitions that the state's table uses as well.

A changelog is a table in the ledger's database, whatever backend keeps the rows.
"""

from collections.abc import Iterable
from typing import LiteralString

import psycopg
from psycopg import sql

from tidegauge.state_backends.schema.roles import as_owner
from tidegauge.state_backends.spec.table import StateTable, columns, commas


def create_changelog(conn: psycopg.Connection, table: StateTable) -> None:
    with as_owner(conn, table.schemas[1]):
        conn.execute(_create_changelog(table))
        conn.execute(_create_txid_index(table))


def drop_changelog(conn: psycopg.Connection, table: StateTable) -> None:
    conn.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table.changelog))


def rename_changelog(conn: psycopg.Connection, old: StateTable, new: StateTable) -> None:
    conn.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(old.changelog, sql.Identifier(new.spec.name)))


def extend_changelog(conn: psycopg.Connection, table: StateTable, names: Iterable[str]) -> None:
    """Add value columns. Earlier entries have nulls in them, which every fold ignores."""
    for name in names:
        conn.execute(add_column(table.changelog, name, table.values[name]))


def _create_txid_index(table: StateTable) -> sql.Composed:
    # BRIN, because a batch's entries are next to each other. PostgreSQL chooses the name, because a fixed one could be
    # taken. New pages are summarised as they fill up, because a vacuum may be a fifth of the table away.
    return sql.SQL("CREATE INDEX ON {} USING brin (txid) WITH (autosummarize = on)").format(table.changelog)


def define(name: str, sql_type: LiteralString, constraint: LiteralString = "") -> sql.Composed:
    # Byte order, because every backend has it, and because it is the faster one.
    collation: LiteralString = ' COLLATE "C"' if sql_type == "text" else ""
    default: LiteralString = " DEFAULT true CHECK (singleton)" if name == "singleton" else ""
    return sql.SQL("{} {}{} {}{}").format(
        sql.Identifier(name), sql.SQL(sql_type), sql.SQL(collation), sql.SQL(constraint), sql.SQL(default)
    )


def add_column(table: sql.Identifier, name: str, sql_type: LiteralString) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {}").format(table, define(name, sql_type))


def _create_changelog(table: StateTable) -> sql.Composed:
    body = [define(name, kind, "NOT NULL") for name, kind in table.key.items()]
    body += [define(name, kind) for name, kind in table.values.items()]
    return sql.SQL(
        "CREATE TABLE {} ({}, removed boolean NOT NULL, updated_at timestamptz NOT NULL, "
        "txid bigint NOT NULL, PRIMARY KEY ({}, txid))"
    ).format(table.changelog, commas(body), columns(table.key))

"""Create, extend and drop the table, the view and the changelog of one state."""

from collections.abc import Iterable
from typing import LiteralString

import psycopg
from psycopg import sql

from state_backends.table import StateTable, columns, commas
from state_backends.visible import visible_columns, visible_row

# Room for a second version of every row on its page, so that updates stay HOT (99.9 % measured at 50).
FILL_FACTOR = 50


def create(conn: psycopg.Connection, table: StateTable) -> None:
    """Create the state's table, view and changelog. A relation of that name that is there already is an error."""
    with conn.transaction():
        conn.execute(_create_table(table))
        for partition in range(table.spec.partitions if table.spec.partitions > 1 else 0):
            conn.execute(_create_partition(table, partition))
        if table.keeps_txid:
            conn.execute(_brin(table.name))
        if table.spec.changelog:
            conn.execute(_create_changelog(table))
            conn.execute(_brin(table.changelog))
        replace_view(conn, table)


def add_columns(conn: psycopg.Connection, table: StateTable, names: Iterable[str]) -> None:
    """Add value columns that a new measure needs; rows written before hold nulls, which every fold takes as nothing."""
    with conn.transaction():
        for name in names:
            conn.execute(_add_column(table.name, name, table.values[name]))
            if table.keeps_previous:
                conn.execute(_add_column(table.name, f"prev_{name}", table.values[name]))
            if table.spec.changelog:
                conn.execute(_add_column(table.changelog, name, table.values[name]))
        replace_view(conn, table)


def drop(conn: psycopg.Connection, table: StateTable) -> None:
    with conn.transaction():
        conn.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(table.live_view))
        conn.execute(sql.SQL("DROP TABLE IF EXISTS {}, {}").format(table.name, table.changelog))


def replace_view(conn: psycopg.Connection, table: StateTable) -> None:
    """Make `tidemark_live.<name>`: committed, unexpired rows with their measures finished."""
    conn.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(table.live_view))
    conn.execute(
        sql.SQL(
            "CREATE VIEW {view} AS SELECT {columns} FROM {rows} v "
            "WHERE tidemark.is_live(v.removed, v.updated_at, v.ttl, now())"
        ).format(
            view=table.live_view,
            columns=commas([*_view_columns(table), sql.SQL("v.txid, v.updated_at")]),
            rows=visible_row(table),
        )
    )


def _view_columns(table: StateTable) -> list[sql.Composed]:
    finished = visible_columns(table.spec, "v")
    return [columns(table.spec.key, "v")] * bool(table.spec.key) + [
        sql.SQL("{} AS {}").format(expression, sql.Identifier(name)) for name, expression in finished.items()
    ]


def _create_table(table: StateTable) -> sql.Composed:
    body: list[sql.Composable] = [_define(name, kind, "NOT NULL") for name, kind in table.key.items()]
    body += [_define(name, kind) for name, kind in table.values.items()]
    body += [sql.SQL("removed boolean NOT NULL DEFAULT false, updated_at timestamptz NOT NULL")]
    if table.keeps_txid:
        body.append(sql.SQL("txid bigint NOT NULL"))
    if table.keeps_previous:
        body += [_define(f"prev_{name}", kind) for name, kind in table.version.items()]
        body.append(sql.SQL("prev_txid bigint"))
    body.append(sql.SQL("PRIMARY KEY ({})").format(columns(table.key)))
    partitioned = table.spec.partitions > 1
    tail = (
        sql.SQL("PARTITION BY HASH ({})").format(columns(table.key))
        if partitioned
        else sql.SQL("WITH (fillfactor = {})").format(sql.Literal(FILL_FACTOR))
    )
    return sql.SQL("CREATE TABLE {} ({}) {}").format(table.name, commas(body), tail)


def _create_partition(table: StateTable, partition: int) -> sql.Composed:
    return sql.SQL(
        "CREATE TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS {}, REMAINDER {}) WITH (fillfactor = {})"
    ).format(
        sql.Identifier("tidemark_state", f"{table.spec.name}_p{partition}"),
        table.name,
        sql.Literal(table.spec.partitions),
        sql.Literal(partition),
        sql.Literal(FILL_FACTOR),
    )


def _create_changelog(table: StateTable) -> sql.Composed:
    body = [_define(name, kind, "NOT NULL") for name, kind in table.key.items()]
    body += [_define(name, kind) for name, kind in table.values.items()]
    return sql.SQL(
        "CREATE TABLE {} ({}, removed boolean NOT NULL, updated_at timestamptz NOT NULL, "
        "txid bigint NOT NULL, PRIMARY KEY ({}, txid))"
    ).format(table.changelog, commas(body), columns(table.key))


def _brin(table: sql.Identifier) -> sql.Composed:
    # Summarising indexes leave updates HOT, and recovery finds a batch's rows without reading the whole table.
    # PostgreSQL names it, as no name is free for sure: an index shares its names with the states' tables.
    return sql.SQL("CREATE INDEX ON {} USING brin (txid)").format(table)


def _define(name: str, sql_type: LiteralString, constraint: LiteralString = "") -> sql.Composed:
    # Byte order is the order of every backend, and the faster one.
    collation: LiteralString = ' COLLATE "C"' if sql_type == "text" else ""
    default: LiteralString = " DEFAULT true CHECK (singleton)" if name == "singleton" else ""
    return sql.SQL("{} {}{} {}{}").format(
        sql.Identifier(name), sql.SQL(sql_type), sql.SQL(collation), sql.SQL(constraint), sql.SQL(default)
    )


def _add_column(table: sql.Identifier, name: str, sql_type: LiteralString) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {}").format(table, _define(name, sql_type))

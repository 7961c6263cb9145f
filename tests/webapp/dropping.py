"""Removal of a state's tables, for tests whose work outlives its transaction."""

import psycopg
from psycopg import sql

from state_backends.table import StateTable


def drop_tables(conn: psycopg.Connection, table: StateTable) -> None:
    with conn.transaction():
        conn.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(table.live_view))
        conn.execute(sql.SQL("DROP TABLE IF EXISTS {}, {}").format(table.name, table.changelog))

"""Rewrite: copy a state into a table of another shape, chunk by chunk, then put it in place of the old one.

Readers go on with the old table until the swap, which is part of the caller's transaction. The caller holds the
pipeline, so nobody writes meanwhile; killed in the middle it leaves the old state whole, and the next try starts over.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import psycopg
from psycopg import sql

from state_backends.committed import rows_and_ledger
from state_backends.schema import tables
from state_backends.table import StateTable, columns

# Rows per transaction: about 0.2 s of work here.
CHUNK_ROWS = 50_000


def copy_rows(conn: psycopg.Connection, old: StateTable, new: StateTable) -> Iterator[int]:
    """Fill the shadow of `new` with the rows of `old`, a chunk per transaction. Yields the rows copied so far.

    A changelog that `old` lacks begins with what is committed; one that it has is copied as it is.
    """
    shadow = new.shadow()
    tables.drop_shadow(conn, shadow)
    tables.create_rows(conn, shadow)
    copied = 0
    for rows in chain(_copy_state(conn, old, shadow), _copy_changelog(conn, old, shadow)):
        copied += rows
        yield copied


def _copy_state(conn: psycopg.Connection, old: StateTable, shadow: StateTable) -> Iterator[int]:
    return _copy(conn, old.name, shadow.name, list(old.key), [*old.key, *old.row])


def _copy_changelog(conn: psycopg.Connection, old: StateTable, shadow: StateTable) -> Iterator[int]:
    if not shadow.spec.changelog:
        return iter(())
    entry = [*old.key, *old.version, "txid"]
    if old.spec.changelog:
        return _copy(conn, old.changelog, shadow.changelog, [*old.key, "txid"], entry)
    return _copy(conn, rows_and_ledger(old), shadow.changelog, list(old.key), entry)


def _copy(
    conn: psycopg.Connection,
    source: sql.Composable,
    target: sql.Identifier,
    order: Sequence[str],
    copied: Sequence[str],
) -> Iterator[int]:
    last: Sequence[object] = ()
    while True:
        after = sql.SQL("({}) > ({})").format(columns(order, "t"), sql.SQL(", ").join([sql.Placeholder()] * len(last)))
        statement = sql.SQL(
            "WITH page AS MATERIALIZED (SELECT {copied} FROM {source} t WHERE {after} "
            "ORDER BY {order} LIMIT {rows}), "
            "copied AS (INSERT INTO {target} ({copied}) SELECT {copied} FROM page) "
            "SELECT count(*) OVER (), {order} FROM page ORDER BY {descending} LIMIT 1"
        ).format(
            copied=columns(copied),
            source=source,
            after=after if last else sql.SQL("true"),
            order=columns(order),
            rows=sql.Literal(CHUNK_ROWS),
            target=target,
            descending=sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(name)) for name in order),
        )
        row = conn.execute(statement, last).fetchone()
        if row is None:
            return
        rows, *last = row
        yield rows


def swap(conn: psycopg.Connection, old: StateTable, new: StateTable) -> None:
    """Put the shadow of `new` in place of `old`. Runs inside the caller's transaction."""
    tables.drop(conn, old)
    tables.show_shadow(conn, new.shadow())
    tables.replace_view(conn, new)

"""Rewind of a state's table: the keys that later batches changed get the versions back that they had, set by set."""

import psycopg
from psycopg import sql

from tidegauge.state_backends.spec.table import StateTable, columns, commas

CHANGED = sql.Identifier("changed")

# The newest two versions of a changed key up to a batch; the first of these joins leaves out a key that had none.
VERSIONS = sql.SQL(
    "CROSS JOIN LATERAL (SELECT c.* FROM {log} c WHERE {same} AND c.txid <= {to} ORDER BY c.txid DESC LIMIT 1) v "
    "LEFT JOIN LATERAL (SELECT c.* FROM {log} c WHERE {same} AND c.txid < v.txid ORDER BY c.txid DESC LIMIT 1) p "
    "ON true"
)


def take_back(conn: psycopg.Connection, table: StateTable, to: int) -> int:
    """Give the keys that changed after batch `to` the versions that the changelog has of then. Returns their number.

    Runs in the caller's transaction. A key that had no version by then goes.
    """
    conn.execute(
        sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT DISTINCT {} FROM {} WHERE txid > {}").format(
            CHANGED, columns(table.key), table.changelog, sql.Literal(to)
        )
    )
    changed = conn.execute(
        sql.SQL("DELETE FROM {} t USING {} k WHERE {}").format(table.name, CHANGED, table.same_key("k", "t"))
    ).rowcount
    conn.execute(_insert_sql(table, to))
    conn.execute(sql.SQL("DROP TABLE {}").format(CHANGED))
    return changed


def _insert_sql(table: StateTable, to: int) -> sql.Composed:
    parts = [columns(table.key, "k"), columns(table.version, "v")]
    if table.keeps_txid:
        parts.append(sql.SQL("v.txid"))  # type: ignore[arg-type]
    if table.keeps_previous:
        parts += [columns(table.version, "p"), sql.SQL("p.txid")]  # type: ignore[list-item]
    return sql.SQL("INSERT INTO {table} ({names}) SELECT {parts} FROM {changed} k {versions}").format(
        table=table.name,
        names=columns([*table.key, *table.row]),
        parts=commas(parts),
        changed=CHANGED,
        versions=VERSIONS.format(log=table.changelog, same=table.same_key("k", "c"), to=sql.Literal(to)),
    )

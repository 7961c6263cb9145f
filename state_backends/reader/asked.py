"""Asked: the keys of a question, each beside the version of its row that a reader sees, and what became of it.

Shared by lookups, which answer key by key, and by combine, which folds them into one. Both give a FROM clause with the
keys as `k`, their versions as `v`, nulls where there is none, and `r.status`: `found`, `missing` or `expired`.
"""

from psycopg import sql

from state_backends.committed import NOW, THEN, TTL, committed_columns, exists_at_commit, live_sql, row_then
from state_backends.table import StateTable


def asked_now(table: StateTable) -> sql.Composed:
    """Return the clause at the committed batch, over the rows `s` and `p` of state and ledger."""
    status = sql.SQL(
        "CASE WHEN t.{first} IS NULL OR NOT {exists} OR v.removed THEN 'missing' WHEN {live} THEN 'found' "
        "ELSE 'expired' END"
    ).format(first=sql.Identifier(next(iter(table.key))), exists=exists_at_commit(table), live=live_sql("v", TTL, NOW))
    return sql.SQL(
        "{keys} LEFT JOIN {table} t ON {same} CROSS JOIN LATERAL (SELECT {picked}) v "
        "CROSS JOIN LATERAL (SELECT {status} AS status) r"
    ).format(
        keys=table.unnest(with_ordinality=True),
        table=table.name,
        same=table.same_key("k", "t"),
        picked=committed_columns(table, table.version),
        status=status,
    )


def asked_then(table: StateTable) -> sql.Composed:
    """Return the clause as of an earlier batch, over `s` and the ledger then; REACH of `v` is from where it is told."""
    status = sql.SQL(
        "CASE WHEN coalesce(v.removed, true) THEN 'missing' WHEN {} THEN 'found' ELSE 'expired' END"
    ).format(live_sql("v", TTL, THEN))
    return sql.SQL(
        "{keys} LEFT JOIN LATERAL {version} v ON true CROSS JOIN LATERAL (SELECT {status} AS status) r"
    ).format(keys=table.unnest(with_ordinality=True), version=row_then(table), status=status)

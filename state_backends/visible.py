"""Visible: which version of a row a reader of the committed batch sees, and its measures finished, as SQL.

An opaque row carries two versions. A batch that is still open has the newer one, so the committed value is the one
before; no reader waits for a writer and none sees half a batch. The other kinds keep one version: their readers may
see rows of an open batch.
"""

from collections.abc import Iterable

from psycopg import sql

from state_backends.protocols import Aggregator
from state_backends.spec import StateSpec, stored_column
from state_backends.table import StateTable, columns, commas


def isolation(spec: StateSpec) -> str:
    """Return `committed` where readers see whole batches only, else `uncommitted`."""
    return "committed" if spec.kind == "opaque" else "uncommitted"


def chosen(name: str, keeps_previous: bool, row: str = "t", ledger: str = "p") -> sql.Composable:
    """Return the column of the version that is committed: the current one, or the one before."""
    current = sql.Identifier(row, name)
    if not keeps_previous:
        return current
    return sql.SQL("CASE WHEN {txid} <= {committed} THEN {current} ELSE {previous} END").format(
        txid=sql.Identifier(row, "txid"),
        committed=sql.Identifier(ledger, "committed_txid"),
        current=current,
        previous=sql.Identifier(row, f"prev_{name}"),
    )


def exists_at_commit(table: StateTable) -> sql.Composable:
    """Return the condition that row `t` had any version at the committed batch of ledger row `p`."""
    if not table.keeps_previous:
        return sql.SQL("true")
    return sql.SQL("(t.txid <= p.committed_txid OR t.prev_txid IS NOT NULL)")


def visible_row(table: StateTable) -> sql.Composed:
    """Return a sub-select of every row at the committed batch: key, stored columns, removed, updated_at, txid, ttl."""
    versioned = [*table.version, *(["txid"] if table.keeps_txid else [])]
    picked: list[sql.Composable] = [
        sql.SQL("{} AS {}").format(chosen(name, table.keeps_previous), sql.Identifier(name)) for name in versioned
    ]
    if not table.keeps_txid:
        picked.append(sql.SQL("NULL::bigint AS txid"))
    return sql.SQL(
        "(SELECT {key}, {picked}, s.ttl, p.committed_txid FROM {table} t "
        "JOIN tidemark.state s ON s.name = {name} JOIN tidemark.pipeline p ON p.name = s.pipeline WHERE {exists})"
    ).format(
        key=columns(table.key, "t"),
        picked=commas(picked),
        table=table.name,
        name=sql.Literal(table.spec.name),
        exists=exists_at_commit(table),
    )


def visible_columns(spec: StateSpec, row: str, only: Iterable[str] | None = None) -> dict[str, sql.Composable]:
    """Return measure name to finished SQL over the stored columns of `row`; a JSON state has one, `value`."""
    if not spec.measures:
        return {"value": sql.Identifier(row, "value")}
    return {
        measure: finished(measure, spec.measures[measure], row) for measure in (spec.measures if only is None else only)
    }


def finished(measure: str, aggregator: Aggregator, row: str) -> sql.Composed:
    stored = {
        f"stored_{suffix}" if suffix else "stored": sql.Identifier(row, stored_column(measure, suffix))
        for suffix in aggregator.columns
    }
    return sql.SQL(aggregator.finish_sql).format(**stored)

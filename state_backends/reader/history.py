"""History: the committed versions of one key, newest first, from the changelog or else from the row itself.

Compaction, expiry and later batches delete versions without a trace, so an answer says whether it is complete.
"""

from collections.abc import Sequence
from typing import LiteralString

from psycopg import sql

from state_backends.committed import answer_now, ledger_sql
from state_backends.reader.json_sql import json_value
from state_backends.table import StateTable, columns, commas, previous

# Every batch is recorded, and none after {txid} had a second attempt, whose revert may have removed a previous version.
NONE_REVERTED: LiteralString = (
    "NOT EXISTS (SELECT FROM tidemark.batch b WHERE b.pipeline = p.name AND b.txid > {txid} AND b.attempt > 1) "
    "AND (SELECT coalesce(min(b.txid), 1) FROM tidemark.batch b WHERE b.pipeline = p.name) = 1"
)

# For a row of another backend with one version, written by batch %s: whether it never had another version.
NEVER_ANOTHER = ledger_sql("s.oldest_txid = 0 AND " + NONE_REVERTED.format(txid="%s"))


def history_sql(table: StateTable, measures: Sequence[str], *, before: bool) -> sql.Composed:
    """Return the statement: COMMITTED_BATCH, the versions, their number, whether they are complete.

    before: whether only versions before a txid are wanted. Its parameters: the key, `key_repeats` times; that txid, if
    `before`; the number of versions; the state's name.
    """
    results = sql.SQL(
        "SELECT coalesce(json_agg(json_build_object('txid', v.txid, 'at', v.updated_at, "
        "'status', CASE WHEN v.removed THEN 'removed' ELSE 'found' END, "
        "'value', CASE WHEN NOT v.removed THEN {value} END) ORDER BY v.txid DESC), '[]') AS results, "
        "count(*) AS shown FROM (SELECT u.* FROM {versions} u WHERE {before} ORDER BY u.txid DESC LIMIT %s) v"
    ).format(
        value=json_value(table.spec, "v", measures),
        versions=_logged(table) if table.spec.changelog else _carried(table),
        before=sql.SQL("u.txid < %s" if before else "true"),
    )
    complete = sql.SQL("s.oldest_txid = 0") if table.spec.changelog else _never_another(table)
    return answer_now(results, sql.SQL("f.results::text, f.shown, {}").format(complete))


def key_repeats(table: StateTable) -> int:
    """Return how many times the parameters of `history_sql` repeat the key."""
    if table.spec.changelog:
        return 1
    return 3 if table.keeps_previous else 2


def _logged(table: StateTable) -> sql.Composed:
    return sql.SQL("(SELECT {} FROM {} t WHERE {} AND t.txid <= p.committed_txid)").format(
        columns([*table.version, "txid"], "t"), table.changelog, _this_key(table)
    )


def _carried(table: StateTable) -> sql.Composed:
    """Return the sub-select of the committed versions in the row itself: up to two."""
    if not table.keeps_txid:
        return sql.SQL("(SELECT {}, NULL::bigint AS txid FROM {} t WHERE {})").format(
            columns(table.version, "t"), table.name, _this_key(table)
        )
    current = _version(table, columns([*table.version, "txid"], "t"), "txid")
    if not table.keeps_previous:
        return sql.SQL("({})").format(current)
    before = _version(table, columns([*previous(table.version), "prev_txid"], "t"), "prev_txid")
    return sql.SQL("({} UNION ALL {})").format(current, before)


def _version(table: StateTable, version: sql.Composable, txid: LiteralString) -> sql.Composed:
    return sql.SQL("SELECT {} FROM {} t WHERE {} AND t.{} <= p.committed_txid").format(
        version, table.name, _this_key(table), sql.Identifier(txid)
    )


def _never_another(table: StateTable) -> sql.Composed:
    """Return the condition that the key never had a version other than those in its row."""
    another = sql.SQL("true")
    if table.keeps_previous:
        another = sql.SQL("t.prev_txid IS NOT NULL OR NOT (" + NONE_REVERTED.format(txid="t.txid") + ")")
    return sql.SQL("s.oldest_txid = 0 AND NOT EXISTS (SELECT FROM {} t WHERE {} AND ({}))").format(
        table.name, _this_key(table), another
    )


def _this_key(table: StateTable) -> sql.Composed:
    return sql.SQL("({}) = ({})").format(
        columns(table.key, "t"), commas(sql.SQL("%s::{}").format(sql.SQL(kind)) for kind in table.key.values())
    )

"""History: the committed versions of one key, newest first, from the changelog or else what the row still carries.

Nothing is left of a version that compaction, expiry or a later batch has taken away; so an answer says whether it is
all there ever was.
"""

from collections.abc import Sequence
from typing import LiteralString

from psycopg import sql

from state_backends.committed import answer_now, ledger_sql
from state_backends.reader.json_sql import json_value
from state_backends.table import StateTable, columns, commas, previous

# No batch behind the one of a row was tried again, whose revert may have taken the version before, and all are known.
NONE_UNDONE: LiteralString = (
    "NOT EXISTS (SELECT FROM tidemark.batch b WHERE b.pipeline = p.name AND b.txid > {txid} AND b.attempt > 1) "
    "AND (SELECT coalesce(min(b.txid), 1) FROM tidemark.batch b WHERE b.pipeline = p.name) = 1"
)

# Whether a row of another store that carries one version, written by batch %s, never had another.
NEVER_ANOTHER = ledger_sql("s.oldest_txid = 0 AND " + NONE_UNDONE.format(txid="%s"))


def history_sql(table: StateTable, measures: Sequence[str], *, before: bool) -> sql.Composed:
    """Return the statement: txid, attempt and time of the batch, the versions, how many, and whether none is gone.

    Its parameters: the key once, of a state without a changelog three times; `before`; how many; the state's name.
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
    whole = sql.SQL("s.oldest_txid = 0") if table.spec.changelog else _never_another(table)
    return answer_now(results, sql.SQL("f.results::text, f.shown, {}").format(whole))


def _logged(table: StateTable) -> sql.Composed:
    return sql.SQL("(SELECT {} FROM {} t WHERE {} AND t.txid <= p.committed_txid)").format(
        columns([*table.version, "txid"], "t"), table.changelog, _this_key(table)
    )


def _carried(table: StateTable) -> sql.Composed:
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
    another = sql.SQL("true")
    if table.keeps_previous:
        another = sql.SQL("t.prev_txid IS NOT NULL OR NOT (" + NONE_UNDONE.format(txid="t.txid") + ")")
    return sql.SQL("s.oldest_txid = 0 AND NOT EXISTS (SELECT FROM {} t WHERE {} AND ({}))").format(
        table.name, _this_key(table), another
    )


def _this_key(table: StateTable) -> sql.Composed:
    return sql.SQL("({}) = ({})").format(
        columns(table.key, "t"), commas(sql.SQL("%s::{}").format(sql.SQL(kind)) for kind in table.key.values())
    )


def key_repeats(table: StateTable) -> int:
    """Return how often a history's parameters have the key."""
    if table.spec.changelog:
        return 1
    return 3 if table.keeps_previous else 2

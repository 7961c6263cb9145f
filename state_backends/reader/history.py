"""History: the committed versions of one key, from the changelog or else from the row itself; all, or one per step.

Compaction, expiry and later batches delete versions without recording it, so an answer says whether it is complete.
"""

from collections.abc import Sequence
from typing import LiteralString

from psycopg import sql

from tidegauge.state_backends.committed import RESULTS, answer_now, ledger_sql
from tidegauge.state_backends.reader.json_sql import json_array, json_object, json_part, json_value
from tidegauge.state_backends.spec.table import StateTable, columns, commas, previous

# Every batch is on record, and none after {txid} had a second attempt: a revert may have removed a previous version.
NONE_REVERTED: LiteralString = (
    "NOT EXISTS (SELECT FROM tidegauge.batch b WHERE b.pipeline = p.name AND b.txid > {txid} AND b.attempt > 1) "
    "AND (SELECT coalesce(min(b.txid), 1) FROM tidegauge.batch b WHERE b.pipeline = p.name) = 1"
)

# Whether a row in another store, with one version that batch %s wrote, never had another version.
NEVER_ANOTHER = ledger_sql("s.oldest_txid = 0 AND " + NONE_REVERTED.format(txid="%s"))

# The step of a range `r` in which a version `u` was written. All before the range are one step, because only the newest
# of them is returned.
STEP = sql.SQL("CASE WHEN u.updated_at < r.since THEN -1 ELSE floor(extract(epoch FROM u.updated_at) / r.seconds) END")


def history_sql(table: StateTable, measures: Sequence[str], *, before: bool) -> sql.Composed:
    """Return the statement. Columns: COMMITTED_BATCH, the versions, their number, whether they are complete.

    before: whether to return only versions before a txid. Parameters: the key, `key_repeats` times; that txid, if
    `before`; the number of versions; the state's name.
    """
    results = sql.SQL(
        "SELECT {versions_shown} AS results, "
        "count(*) AS shown FROM (SELECT u.* FROM {versions} u WHERE {before} ORDER BY u.txid DESC LIMIT %s) v"
    ).format(
        versions_shown=json_array(_json_version(table, measures), "v.txid DESC"),
        versions=_logged(table) if table.spec.changelog else _carried(table),
        before=sql.SQL("u.txid < %s" if before else "true"),
    )
    complete = sql.SQL("s.oldest_txid = 0") if table.spec.changelog else _never_another(table)
    return answer_now(results, sql.SQL("f.results, f.shown, {}").format(complete))


def series_sql(table: StateTable, measures: Sequence[str]) -> sql.Composed:
    """Return the statement. Columns: COMMITTED_BATCH, and versions of a range of time, oldest first.

    These are the last version of each step, and the last one before the range. Parameters: the key,
    `series_key_repeats` times; the range's beginning, the seconds of a step, the range's end; the state's name.
    """
    newest_before = "SELECT o.txid FROM u o WHERE o.updated_at < r.since ORDER BY o.txid DESC LIMIT 1"
    results = sql.SQL(
        "WITH u AS NOT MATERIALIZED (SELECT * FROM {versions} each) "
        "SELECT {versions_shown} AS results "
        "FROM (SELECT DISTINCT ON ({step}) u.* "
        "FROM u, (SELECT %s::timestamptz AS since, %s::float8 AS seconds, %s::timestamptz AS until) r "
        "WHERE {onward} AND u.updated_at < r.until ORDER BY {step}, u.txid DESC) v"
    ).format(
        versions_shown=json_array(_json_version(table, measures), "v.updated_at"),
        versions=_logged(table) if table.spec.changelog else _carried(table),
        # A range of txids, so that the index skips older versions.
        onward=sql.SQL(f"u.txid >= coalesce(({newest_before}), 0)" if table.keeps_txid else "true"),
        step=STEP,
    )
    return answer_now(results, RESULTS)


def key_repeats(table: StateTable) -> int:
    """Return how many times the parameters of `history_sql` repeat the key."""
    return series_key_repeats(table) + (not table.spec.changelog)


def series_key_repeats(table: StateTable) -> int:
    """Return how many times the parameters of `series_sql` repeat the key: once for each sub-select of versions."""
    return 2 if table.keeps_previous and not table.spec.changelog else 1


def _json_version(table: StateTable, measures: Sequence[str]) -> sql.Composed:
    value = sql.SQL("CASE WHEN NOT v.removed THEN {} ELSE 'null' END").format(json_value(table.spec, "v", measures))
    return json_object(
        {
            "txid": json_part(sql.SQL("v.txid"), "bigint"),
            "at": json_part(sql.SQL("v.updated_at"), "timestamptz"),
            "status": sql.SQL("""CASE WHEN v.removed THEN '"removed"' ELSE '"found"' END"""),
            "value": value,
        }
    )


def _logged(table: StateTable) -> sql.Composed:
    return sql.SQL("(SELECT {} FROM {} t WHERE {} AND t.txid <= p.committed_txid)").format(
        columns([*table.version, "txid"], "t"), table.changelog, _this_key(table)
    )


def _carried(table: StateTable) -> sql.Composed:
    """Return the sub-select of the committed versions in the row itself, of which there are at most two."""
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
    """Return the condition that the key never had a version that is not in its row."""
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

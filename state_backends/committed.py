"""Committed: which version of a row a reader sees, now or as of an earlier batch, as SQL.

An opaque row has two versions. If an open batch wrote the current one, the previous one is committed. So readers do not
wait for writers and never see part of a batch. The other kinds store one version, and their readers may see rows of an
open batch.

As of an earlier batch, a changelog has every version back to the last compaction. Without a changelog only the versions
in the row are known, and that there was no earlier one if nothing can have been deleted. Each key then has its own
reach: the oldest batch for which its version is known. A version that is not known is an error, never a guess.

A version is live if it is not a tombstone and its ttl has not passed at the caller's clock, which is the database's
current time for readers and the batch time for the merge.

In all the SQL here `s` is the state's row in the catalog, `p` the ledger row of its pipeline, `t` a stored row.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import LiteralString

from psycopg import sql

from tidegauge.state_backends.protocols import Aggregator
from tidegauge.state_backends.spec.state_spec import StateSpec, stored_column
from tidegauge.state_backends.spec.table import StateTable, columns, commas

# A state and the ledger row of its pipeline. The index pipeline_newest finds the newest version of the row first,
# because every batch leaves dead versions while a snapshot is held, and a lookup by name reads all of them (357 pages
# after 8,000 batches, now 3). The collation POSIX, which sorts like C, hides the primary key, because the planner does
# not count dead versions and would take it for cheaper.
STATE_AND_LEDGER = sql.SQL(
    "tidegauge.state s JOIN LATERAL (SELECT q.* FROM tidegauge.pipeline q "
    'WHERE q.name COLLATE "POSIX" = s.pipeline ORDER BY q.committed_txid DESC LIMIT 1) p ON true'
)

# The same with the ledger row as it was when batch %s was the committed one, so that the SQL for committed versions
# gives the versions of that batch. first_txid: the oldest batch whose time is known. retried_txid: the newest later
# batch with more than one attempt, because its revert may have left rows without a previous version.
STATE_AND_LEDGER_THEN = sql.SQL(
    "tidegauge.state s JOIN (SELECT q.name, q.epoch, q.open_txid, q.committed_txid AS newest_txid, "
    "a.txid AS committed_txid, coalesce(b.attempt, 0) AS committed_attempt, b.batch_time AS committed_time, "
    "(SELECT coalesce(nullif(min(o.txid), 1), 0) FROM tidegauge.batch o WHERE o.pipeline = q.name) AS first_txid, "
    "(SELECT max(r.txid) FROM tidegauge.batch r WHERE r.pipeline = q.name AND r.txid > a.txid AND r.attempt > 1) "
    "AS retried_txid FROM tidegauge.pipeline q CROSS JOIN (SELECT %s::bigint AS txid) a "
    "LEFT JOIN tidegauge.batch b ON b.pipeline = q.name AND b.txid = a.txid) p ON p.name = s.pipeline"
)

# The ttl of a state, and a reader's clock: now, or the time of the batch that is read.
TTL, NOW, THEN = sql.SQL("s.ttl"), sql.SQL("now()"), sql.SQL("p.committed_time")

# The batch that an answer belongs to: txid, attempt, batch time, and the epoch, because txids repeat in other epochs.
COMMITTED_BATCH: LiteralString = "p.committed_txid, p.committed_attempt, p.committed_time, p.epoch"

RESULTS = sql.SQL("f.results")

NOTHING = sql.SQL("")

# The oldest batch for which the version of a row is known, or null. The name has a blank, so no state's column has it.
REACH = sql.Identifier("known from")


def is_live(removed: bool, updated_at: datetime, ttl: timedelta | None, clock: datetime) -> bool:
    """Return whether a version is live at `clock`. The same rule as `live_sql`; a test compares the two."""
    return not removed and (ttl is None or clock - updated_at < ttl)


def live_sql(table: str, ttl: sql.Composable, clock: sql.Composable, version: LiteralString = "") -> sql.Composed:
    """Return the condition that a version of row `table` is live. version: `prev_` for the previous version."""
    return sql.SQL("tidegauge.is_live({removed}, {updated_at}, {ttl}, {clock})").format(
        removed=sql.Identifier(table, f"{version}removed"),
        updated_at=sql.Identifier(table, f"{version}updated_at"),
        ttl=ttl,
        clock=clock,
    )


def isolation(spec: StateSpec) -> str:
    """Return `committed` if readers see whole batches only, else `uncommitted`."""
    return "committed" if spec.kind == "opaque" else "uncommitted"


def ledger_sql(shown: LiteralString, more: sql.SQL = NOTHING) -> sql.Composed:
    """Return the statement that selects `shown` from `s` and `p`; its last parameter is the state's name.

    more: further joins. The statement gives no row if the state is not registered.
    """
    return sql.SQL("SELECT {} FROM {} {} WHERE s.name = %s").format(sql.SQL(shown), STATE_AND_LEDGER, more)


def answer_now(results: sql.Composed, shown: sql.Composable) -> sql.Composed:
    """Return the statement that answers with `shown`, over `s`, `p` and the sub-select `results`, named `f`.

    Columns: those of COMMITTED_BATCH, then `shown`. The last parameter is the state's name.
    """
    return _answer(STATE_AND_LEDGER, results, shown)


def answer_then(table: StateTable, results: sql.Composed, shown: sql.Composable = RESULTS) -> sql.Composed:
    """Return `answer_now` as of an earlier batch, which is the first parameter. `results` must have a column REACH.

    Columns: COMMITTED_BATCH of that batch, `shown`, the newest committed txid, and the oldest txid for which the same
    query can be answered.
    """
    known = sql.SQL("{}, p.newest_txid, greatest({}, f.{})").format(shown, _reach_of_state(table), REACH)
    return _answer(STATE_AND_LEDGER_THEN, results, known)


def committed_columns(table: StateTable, names: Iterable[str]) -> sql.Composed:
    """Return columns of the committed version of row `t`, under their own names: `CASE .. END AS "n", ..`."""
    return commas(sql.SQL("{} AS {}").format(_committed_column(table, name), sql.Identifier(name)) for name in names)


def exists_at_commit(table: StateTable) -> sql.SQL:
    """Return the condition that row `t` has a version as of the committed batch of `p`."""
    if not table.keeps_previous:
        return sql.SQL("true")
    return sql.SQL("(t.txid <= p.committed_txid OR t.prev_txid IS NOT NULL)")


def rows_now(table: StateTable, where: sql.Composable) -> sql.Composed:
    """Return a sub-select of the committed version of every row, over `p`. where: a condition on row `t`.

    Columns: the key, the stored columns, removed, updated_at, and txid, which is null if the state stores no txids.
    """
    return _versions(table, sql.SQL("{} AND {}").format(exists_at_commit(table), where))


def rows_and_ledger(table: StateTable) -> sql.Composed:
    """Return `rows_now` for all rows, with `s` and `p` joined in the sub-select and columns ttl and committed_txid."""
    joined = sql.SQL("JOIN ({}) ON s.name = {}").format(STATE_AND_LEDGER, sql.Literal(table.spec.name))
    return _versions(table, exists_at_commit(table), sql.SQL(", s.ttl, p.committed_txid"), joined)


def rows_then(table: StateTable, where: sql.Composable) -> sql.Composed:
    """Return a sub-select of every key's version at the batch of `p`, and its REACH. where: a condition on row `t`."""
    return logged_rows(table, where) if table.spec.changelog else carried_rows(table, where)


def logged_rows(table: StateTable, where: sql.Composable) -> sql.Composed:
    """Return `rows_then` from the changelog, in key order."""
    return sql.SQL(
        "(SELECT DISTINCT ON ({key}) {key}, {version}, NULL::bigint AS {reach} FROM {log} t "
        "WHERE t.txid <= p.committed_txid AND {where} ORDER BY {key}, t.txid DESC)"
    ).format(
        key=columns(table.key, "t"),
        version=columns([*table.version, "txid"], "t"),
        reach=REACH,
        log=table.changelog,
        where=where,
    )


def carried_rows(table: StateTable, where: sql.Composable) -> sql.Composed:
    """Return `rows_then` from the versions in the rows."""
    return _versions(table, where, sql.SQL(", {} AS {}").format(_reach_of_row(table), REACH))


def row_then(table: StateTable, key: str = "k") -> sql.Composed:
    """Return `rows_then` for the single key `k`; no row, or a row of nulls, if the key had no version."""
    same = table.same_key(key, "t")
    return logged_row(table, key) if table.spec.changelog else carried_rows(table, same)


def logged_row(table: StateTable, key: str) -> sql.Composed:
    """Return `row_then` from the changelog, as one index lookup however many versions the key has."""
    return sql.SQL(
        "(SELECT {version}, NULL::bigint AS {reach} FROM {log} t WHERE {same} AND t.txid <= p.committed_txid "
        "ORDER BY t.txid DESC LIMIT 1)"
    ).format(
        version=columns([*table.version, "txid"], "t"),
        reach=REACH,
        log=table.changelog,
        same=table.same_key(key, "t"),
    )


def finished_columns(spec: StateSpec, row: str, only: Iterable[str] | None = None) -> dict[str, sql.Composable]:
    """Return measure to SQL of its result, over the stored columns of `row`; a JSON state has one, `value`."""
    if not spec.measures:
        return {"value": sql.Identifier(row, "value")}
    return {
        measure: finished(measure, spec.measures[measure], row) for measure in (spec.measures if only is None else only)
    }


def finished(measure: str, aggregator: Aggregator, row: str) -> sql.Composed:
    """Return the SQL of one measure's result, over the stored columns of `row`."""
    stored = {
        f"stored_{suffix}" if suffix else "stored": sql.Identifier(row, stored_column(measure, suffix))
        for suffix in aggregator.columns
    }
    return sql.SQL(aggregator.finish_sql).format(**stored)


def _answer(ledger: sql.SQL, results: sql.Composed, shown: sql.Composable) -> sql.Composed:
    return sql.SQL("SELECT {batch}, {shown} FROM {ledger} CROSS JOIN LATERAL ({results}) f WHERE s.name = %s").format(
        batch=sql.SQL(COMMITTED_BATCH), shown=shown, ledger=ledger, results=results
    )


def _versions(
    table: StateTable, where: sql.Composable, more: sql.Composable = NOTHING, joined: sql.Composable = NOTHING
) -> sql.Composed:
    """Return the sub-select of key, committed version and txid of every row, and of `more` columns."""
    txid = _committed_column(table, "txid") if table.keeps_txid else sql.SQL("NULL::bigint")
    return sql.SQL("(SELECT {key}, {version}, {txid} AS txid{more} FROM {table} t {joined} WHERE {where})").format(
        key=columns(table.key, "t"),
        version=committed_columns(table, table.version),
        txid=txid,
        more=more,
        table=table.name,
        joined=joined,
        where=where,
    )


def _committed_column(table: StateTable, name: str) -> sql.Composable:
    """Return the column in the committed version: the current one, or the previous one."""
    current = sql.Identifier("t", name)
    if not table.keeps_previous:
        return current
    return sql.SQL("CASE WHEN t.txid <= p.committed_txid THEN {} ELSE {} END").format(
        current, sql.Identifier("t", f"prev_{name}")
    )


def _reach_of_state(table: StateTable) -> sql.SQL:
    """Return the oldest batch, over `s` and `p`, at which a missing row means an absent key. No key reaches further."""
    if table.keeps_txid:
        return sql.SQL("greatest(s.oldest_txid, s.since_txid, p.first_txid)")
    # Rows have no txid. Without an open batch they are as of the newest one; an open batch may have changed any row.
    return sql.SQL("greatest(s.oldest_txid, s.since_txid, p.first_txid, coalesce(p.open_txid, p.newest_txid))")


def _reach_of_row(table: StateTable) -> sql.SQL:
    """Return the oldest batch for which the version of row `t` is known; null if it reaches as far as the state."""
    if not table.keeps_txid:
        return sql.SQL("NULL::bigint")
    if not table.keeps_previous:
        return sql.SQL("t.txid")
    return sql.SQL("coalesce(t.prev_txid, CASE WHEN p.retried_txid > t.txid THEN t.txid END)")

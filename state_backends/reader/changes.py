"""Changes: what each committed batch changed in a state, for clients that follow it instead of polling.

The changelog has every version with its batch; without one, only the fact that a batch was committed is known. One
statement reads the committed batch and the changes since, so that a commit that is reverted meanwhile cannot mix two
attempts in one answer. `Changes.gap` says whether a client can continue from an earlier batch, and if not, why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from tidegauge.state_backends.committed import NOW, STATE_AND_LEDGER, live_sql
from tidegauge.state_backends.errors import UnknownStateError
from tidegauge.state_backends.reader.bounds import check_measures
from tidegauge.state_backends.reader.json_sql import json_array, json_key, json_object, json_value
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable, columns, commas

# With a prefix, batches that wrote at most this many times `limit` keys are read, because not all of the keys match it.
# Larger ones are reported incomplete.
SEARCHED = 100

# `visible`: the batch that a reader sees. `since`: the batches after %(after)s, one more than requested, which shows
# whether others follow. `answered`: the requested ones.
LEDGER = sql.SQL("""
WITH visible AS (
    SELECT p.name, s.name AS state, s.ttl, least(p.committed_txid, %(upto)s::bigint) AS txid, p.committed_txid,
           p.committed_attempt, p.committed_time, p.epoch, greatest(s.oldest_txid, s.since_txid) AS oldest,
           concat_ws(' ', s.version, extract(epoch FROM s.created_at), p.name) AS catalog_version
    FROM {ledger} WHERE s.name = %(state)s
), since AS (
    SELECT b.txid, b.attempt, b.batch_time,
           coalesce((b.keys_written ->> v.state)::bigint > %(bound)s::bigint, false) AS wide
    FROM visible v JOIN tidegauge.batch b ON b.pipeline = v.name AND b.txid > %(after)s
    WHERE b.txid <= least(v.txid, %(last)s + 1)
), answered AS (
    SELECT * FROM since WHERE txid <= %(last)s
)
""").format(ledger=STATE_AND_LEDGER)

ANSWER = """
SELECT v.txid, CASE WHEN v.txid = v.committed_txid THEN v.committed_attempt ELSE coalesce(now_at.attempt, 0) END,
       CASE WHEN v.txid = v.committed_txid THEN v.committed_time ELSE now_at.batch_time END, v.epoch,
       v.catalog_version,
       CASE WHEN %(after)s = 0 THEN 0 WHEN %(after)s = v.committed_txid THEN v.committed_attempt ELSE seen.attempt END,
       v.oldest, EXISTS (SELECT FROM since WHERE txid > %(last)s), b.*
FROM visible v
LEFT JOIN tidegauge.batch now_at ON now_at.pipeline = v.name AND now_at.txid = v.txid
LEFT JOIN tidegauge.batch seen ON seen.pipeline = v.name AND seen.txid = %(after)s
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(t.txid ORDER BY t.txid), '{{}}') AS txids,
           coalesce(array_agg(t.attempt ORDER BY t.txid), '{{}}') AS attempts,
           coalesce(array_agg(t.batch_time ORDER BY t.txid), '{{}}') AS times,
           coalesce(array_agg(CASE WHEN {complete} THEN e.changes END ORDER BY t.txid), '{{}}') AS changes,
           coalesce(array_agg({complete} ORDER BY t.txid), '{{}}') AS complete
    FROM answered t LEFT JOIN ({entries}) e ON e.txid = t.txid
) b
"""

ENTRIES = """
SELECT r.txid, max(r.number) AS number, {changes} AS changes FROM (
    SELECT c.txid, row_number() OVER (PARTITION BY c.txid ORDER BY {key}) AS number, {change} AS change
    FROM {log} c, visible v
    WHERE c.txid > %(after)s AND c.txid <= %(last)s AND c.txid <= v.txid
      AND c.txid NOT IN (SELECT txid FROM answered WHERE wide) AND {where}
) r WHERE r.number <= %(limit)s + 1 GROUP BY r.txid
"""

NO_ENTRIES = sql.SQL("SELECT NULL::bigint AS txid, NULL::bigint AS number, NULL::text AS changes WHERE false")
COMPLETE = sql.SQL("(NOT t.wide AND coalesce(e.number, 0) <= %(limit)s)")


@dataclass(frozen=True)
class ChangedBatch:
    """What one committed batch changed.

    attempt: which attempt at it was committed. batch_time: the time of that batch.
    changes: a JSON array as UTF-8 bytes, `[{"key": [..], "status": "found" | "removed", "value": {..}}, ..]`, in key
        order; a version that has expired since counts as removed.
    complete: False if the state has no changelog or the batch changed more than `limit` keys; `changes` is then empty.
    """

    txid: int
    attempt: int
    batch_time: datetime | None
    changes: bytes
    complete: bool


@dataclass(frozen=True)
class Changes:
    """The batch that a reader of a state sees now, and the batches since an earlier one.

    txid, attempt, batch_time, epoch: the batch that a reader sees now. catalog_version: changes when the state is
        redeclared or reprocessed.
    attempt_then: which attempt at the earlier batch is committed; None if the ledger has no record of it any more.
    oldest: the changelog has all changes after this batch. batches: the batches after the earlier one, oldest first.
    more: whether further batches follow; ask again from the last one.
    """

    txid: int
    attempt: int
    batch_time: datetime | None
    epoch: str
    catalog_version: str
    attempt_then: int | None
    oldest: int
    batches: Sequence[ChangedBatch]
    more: bool

    def gap(
        self, after: int, attempt: int | None, catalog_version: str | None = None, epoch: str | None = None
    ) -> str | None:
        """Return why a client that has seen batch `after` cannot continue from it; None if it can.

        attempt, catalog_version, epoch: the ones that the client saw; None if unknown. Without an attempt, a batch with
        several attempts counts as replayed, because the client may have seen an earlier one.
        """
        if epoch is not None and epoch != self.epoch:
            return other_epoch(after)
        if catalog_version is not None and catalog_version != self.catalog_version:
            return "the state was redeclared or reprocessed"
        if after > self.txid:
            return f"batch {after} is not committed; it was reverted"
        if self.attempt_then is None or after < self.oldest:
            return f"changes after batch {after} are no longer on hand, only those after batch {self.oldest}"
        if self.attempt_then != attempt and (attempt is not None or self.attempt_then > 1):
            return f"batch {after} was replayed and may have other values now"
        return None


def other_epoch(after: int) -> str:
    return f"batch {after} is of another epoch: the ledger went back and reuses its batch numbers"


def changes(
    conn: psycopg.Connection,
    spec: StateSpec,
    after: int,
    upto: int | None = None,
    *,
    keys: Sequence[Key] | None = None,
    prefix: Key = (),
    measures: Sequence[str] | None = None,
    limit: int = 1_000,
    most_batches: int = 100,
) -> Changes:
    """Return what each committed batch after `after` changed in a state.

    conn: any connection to the ledger's database; it runs one statement, whatever the number of batches.
    upto: the last batch that a reader sees, if the rows are in another store; None means the committed one.
    keys: n tuples, to return only their changes; None means all keys, or those that start with the typed `prefix`.
    measures: which ones to return; None means all. limit: changes per batch; a batch with more is not complete.
    most_batches: the maximum number of batches.
    Raises SpecError for an unknown measure, KeyShapeError naming the key's index, UnknownStateError.
    """
    asked = list(dict.fromkeys(check_measures(spec, measures)))
    table = StateTable(spec)
    typed = None if keys is None else spec.check_keys(keys)
    where, parameters = _restriction(table, typed, prefix)
    bound = None if typed is not None else limit * (SEARCHED if prefix else 1)
    # Both bounds are numbers, not expressions, so that the planner can estimate how few batches lie between them.
    values = {"state": spec.name, "after": after, "last": after + most_batches, "upto": upto}
    values |= {"bound": bound, "limit": limit}
    row = _only_row(conn, _statement(table, asked, where), values | parameters, spec.name)
    txid, attempt, at, epoch, catalog_version, attempt_then, oldest, more, *arrays = row
    batches = [
        ChangedBatch(number, tries, time, (changed or "[]").encode(), complete)
        for number, tries, time, changed, complete in zip(*arrays, strict=True)
    ]
    return Changes(txid, attempt, at, epoch, catalog_version, attempt_then, oldest, batches, more)


def _only_row(conn: psycopg.Connection, statement: sql.Composed, values: dict[str, Any], state: str) -> Any:
    try:
        row = conn.execute(statement, values).fetchone()
    except psycopg.errors.UndefinedTable:
        row = None
    if row is None:
        raise UnknownStateError(f"state {state!r} is not registered with any pipeline")
    return row


def _restriction(table: StateTable, keys: Sequence[Key] | None, prefix: Key) -> tuple[sql.Composable, dict[str, Any]]:
    """Return the condition on entry `c`, and its parameters."""
    if keys is not None:
        arrays = table.key_columns(keys)
        names = [f"key_{place}" for place in range(len(arrays))]
        unnested = commas(
            sql.SQL("{}::{}[]").format(sql.Placeholder(name), sql.SQL(sql_type))
            for name, sql_type in zip(names, table.key.values(), strict=True)
        )
        within = sql.SQL("({}) IN (SELECT * FROM unnest({}))").format(columns(table.key, "c"), unnested)
        return within, dict(zip(names, arrays, strict=True))
    names = [f"part_{place}" for place in range(len(prefix))]
    same = [
        sql.SQL("c.{} = {}").format(sql.Identifier(column), sql.Placeholder(name))
        for column, name in zip(table.key, names, strict=False)
    ]
    return sql.SQL(" AND ").join([sql.SQL("true"), *same]), dict(zip(names, prefix, strict=True))


def _statement(table: StateTable, measures: Sequence[str], where: sql.Composable) -> sql.Composed:
    logged = table.spec.changelog
    answer = sql.SQL(ANSWER).format(
        complete=COMPLETE if logged else sql.SQL("false"),
        entries=_entries(table, measures, where) if logged else NO_ENTRIES,
    )
    return sql.SQL("{}{}").format(LEDGER, answer)


def _entries(table: StateTable, measures: Sequence[str], where: sql.Composable) -> sql.Composed:
    live = live_sql("c", sql.SQL("v.ttl"), NOW)
    value = json_value(table.spec, "c", measures)
    change = json_object(
        {
            "key": json_key(table.spec, "c"),
            "status": sql.SQL("""CASE WHEN {} THEN '"found"' ELSE '"removed"' END""").format(live),
            "value": sql.SQL("CASE WHEN {} THEN {} ELSE 'null' END").format(live, value),
        }
    )
    return sql.SQL(ENTRIES).format(
        changes=json_array(sql.SQL("r.change"), "r.number"),
        key=columns(table.key, "c"),
        change=change,
        log=table.changelog,
        where=where,
    )

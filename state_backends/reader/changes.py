"""Changes: what each batch did to a state, batch by batch, for those who follow it instead of asking again.

The changelog holds every version under its batch; a state without one can only say that a batch was committed. One
statement reads where the pipeline stands and what came since, so a commit that is set back meanwhile cannot mix two
attempts in one answer. Whether somebody who stands at an earlier batch can go on from it is told beside the batches:
`Changes.gap` gives the reason why not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from state_backends.committed import NOW, STATE_AND_LEDGER, live_sql
from state_backends.errors import UnknownStateError
from state_backends.reader.bounds import check_measures
from state_backends.reader.json_sql import json_key, json_value
from state_backends.row import Key
from state_backends.spec import StateSpec
from state_backends.table import StateTable, columns, commas

# A batch under a prefix is read if it wrote at most so many times what may be told; the rest are passed over unread.
SEARCHED = 100


@dataclass(frozen=True)
class ChangedBatch:
    """What one committed batch did.

    attempt: which attempt at it was committed. as_of: its batch time.
    changes: a JSON array as bytes ready to send, `[{"key": [..], "status": "found" | "removed", "value": {..}}, ..]` in
    key order; a version that has expired since counts as removed.
    complete: False where the state keeps no changelog, or the batch changed more than was asked for; no changes then.
    """

    txid: int
    attempt: int
    as_of: datetime | None
    changes: bytes
    complete: bool


@dataclass(frozen=True)
class Changes:
    """Where a state stands, and the batches since another one.

    txid, attempt: the batch that a reader sees now. mark: differs once the state was declared or made anew.
    attempt_then: which attempt at the batch asked for is committed; None where the ledger has forgotten it.
    oldest: what came after this batch is on hand. batches: those after the one asked for, oldest first.
    more: whether others follow the last of them; ask again after that one.
    """

    txid: int
    attempt: int
    as_of: datetime | None
    mark: str
    attempt_then: int | None
    oldest: int
    batches: Sequence[ChangedBatch]
    more: bool

    def gap(self, after: int, attempt: int | None, mark: str | None = None) -> str | None:
        """Return why one who has seen batch `after` cannot go on from there; None: the batches follow without a gap.

        attempt, mark: what came with that batch; None where they are not known. A batch that took several attempts may
        then have been seen as another one, so it counts as replayed.
        """
        if mark is not None and mark != self.mark:
            return "the state was declared or fed anew"
        if after > self.txid:
            return f"batch {after} is not committed; it was set back or belongs to another time"
        if self.attempt_then is None or after < self.oldest:
            return f"what came after batch {after} is no longer on hand, only what came after batch {self.oldest}"
        if self.attempt_then != attempt and (attempt is not None or self.attempt_then > 1):
            return f"batch {after} was replayed and may have come out differently"
        return None


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
    """Return what each committed batch after `after` did to a state.

    conn: any connection to the ledger's database; one statement, whatever comes of it.
    upto: the last batch that a reader sees, where the rows are in another store; None means the committed one.
    keys: n typed tuples, to tell of these alone; None means all of them, or those that start with the typed `prefix`.
    measures: which ones to tell; None means all. limit: changes per batch; beyond it a batch is not complete.
    most_batches: how many batches at most.
    Raises SpecError for an unknown measure, KeyShapeError naming the key's index, UnknownStateError.
    """
    asked = list(dict.fromkeys(check_measures(spec, measures)))
    table = StateTable(spec)
    typed = None if keys is None else spec.check_keys(keys)
    where, parameters = _restriction(table, typed, prefix)
    bound = None if typed is not None else limit * (SEARCHED if prefix else 1)
    # Both ends as numbers, so that the planner knows how little there is between them.
    values = {"state": spec.name, "after": after, "last": after + most_batches, "upto": upto}
    values |= {"bound": bound, "limit": limit}
    row = _only_row(conn, _statement(table, asked, where), values | parameters, spec.name)
    txid, attempt, at, mark, attempt_then, oldest, more, *arrays = row
    batches = [
        ChangedBatch(number, tries, then, (told or "[]").encode(), complete)
        for number, tries, then, told, complete in zip(*arrays, strict=True)
    ]
    return Changes(txid, attempt, at, mark, attempt_then, oldest, batches, more)


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
        arrays = table.key_columns(keys) if keys else [[] for _ in table.key]
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


# The batch that a reader sees, the one asked for as it is recorded now, and up to so many batches in between.
LEDGER = sql.SQL("""
WITH stand AS (
    SELECT p.name, s.name AS state, s.ttl, least(p.committed_txid, %(upto)s::bigint) AS txid, p.committed_txid,
           p.committed_attempt, p.committed_time, greatest(s.oldest_txid, s.since_txid) AS oldest,
           concat_ws(' ', s.version, extract(epoch FROM s.created_at), p.name) AS mark
    FROM {ledger} WHERE s.name = %(state)s
), since AS (
    SELECT b.txid, b.attempt, b.batch_time,
           coalesce((b.keys_written ->> w.state)::bigint > %(bound)s::bigint, false) AS wide
    FROM stand w JOIN tidemark.batch b ON b.pipeline = w.name AND b.txid > %(after)s
    WHERE b.txid <= least(w.txid, %(last)s + 1)
), told AS (
    SELECT * FROM since WHERE txid <= %(last)s
)
""").format(ledger=STATE_AND_LEDGER)

ANSWER = """
SELECT w.txid, CASE WHEN w.txid = w.committed_txid THEN w.committed_attempt ELSE coalesce(now_at.attempt, 0) END,
       CASE WHEN w.txid = w.committed_txid THEN w.committed_time ELSE now_at.batch_time END, w.mark,
       CASE WHEN %(after)s = 0 THEN 0 WHEN %(after)s = w.committed_txid THEN w.committed_attempt ELSE seen.attempt END,
       w.oldest, EXISTS (SELECT FROM since WHERE txid > %(last)s), b.*
FROM stand w
LEFT JOIN tidemark.batch now_at ON now_at.pipeline = w.name AND now_at.txid = w.txid
LEFT JOIN tidemark.batch seen ON seen.pipeline = w.name AND seen.txid = %(after)s
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(t.txid ORDER BY t.txid), '{{}}') AS txids,
           coalesce(array_agg(t.attempt ORDER BY t.txid), '{{}}') AS attempts,
           coalesce(array_agg(t.batch_time ORDER BY t.txid), '{{}}') AS times,
           coalesce(array_agg(CASE WHEN {complete} THEN e.changes END ORDER BY t.txid), '{{}}') AS changes,
           coalesce(array_agg({complete} ORDER BY t.txid), '{{}}') AS complete
    FROM told t LEFT JOIN ({entries}) e ON e.txid = t.txid
) b
"""

ENTRIES = """
SELECT r.txid, max(r.number) AS number, json_agg(r.change ORDER BY r.number)::text AS changes FROM (
    SELECT c.txid, row_number() OVER (PARTITION BY c.txid ORDER BY {key}) AS number, {change} AS change
    FROM {log} c, stand w
    WHERE c.txid > %(after)s AND c.txid <= %(last)s AND c.txid <= w.txid
      AND c.txid NOT IN (SELECT txid FROM told WHERE wide) AND {where}
) r WHERE r.number <= %(limit)s + 1 GROUP BY r.txid
"""

NO_ENTRIES = sql.SQL("SELECT NULL::bigint AS txid, NULL::bigint AS number, NULL::text AS changes WHERE false")
ALL_TOLD = sql.SQL("(NOT t.wide AND coalesce(e.number, 0) <= %(limit)s)")


def _statement(table: StateTable, measures: Sequence[str], where: sql.Composable) -> sql.Composed:
    logged = table.spec.changelog
    answer = sql.SQL(ANSWER).format(
        complete=ALL_TOLD if logged else sql.SQL("false"),
        entries=_entries(table, measures, where) if logged else NO_ENTRIES,
    )
    return sql.SQL("{}{}").format(LEDGER, answer)


def _entries(table: StateTable, measures: Sequence[str], where: sql.Composable) -> sql.Composed:
    live = live_sql("c", sql.SQL("w.ttl"), NOW)
    change = sql.SQL(
        "json_build_object('key', {key}, 'status', CASE WHEN {live} THEN 'found' ELSE 'removed' END, "
        "'value', CASE WHEN {live} THEN {value} END)"
    ).format(key=json_key(table.spec, "c"), live=live, value=json_value(table.spec, "c", measures))
    return sql.SQL(ENTRIES).format(key=columns(table.key, "c"), change=change, log=table.changelog, where=where)

"""Replay of dead letters: raw records that could not be read go through the pipeline once more, after a fix.

    request    marks letters, by their reason, time or id
    take       gives the marked letters to a batch that begins; all attempts at it get the same ones
    put_back   unmarks those that still cannot be read, with the new reason
    commit     of the batch: from then on the others are replayed, because `replay_txid <= committed_txid`

So a letter is counted in the transaction that commits its batch, or not at all. A rewind to before that batch unmarks
it (`forget_after`). A letter of an open batch cannot be marked, because a retry of the batch writes it again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from tidegauge.state_backends.dead_letters.letters import HAS_PATTERN, storable
from tidegauge.state_backends.ledger.batch import Batch

# Limits of one batch, because the driver holds all its records in memory, and each may have two megabytes. Later
# batches take the rest.
MAX_LETTERS = 10_000
MAX_BYTES = 64 * 1024 * 1024

# Letters of a source that were committed and not replayed, restricted by a Choice. strpos, because LIKE would read a %
# or _ in the text as a placeholder.
CHOSEN = f"""
l.pipeline = %(pipeline)s AND l.state = '' AND l.replay_txid IS NULL
AND l.txid <= (SELECT p.committed_txid FROM tidegauge.pipeline p WHERE p.name = l.pipeline)
AND (%(reason)s::text IS NULL OR strpos(l.reason, %(reason)s) > 0)
AND (%(pattern)s::text IS NULL OR {HAS_PATTERN})
AND (%(since)s::timestamptz IS NULL OR l.at >= %(since)s)
AND (%(ids)s::bigint[] IS NULL OR l.id = ANY(%(ids)s))
AND (%(until)s::bigint IS NULL OR l.txid <= %(until)s)
"""  # noqa: S608  fixed texts

FOUND = f"""
SELECT count(*) FILTER (WHERE l.record IS NOT NULL AND l.counted_by = ''),
    count(*) FILTER (WHERE l.record IS NULL), count(*) FILTER (WHERE l.record IS NOT NULL AND l.counted_by <> '')
FROM tidegauge.dead_letter l WHERE {CHOSEN}
"""  # noqa: S608  fixed texts

REQUEST = f"""
UPDATE tidegauge.dead_letter l SET replay_at = clock_timestamp(), replay_by = %(by)s
WHERE {CHOSEN} AND l.record IS NOT NULL AND l.counted_by = ''
"""  # noqa: S608  fixed texts

TAKE = """
UPDATE tidegauge.dead_letter l SET replay_txid = %(txid)s FROM (
    SELECT id FROM (
        SELECT w.id, row_number() OVER ordered AS place, sum(length(w.record::text)) OVER ordered AS bytes
        FROM tidegauge.dead_letter w
        WHERE w.pipeline = %(pipeline)s AND w.replay_at IS NOT NULL AND w.replay_txid IS NULL
        WINDOW ordered AS (ORDER BY w.id)
    ) waiting WHERE place = 1 OR (place <= %(letters)s AND bytes <= %(bytes)s)
) taken WHERE l.id = taken.id
"""

TAKEN = """
SELECT id, part, record FROM tidegauge.dead_letter
WHERE pipeline = %s AND replay_txid = %s AND replay_at IS NOT NULL ORDER BY id
"""

# A partial reprocess has read the records of these letters from the source again. Its states have counted those that it
# could read; the others are letters of the reprocess too, so NOT EXISTS leaves them out.
COUNTED_AGAIN = """
UPDATE tidegauge.dead_letter l
SET counted_by = array_to_string(%(states)s::text[], ', '), replay_at = NULL, replay_txid = NULL
FROM tidegauge.pipeline p
WHERE p.name = %(old)s AND l.pipeline = p.name AND l.state = '' AND l.txid <= p.committed_txid
AND (l.replay_txid IS NULL OR l.replay_txid > p.committed_txid) AND NOT EXISTS (
    SELECT FROM tidegauge.dead_letter n WHERE n.pipeline = %(new)s AND n.state = '' AND n.source = l.source
    AND n.line_number IS NOT DISTINCT FROM l.line_number AND n.record = l.record)
"""


@dataclass(frozen=True)
class Choice:
    """Which dead letters of a pipeline's sources to replay; by default all.

    reason: a part of its text. pattern: the pattern of the whole reason (REASON_PATTERN). ids: of the letters.
    until: the txid of the last batch whose letters are replayed.
    """

    reason: str | None = None
    since: datetime | None = None
    ids: Collection[int] | None = None
    pattern: str | None = None
    until: int | None = None


@dataclass(frozen=True)
class Found:
    """How many letters of a choice can be replayed. without_record: how many cannot, because no raw record was kept.

    counted: how many cannot, because a partial reprocess has read them again from the source for some states.
    """

    letters: int
    without_record: int
    counted: int


@dataclass(frozen=True)
class RawLetter:
    """One letter of a batch. place: the index of its source in the pipeline. record: as in DeadLetter."""

    id: int
    place: int
    record: Mapping[str, Any]


def find(conn: psycopg.Connection, pipeline: str, choice: Choice) -> Found:
    """Return what a request for these letters would find."""
    row = conn.execute(FOUND, _chosen(pipeline, choice)).fetchone()
    assert row is not None
    return Found(*row)


def request(conn: psycopg.Connection, pipeline: str, choice: Choice, by: str) -> int:
    """Mark letters for the next batch. Returns their number, including letters that were marked already."""
    return conn.execute(REQUEST, _chosen(pipeline, choice) | {"by": by}).rowcount


def are_waiting(conn: psycopg.Connection, pipeline: str) -> bool:
    """Return whether letters are marked that no batch has taken."""
    row = conn.execute(
        "SELECT EXISTS (SELECT FROM tidegauge.dead_letter WHERE pipeline = %s AND replay_at IS NOT NULL "
        "AND replay_txid IS NULL)",
        [pipeline],
    ).fetchone()
    return bool(row and row[0])


def take(conn: psycopg.Connection, batch: Batch) -> list[RawLetter]:
    """Return the letters of a batch: the marked ones at its first attempt, and the same ones at every later attempt.

    Runs inside the caller's transaction, which has called `lock_fence`.
    """
    if not batch.is_retry:
        limits = {"letters": MAX_LETTERS, "bytes": MAX_BYTES}
        conn.execute(TAKE, {"pipeline": batch.pipeline, "txid": batch.txid} | limits)
    return [RawLetter(*row) for row in conn.execute(TAKEN, [batch.pipeline, batch.txid])]


def put_back(conn: psycopg.Connection, failed: Sequence[tuple[int, str]]) -> None:
    """Unmark letters that still cannot be read, and store their new reasons. failed: id and reason of each.

    Runs inside the caller's transaction, which has called `lock_fence`.
    """
    with conn.cursor() as cursor:
        cursor.executemany(
            "UPDATE tidegauge.dead_letter SET replay_at = NULL, replay_txid = NULL, reason = %s WHERE id = %s",
            [(storable(reason), letter) for letter, reason in failed],
        )


def forget_after(conn: psycopg.Connection, pipeline: str, txid: int) -> None:
    """Unmark the letters that batches after `txid` have replayed, because these batches are taken back."""
    conn.execute(
        "UPDATE tidegauge.dead_letter SET replay_at = NULL, replay_txid = NULL "
        "WHERE pipeline = %s AND replay_txid > %s",
        [pipeline, txid],
    )


def _chosen(pipeline: str, choice: Choice) -> dict[str, Any]:
    ids = None if choice.ids is None else list(choice.ids)
    return {
        "pipeline": pipeline,
        "reason": choice.reason,
        "since": choice.since,
        "ids": ids,
        "pattern": choice.pattern,
        "until": choice.until,
    }

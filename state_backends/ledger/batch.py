"""Batch: one attempt at a batch, the check that it may still write, and its record.

The record is a row of `tidegauge.batch`, with rows of `input_file` and `first_input`: what the batch held, when it was
attempted and committed, and its figures. The ledger writes it in the transactions that open and commit the batch. With
it the ledger detects a batch that comes again with other input, and a lost checkpoint is written again (resume.py).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import psycopg

from tidegauge.state_backends.errors import FencedError
from tidegauge.state_backends.ledger.source_input import SourceInput, difference, fingerprints

# Totals are running sums over batches, so that readers take them from the newest one. If the batch before has none,
# dead letters and rows are added up from what is stored, and late and dropped start at 0.
COMMITTED = """
UPDATE tidegauge.batch b SET committed_at = clock_timestamp(), rows_in = %(rows_in)s,
    keys_written = %(keys_written)s::jsonb, dead_letters = %(dead_letters)s, late = %(late)s, dropped = %(dropped)s,
    tasks = %(tasks)s::jsonb, watermark = %(watermark)s, marks = %(marks)s::jsonb,
    total_dead_letters = %(dead_letters)s::bigint + coalesce(before.total_dead_letters, (
        SELECT count(*) FROM tidegauge.dead_letter l WHERE l.pipeline = %(pipeline)s AND l.txid < %(txid)s)),
    total_rows_in = %(rows_in)s::bigint + coalesce(before.total_rows_in, (
        SELECT sum(r.rows_in)::bigint FROM tidegauge.batch r JOIN tidegauge.pipeline p ON p.name = r.pipeline
        WHERE p.name = %(pipeline)s AND r.txid > p.fed_after AND r.txid < %(txid)s), 0),
    total_late = %(late)s::bigint + coalesce(before.total_late, 0),
    total_dropped = %(dropped)s::bigint + coalesce(before.total_dropped, 0)
FROM (SELECT) one LEFT JOIN tidegauge.batch before ON before.pipeline = %(pipeline)s AND before.txid = %(txid)s - 1
WHERE b.pipeline = %(pipeline)s AND b.txid = %(txid)s
"""

# Every attempt at a batch uses the ttls of the first one while the batch keeps its time, because with other ttls it
# would give another result. A shadow pipeline's batch has only the ttls that were overridden; its other states use
# their declared ones.
BEGUN = """
INSERT INTO tidegauge.batch AS b
    (pipeline, txid, attempt, batch_id, fence, epoch, token, batch_time, started_at, offsets, input, ttls)
SELECT p.name, %(txid)s, %(attempt)s, %(batch_id)s, p.fence, p.epoch, p.token, %(batch_time)s, clock_timestamp(),
    %(offsets)s::jsonb, %(input)s::jsonb, (
    SELECT coalesce(jsonb_object_agg(s.name, s.ttl::text), '{}') FROM tidegauge.state s
    WHERE s.pipeline = p.name OR (s.pipeline = p.reprocesses AND s.edits ? 'ttl'))
FROM tidegauge.pipeline p WHERE p.name = %(pipeline)s
ON CONFLICT (pipeline, txid) DO UPDATE
SET attempt = excluded.attempt, batch_id = excluded.batch_id, fence = excluded.fence, epoch = excluded.epoch,
    token = excluded.token, batch_time = excluded.batch_time,
    started_at = excluded.started_at, offsets = excluded.offsets, input = excluded.input,
    ttls = CASE WHEN b.batch_time = excluded.batch_time THEN coalesce(b.ttls, excluded.ttls) ELSE excluded.ttls END,
    committed_at = NULL, rows_in = NULL, keys_written = NULL, dead_letters = 0, late = 0, dropped = 0, tasks = NULL,
    watermark = NULL, marks = '{}', metrics = '{}', total_dead_letters = NULL, total_late = NULL, total_dropped = NULL,
    total_rows_in = NULL
"""

FILES = """
INSERT INTO tidegauge.input_file (pipeline, txid, source, files) VALUES (%s, %s, %s, %s::jsonb)
"""

FIRST = """
INSERT INTO tidegauge.first_input (pipeline, txid, offsets, input)
SELECT b.pipeline, b.txid, b.offsets, b.input FROM tidegauge.batch b WHERE b.pipeline = %s AND b.txid = %s
ON CONFLICT (pipeline) DO UPDATE SET txid = excluded.txid, offsets = excluded.offsets, input = excluded.input
"""

METRICS = """
UPDATE tidegauge.batch SET metrics = %(metrics)s::jsonb || coalesce((
    SELECT jsonb_object_agg(each.key, greatest(0, extract(epoch FROM committed_at - each.value::timestamptz)))
    FROM jsonb_each_text(%(times)s::jsonb) each), '{}')
WHERE pipeline = %(pipeline)s AND txid = %(txid)s AND attempt = %(attempt)s AND fence = %(fence)s AND token = %(token)s
    AND committed_at IS NOT NULL
"""

TTLS = """
SELECT t.key, t.value::interval FROM tidegauge.batch b, jsonb_each_text(b.ttls) t
WHERE b.pipeline = %s AND b.txid = %s
"""


# Identifies an attempt. The token is part of it, because a restored ledger gives the same numbers out again.
IDENTITY = ("pipeline", "txid", "attempt", "fence", "token")


@dataclass(frozen=True)
class Batch:
    """One attempt at one batch. Every write of an executor is checked against it (see `lock_fence`).

    txid: the batch's transaction id, rising by one from 1. attempt: 1 for the first one. batch_time: the clock of all
    ttl arithmetic, timezone-aware. ttls: state name to ttl. Time and ttls are the same for every attempt at a batch,
    even one that was committed and comes again, unless expiry has freed rows since the commit. A ttl that is changed
    meanwhile applies from the next batch. epoch: the ledger's incarnation. token: random for each acquisition, because
    after a restore another driver may hold an equal fence.
    """

    pipeline: str
    fence: int
    txid: int
    attempt: int
    batch_time: datetime
    ttls: Mapping[str, timedelta | None] = field(default_factory=dict, compare=False)
    epoch: str = ""
    token: str = ""

    @property
    def is_retry(self) -> bool:
        """Whether an earlier attempt may have written: revert before writing."""
        return self.attempt > 1


def attempt_name(token: str, attempt: int) -> str:
    """Return a name of an attempt that no other attempt, and no other acquisition of the pipeline, has."""
    return f"{token} {attempt}"


def lock_fence(conn: psycopg.Connection, batch: Batch) -> None:
    """Check that this attempt may still write, and lock the ledger's row FOR SHARE until the transaction ends.

    Call it inside the transaction that writes. Raises FencedError if another driver or attempt has taken over.
    """
    ask_fence(conn, batch)()


def ask_fence(conn: psycopg.Connection, batch: Batch) -> Callable[[], None]:
    """Lock the row, but return the check instead of waiting for the answer.

    For psycopg's pipeline mode: call the check after the pipeline, because reading an answer within it is a round trip.
    """
    asked = conn.execute(
        "SELECT fence, token, open_txid, open_attempt, tidegauge.is_original() "
        "FROM tidegauge.pipeline WHERE name = %s FOR SHARE",
        [batch.pipeline],
    )

    def check() -> None:
        row = asked.fetchone()
        if row is None or tuple(row[:4]) != (batch.fence, batch.token, batch.txid, batch.attempt):
            raise FencedError(taken_over(batch))
        if not row[4]:
            raise restored(batch.pipeline)

    return check


def record_attempt(
    conn: psycopg.Connection,
    batch: Batch,
    batch_id: int,
    offsets: Any,
    held: Sequence[SourceInput | None] | None,
) -> dict[str, timedelta | None]:
    """Record an attempt at a batch with its input; return the ttls of its states, as of the first attempt.

    The arguments are those of BatchLedger.begin.
    """
    _record_files(conn, batch, held or ())
    conn.execute(
        BEGUN,
        {
            "pipeline": batch.pipeline,
            "txid": batch.txid,
            "attempt": batch.attempt,
            "batch_id": batch_id,
            "batch_time": batch.batch_time,
            "offsets": json.dumps(offsets),
            "input": None if held is None else json.dumps(fingerprints(held)),
        },
    )
    return dict(conn.execute(TTLS, [batch.pipeline, batch.txid]).fetchall())


def record_first(conn: psycopg.Connection, batch: Batch) -> None:
    """Keep the input of the first batch of the present states, because a reprocess asks whether that still exists."""
    conn.execute(FIRST, [batch.pipeline, batch.txid])


def record_commit(conn: psycopg.Connection, batch: Batch, **figures: Any) -> None:
    """Record a commit. figures: the arguments of BatchLedger.commit, mappings as JSON."""
    conn.execute(COMMITTED, {"pipeline": batch.pipeline, "txid": batch.txid} | figures)


def input_difference(
    conn: psycopg.Connection, pipeline: str, txid: int, held: Sequence[SourceInput | None] | None
) -> str | None:
    """Return how a batch's input differs from the recorded one: empty if it does not, None if that is unknown."""
    stored = conn.execute(
        "SELECT input FROM tidegauge.batch WHERE pipeline = %s AND txid = %s", [pipeline, txid]
    ).fetchone()
    return difference(stored[0] if stored else None, held)


def record_metrics(
    conn: psycopg.Connection, batch: Batch, metrics: Mapping[str, Any], times: Mapping[str, datetime] | None = None
) -> None:
    """Store the engine's metrics of a committed batch, any JSON object, unless another attempt has replaced it.

    times: name to a time, timezone-aware. Each is stored among the metrics as its age at the commit, in seconds; 0 if
    it is later. The database computes ages, because its clock stamped the commit and the driver's may differ.
    """
    figures = {"metrics": json.dumps(dict(metrics)), "times": json.dumps(dict(times or {}), default=datetime.isoformat)}
    conn.execute(METRICS, figures | {name: getattr(batch, name) for name in IDENTITY})


def _record_files(conn: psycopg.Connection, batch: Batch, held: Sequence[SourceInput | None]) -> None:
    if not any(part is not None and part.listed for part in held):
        return
    conn.execute("DELETE FROM tidegauge.input_file WHERE pipeline = %s AND txid = %s", [batch.pipeline, batch.txid])
    for place, part in enumerate(held):
        if part is not None and part.listed and part.items:
            conn.execute(FILES, [batch.pipeline, batch.txid, place, json.dumps(dict(part.items))])


def restored(pipeline: str) -> FencedError:
    return FencedError(
        f"pipeline {pipeline!r}: the ledger was restored or copied while this driver ran, and may have gone back; stop "
        "every driver, then start one again"
    )


def taken_over(batch: Batch) -> str:
    return (
        f"pipeline {batch.pipeline!r}: attempt {batch.attempt} at batch {batch.txid} under fence {batch.fence} is no "
        "longer the open one; another driver or attempt has taken over, so stop this one"
    )

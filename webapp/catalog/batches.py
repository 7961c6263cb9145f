"""Queries for batches: the newest ones, pages of older ones, and one in detail."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tidegauge.state_backends.errors import UnknownPipelineError
from tidegauge.webapp.catalog.models import Batch
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.queries import fetch, pipeline_names


@dataclass(frozen=True)
class BatchSummary:
    """One batch, at its latest attempt, as BatchSerializer describes it; figures of an open batch are not known yet."""

    pipeline: str
    txid: int
    attempt: int
    status: str
    batch_time: datetime
    committed_at: datetime | None
    seconds: float | None
    rows_in: int | None
    keys_written: dict[str, int]
    dead_letters: int
    late: int = 0
    dropped: int = 0
    tasks: dict[str, dict[str, int]] = field(default_factory=dict)
    watermark: datetime | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    epoch: str = ""

    @property
    def rows_per_second(self) -> float:
        return (self.rows_in or 0) / self.seconds if self.seconds else 0.0

    @property
    def keys_in_all(self) -> int | None:
        return None if self.status == "open" else sum(self.keys_written.values())


@dataclass(frozen=True)
class BatchRate:
    """What is left of a batch in a sparkline. rows_per_second: since the commit before, idle time included."""

    committed_at: datetime
    rows_per_second: float


@dataclass(frozen=True)
class BatchDetail:
    """offsets: up to which the source was read, in the source's own format; None if it has none."""

    summary: BatchSummary
    batch_id: int
    fence: int
    started_at: datetime
    offsets: Any


def newest_batches(pipeline: str, limit: int = 50, before: int | None = None) -> list[BatchSummary]:
    """Return the newest batches of a pipeline, the open one first, or those older than `before`."""
    rows = fetch(BATCHES, {"name": pipeline, "limit": limit, "before": before})
    if not rows and pipeline not in pipeline_names():
        raise UnknownPipelineError.among(pipeline, pipeline_names())
    return [BatchSummary(**row) for row in rows]


def recent_batches(limit: int = 50) -> dict[str, list[BatchSummary]]:
    """Return the newest batches of every pipeline that has any, by its name."""
    found = defaultdict(list)
    for row in fetch(BATCHES, {"name": None, "limit": limit, "before": None}):
        found[row["pipeline"]].append(BatchSummary(**row))
    return dict(found)


def recent_rates(pipelines: Sequence[str], limit: int) -> dict[str, list[BatchRate]]:
    """Return the newest committed batches of each of these pipelines, by its name, the newest first."""
    found = defaultdict(list)
    for row in fetch(RATES, {"names": list(pipelines), "limit": limit}):
        found[row["pipeline"]].append(BatchRate(row["committed_at"], row["rows_per_second"]))
    return dict(found)


def batch_detail(pipeline: PipelineStatus, txid: int) -> BatchDetail | None:
    """Return one batch; None if it does not exist yet or was removed by compaction."""
    batch = Batch.objects.filter(pipeline=pipeline.name, txid=txid).first()
    if batch is None:
        return None
    return BatchDetail(_summary(batch, pipeline), batch.batch_id, batch.fence, batch.started_at, batch.offsets)


def batch_at(pipeline: PipelineStatus, moment: datetime) -> int | None:
    """Return the newest committed batch whose time is not after a moment; None if there is none on record."""
    return batches_at(pipeline, [moment])[0]


def batches_at(pipeline: PipelineStatus, moments: Sequence[datetime]) -> list[int | None]:
    """Return for each moment what `batch_at` does, by one statement."""
    until = [moment + timedelta(microseconds=1) for moment in moments]
    asked = {"name": pipeline.name, "last": pipeline.committed_txid, "until": until}
    return [row["txid"] for row in fetch(BATCHES_BEFORE, asked)]


def oldest_commit(pipeline: PipelineStatus) -> datetime | None:
    """Return when the first batch was committed of those that compaction has left; None if there is none."""
    chosen = Batch.objects.filter(pipeline=pipeline.name, committed_at__isnull=False)
    return chosen.order_by("txid").values_list("committed_at", flat=True).first()


def halving(time: str) -> str:
    """Return the recursive part of a query `halving (name, at, low, high)`, which finds the last batch before a time.

    That is `low` in the end; 0 if there is none. time: a column of times that rise with txids. The search probes the
    primary key some 20 times, and needs no index on times, which would slow commits.
    """
    return f"""
    SELECT h.name, h.at, CASE WHEN probe.is_before THEN probe.txid ELSE h.low END,
           CASE WHEN probe.is_before THEN h.high ELSE (h.low + h.high - 1) / 2 END
    FROM halving h LEFT JOIN LATERAL (
        SELECT b.txid, b.{time} < h.at AS is_before FROM tidegauge.batch b
        WHERE b.pipeline = %(name)s AND b.txid BETWEEN (h.low + h.high + 1) / 2 AND h.high ORDER BY b.txid LIMIT 1
    ) probe ON true
    WHERE h.low < h.high"""  # noqa: S608  fixed texts


BATCHES_BEFORE = f"""
WITH RECURSIVE halving AS (
    SELECT asked.name, asked.at, 0::bigint AS low, %(last)s::bigint AS high
    FROM unnest(%(until)s::timestamptz[]) WITH ORDINALITY asked (at, name)
    UNION ALL {halving("batch_time")}
)
SELECT nullif(max(low), 0) AS txid FROM halving GROUP BY name ORDER BY name
"""  # noqa: S608  fixed texts

BATCHES = """
SELECT b.pipeline, b.txid, b.attempt, CASE WHEN b.txid <= p.committed_txid THEN 'committed' ELSE 'open' END AS status,
       b.batch_time, b.committed_at, extract(epoch FROM b.committed_at - b.started_at)::float8 AS seconds,
       b.rows_in, coalesce(b.keys_written, '{}') AS keys_written, b.dead_letters, b.late, b.dropped,
       coalesce(b.tasks, '{}') AS tasks, b.watermark, b.metrics, b.epoch
FROM tidegauge.pipeline p
CROSS JOIN LATERAL (
    SELECT * FROM tidegauge.batch b WHERE b.pipeline = p.name AND b.txid < coalesce(%(before)s, 9223372036854775807)
    ORDER BY b.txid DESC LIMIT %(limit)s
) b
WHERE (%(name)s::text IS NULL OR p.name = %(name)s) AND p.reprocesses IS NULL
ORDER BY b.pipeline, b.txid DESC
"""

RATES = """
SELECT p.name AS pipeline, b.committed_at,
       coalesce(b.rows_in / nullif(extract(epoch FROM b.committed_at - b.since), 0), 0)::float8 AS rows_per_second
FROM tidegauge.pipeline p
CROSS JOIN LATERAL (
    SELECT b.committed_at, b.rows_in, coalesce(lag(b.committed_at) OVER (ORDER BY b.txid), b.started_at) AS since
    FROM tidegauge.batch b
    WHERE b.pipeline = p.name AND b.txid <= p.committed_txid ORDER BY b.txid DESC LIMIT %(limit)s
) b
WHERE p.name = ANY(%(names)s) AND b.committed_at IS NOT NULL
ORDER BY p.name, b.committed_at DESC
"""


def _summary(batch: Batch, pipeline: PipelineStatus) -> BatchSummary:
    is_committed = batch.txid <= pipeline.committed_txid
    seconds = (batch.committed_at - batch.started_at).total_seconds() if batch.committed_at else None
    return BatchSummary(
        pipeline=batch.pipeline_id,
        txid=batch.txid,
        attempt=batch.attempt,
        status="committed" if is_committed else "open",
        batch_time=batch.batch_time,
        committed_at=batch.committed_at,
        seconds=seconds,
        rows_in=batch.rows_in,
        keys_written=batch.keys_written or {},
        dead_letters=batch.dead_letters,
        late=batch.late,
        dropped=batch.dropped,
        tasks=batch.tasks or {},
        watermark=batch.watermark,
        metrics=batch.metrics or {},
        epoch=batch.epoch,
    )

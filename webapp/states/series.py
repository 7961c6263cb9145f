"""Series: what a pipeline did over time, from its ledger, thinned by the database to a bounded number of points.

Time is divided into steps of a round length, the same for every request. The batches that were committed in one step
are one point, at the time of the last of them. A pause between points is marked by a point without values, so that a
chart shows a gap instead of a line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from math import ceil
from statistics import median
from typing import Any

from state_backends.errors import UnknownPipelineError
from webapp.states.queries import fetch, pipeline_names

DAY = 86_400
# Each at least twice the one before it.
STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, DAY)

# Points that are further apart than this many times their usual distance have a gap between them.
GAP_DISTANCES = 5
GAP_STEPS = 3

# Spark's names of the parts of a batch, in the order in which they run.
PHASES = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "commitBatch")

# Of a whole batch, so a restricted caller does not see them.
OF_WHOLE_BATCHES = ("rows", "rows_per_second")


@dataclass(frozen=True)
class Range:
    """A range of time, `since` included, `until` not. points: how many a series over it may have at most."""

    since: datetime
    until: datetime
    points: int

    @property
    def step_seconds(self) -> int:
        least = (self.until - self.since).total_seconds() / self.points
        return next((step for step in STEPS if step >= least), DAY * ceil(least / DAY))


@dataclass(frozen=True)
class PipelineSeries:
    """epoch, txid: of the ledger, and its committed batch. times: of the points, in seconds since 1970.

    series, phases: name to one number, or None, for each time. phases: average seconds of each part of a batch, by
    Spark's names; empty where they are not shown.
    """

    pipeline: str
    epoch: str
    txid: int
    range: Range
    times: list[float]
    series: Mapping[str, list[float | None]]
    phases: Mapping[str, list[float | None]]

    def without_whole_batches(self) -> "PipelineSeries":
        series = {name: values for name, values in self.series.items() if name not in OF_WHOLE_BATCHES}
        return replace(self, series=series, phases={})


def pipeline_series(name: str, asked: Range) -> PipelineSeries:
    """Raises UnknownPipelineError."""
    parameters = {"name": name, "since": asked.since, "until": asked.until, "step": asked.step_seconds}
    rows = fetch(SERIES, parameters)
    if not rows:
        raise UnknownPipelineError.among(name, pipeline_names())
    found = with_gaps([row for row in rows if row["at"] is not None], asked.step_seconds)
    return PipelineSeries(
        pipeline=name,
        epoch=rows[0]["epoch"],
        txid=rows[0]["txid"],
        range=asked,
        times=[row["at"] for row in found],
        series={figure: [row.get(figure) for row in found] for figure in FIGURES},
        phases={phase: [(row.get("phases") or {}).get(phase) for row in found] for phase in PHASES},
    )


def with_gaps(points: Sequence[dict[str, Any]], step_seconds: int) -> list[dict[str, Any]]:
    """Return the points, and one that has a time alone in each pause between them. Points have their time as `at`."""
    if len(points) < 3:
        return list(points)
    usual = median(after["at"] - before["at"] for before, after in pairwise(points))
    longest = max(GAP_DISTANCES * usual, GAP_STEPS * step_seconds)
    marked = [points[0]]
    for before, after in pairwise(points):
        if after["at"] - before["at"] > longest:
            marked.append({"at": (before["at"] + after["at"]) / 2})
        marked.append(after)
    return marked


FIGURES = (
    "batches", "rows", "rows_per_second", "seconds", "longest_seconds", "freshness_seconds", "dead_letters", "late",
    "dropped", "replays",
)  # fmt: skip

# The batches of a range are the newest ones before its end, back to the last one before its beginning: txids and times
# of commits rise together, so the primary key finds them.
SERIES = """
WITH ledger AS (
    SELECT p.name, p.epoch, p.committed_txid, coalesce((
        SELECT b.txid FROM tidemark.batch b
        WHERE b.pipeline = p.name AND b.txid <= p.committed_txid AND b.committed_at < %(since)s
        ORDER BY b.txid DESC LIMIT 1), 0) AS first_txid
    FROM tidemark.pipeline p WHERE p.name = %(name)s AND p.reprocesses IS NULL
), batch AS (
    SELECT b.*, extract(epoch FROM b.committed_at - b.started_at)::float8 AS seconds,
           extract(epoch FROM b.committed_at - lag(b.batch_time) OVER (ORDER BY b.txid))::float8 AS freshness,
           floor(extract(epoch FROM b.committed_at) / %(step)s) AS step
    FROM ledger l JOIN tidemark.batch b ON b.pipeline = l.name AND b.txid BETWEEN l.first_txid AND l.committed_txid
), phase AS (
    SELECT each.step, jsonb_object_agg(each.name, each.seconds) AS phases
    FROM (
        SELECT b.step, d.key AS name, avg(d.value::text::float8) / 1000 AS seconds
        FROM batch b, jsonb_each(b.metrics -> 'duration_ms') d
        WHERE b.committed_at >= %(since)s AND b.committed_at < %(until)s AND jsonb_typeof(d.value) = 'number'
        GROUP BY b.step, d.key
    ) each
    GROUP BY each.step
), point AS (
    SELECT b.step, extract(epoch FROM max(b.committed_at))::float8 AS at, count(*) AS batches,
           sum(b.rows_in)::bigint AS rows, (sum(b.rows_in) / nullif(sum(b.seconds), 0))::float8 AS rows_per_second,
           avg(b.seconds) AS seconds, max(b.seconds) AS longest_seconds, max(b.freshness) AS freshness_seconds,
           sum(b.dead_letters)::bigint AS dead_letters, sum(b.late)::bigint AS late, sum(b.dropped)::bigint AS dropped,
           count(*) FILTER (WHERE b.attempt > 1) AS replays
    FROM batch b WHERE b.committed_at >= %(since)s AND b.committed_at < %(until)s
    GROUP BY b.step
)
SELECT ledger.epoch, ledger.committed_txid AS txid, point.*, phase.phases
FROM ledger LEFT JOIN point ON true LEFT JOIN phase ON phase.step = point.step
ORDER BY point.at
"""

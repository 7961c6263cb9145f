"""Series: what a pipeline did over time, read from its ledger, and reduced by the database to a limited size.

Time is divided into steps of a round length that start at the same times in every request. The batches that were
committed in one step are one point, at the time of the last of them. A pause is marked by a point without values, so
that a chart shows a gap instead of a line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from math import ceil
from statistics import median
from typing import Any

from tidegauge.state_backends.errors import UnknownPipelineError
from tidegauge.webapp.catalog.batches import halving
from tidegauge.webapp.catalog.queries import fetch, pipeline_names

DAY = 86_400
# Seconds. Each is at least twice the one before it.
STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, DAY)

# Points that are further apart than this many times their usual distance have a gap between them.
GAP_DISTANCES = 5
GAP_STEPS = 3

# Spark's names of the parts of a batch, in the order in which they run.
PHASES = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "commitBatch")

# Figures of a whole batch, so a restricted caller does not see them.
OF_WHOLE_BATCHES = ("rows", "rows_per_second", "arrived_per_second")

# Units of pending input of which each is a row.
ROW_UNITS = ("messages", "entries", "events", "records", "rows")


@dataclass(frozen=True)
class TimeRange:
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
    """epoch, txid: the ledger's epoch and committed batch. times: those of the points, in seconds since 1970.

    series, phases: name to one number, or None, for each time. phases: average seconds of each part of a batch, by
    Spark's names; empty for a restricted caller.
    """

    pipeline: str
    epoch: str
    txid: int
    range: TimeRange
    times: list[float]
    series: Mapping[str, list[float | None]]
    phases: Mapping[str, list[float | None]]

    def without_whole_batches(self) -> "PipelineSeries":
        series = {name: values for name, values in self.series.items() if name not in OF_WHOLE_BATCHES}
        return replace(self, series=series, phases={})


def pipeline_series(name: str, asked: TimeRange) -> PipelineSeries:
    """Raises UnknownPipelineError."""
    span = {"since": asked.since, "until": asked.until, "step": asked.step_seconds}
    rows = fetch(SERIES, span | {"name": name, "most": MOST_BATCHES, "row_units": list(ROW_UNITS)})
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
        phases={phase: [row.get(phase) for row in found] for phase in PHASES},
    )


def with_gaps(points: Sequence[dict[str, Any]], step_seconds: int) -> list[dict[str, Any]]:
    """Return the points, with a further one that has only a time in each pause. Points have their time as `at`."""
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
    "batches", "rows", "rows_per_second", "arrived_per_second", "seconds", "longest_seconds", "freshness_seconds",
    "lag_seconds", "pending", "event_age_seconds", "dead_letters", "late", "dropped", "replays",
)  # fmt: skip

# In a range with more batches than this, only every second one is read, or every fourth and so on.
MOST_BATCHES = 5_000


def _each(figure: str) -> str:
    """Return the SQL of a figure: of each batch, or if batches are skipped, the increase of its running total."""
    total = f"b.total_{figure}"
    return f"CASE WHEN s.stride = 1 THEN b.{figure} ELSE {total} - lag({total}) OVER (ORDER BY b.txid) END AS {figure}"


PENDING = "(b.metrics -> 'pending' ->> 'count')::float8"
# How many rows one unit of pending input is. A file counts as many as those of the batch had on average.
ROWS_OF_A_UNIT = """
CASE WHEN b.metrics -> 'pending' ->> 'unit' = ANY(%(row_units)s) THEN 1
     WHEN b.metrics -> 'pending' ->> 'unit' = 'files' AND b.input -> 1 IS NULL
     THEN b.rows_in / nullif((b.input -> 0 ->> 'count')::float8, 0) END"""

# The ends of a range are found by binary search, because times of commits rise with txids.
SERIES = f"""
WITH RECURSIVE ledger AS (
    SELECT p.name, p.epoch, p.committed_txid
    FROM tidegauge.pipeline p WHERE p.name = %(name)s AND p.reprocesses IS NULL
), halving AS (
    SELECT edge.name, edge.at, 0::bigint AS low, l.committed_txid AS high
    FROM ledger l, (VALUES ('since', %(since)s::timestamptz), ('until', %(until)s)) edge (name, at)
    UNION ALL {halving("committed_at")}
), range AS (
    SELECT max(h.low) FILTER (WHERE h.name = 'since') AS last_before, max(h.low) FILTER (WHERE h.name = 'until') AS last
    FROM halving h
), sample AS MATERIALIZED (
    SELECT power(2, ceil(log(2, greatest(1, (r.last - r.last_before) / %(most)s::numeric))))::bigint AS stride
    FROM range r
), batch AS (
    SELECT b.committed_at, b.attempt, b.metrics, {_each("rows_in")}, {_each("dead_letters")}, {_each("late")},
           {_each("dropped")},
           {PENDING} - lag({PENDING}) OVER (ORDER BY b.txid) AS more_units, {ROWS_OF_A_UNIT} AS rows_of_a_unit,
           b.epoch <> lag(b.epoch) OVER (ORDER BY b.txid) AS went_back,
           CASE WHEN s.stride = 1 THEN 1 ELSE b.txid - lag(b.txid) OVER (ORDER BY b.txid) END AS batches,
           extract(epoch FROM b.committed_at - b.started_at)::float8 AS seconds,
           extract(epoch FROM b.committed_at - coalesce(
               lag(b.committed_at) OVER (ORDER BY b.txid), CASE WHEN s.stride = 1 THEN b.started_at END
           )) AS passed,
           extract(epoch FROM b.committed_at - before.batch_time)::float8 AS freshness
    FROM range r, sample s, generate_series(r.last_before / s.stride * s.stride, r.last, s.stride) picked (txid)
    JOIN tidegauge.batch b ON b.pipeline = %(name)s AND b.txid = picked.txid
    LEFT JOIN tidegauge.batch before ON before.pipeline = b.pipeline AND before.txid = b.txid - 1
), point AS (
    SELECT extract(epoch FROM max(b.committed_at))::float8 AS at, sum(b.batches)::bigint AS batches,
           sum(b.rows_in)::bigint AS rows, (sum(b.rows_in) / nullif(sum(b.passed), 0))::float8 AS rows_per_second,
           (greatest(0, sum(b.rows_in + w.more))
               / nullif(sum(b.passed) FILTER (WHERE w.more IS NOT NULL), 0))::float8 AS arrived_per_second,
           avg(b.seconds) AS seconds, max(b.seconds) AS longest_seconds, max(b.freshness) AS freshness_seconds,
           max(m.lag_seconds) AS lag_seconds, max((m.pending ->> 'count')::float8) AS pending,
           max(m.event_age_seconds) AS event_age_seconds,
           sum(b.dead_letters)::bigint AS dead_letters, sum(b.late)::bigint AS late, sum(b.dropped)::bigint AS dropped,
           count(*) FILTER (WHERE b.attempt > 1) AS replays,
           {", ".join(f'avg(d."{part}") / 1000 AS "{part}"' for part in PHASES)}
    -- How many more rows wait than after the batch before. Unknown if the ledger went back in between, because the rows
    -- counted again have not arrived again.
    FROM batch b CROSS JOIN LATERAL (
             SELECT CASE WHEN b.went_back THEN NULL WHEN b.more_units = 0 THEN 0
                         ELSE b.more_units * b.rows_of_a_unit END
         ) w (more),
         jsonb_to_record(b.metrics) m (lag_seconds float8, pending jsonb, event_age_seconds float8, duration_ms jsonb),
         jsonb_to_record(coalesce(m.duration_ms, '{{}}')) d ({", ".join(f'"{part}" float8' for part in PHASES)})
    WHERE b.committed_at >= %(since)s AND b.committed_at < %(until)s
    GROUP BY floor(extract(epoch FROM b.committed_at) / %(step)s)
)
SELECT ledger.epoch, ledger.committed_txid AS txid, point.*
FROM ledger LEFT JOIN point ON true
ORDER BY point.at
"""  # noqa: S608  fixed texts

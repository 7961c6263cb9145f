"""Figures of pipelines that a rule may limit, from the batches in the ledger and the input that drivers report.

An unknown figure is neither above a limit nor within it, so it begins no alert and ends none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.core.writing import percent
from tidegauge.webapp.notify.alerts.models import AlertRule


@dataclass(frozen=True)
class Figures:
    """The figures of one pipeline, named as the limits of a rule; None: unknown.

    batch_gap_seconds: since its newest batch was committed. event_age_seconds: age of the newest event of its newest
    five batches, for pipelines with event time. batch_seconds: median of the newest five batches, so that a single slow
    one does not count; only of the last day, and unknown for fewer than three.
    """

    lag_seconds: float | None
    pending_input: int | None
    rejected_share: float | None
    event_age_seconds: float | None
    batch_gap_seconds: float | None
    batch_seconds: float | None


def _in_s(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.2f} s"


@dataclass(frozen=True)
class Limit:
    """figure: what it limits. verdict: of an alert about a figure above it. reason: a format with figure and limit.

    form: writes a figure with its unit.
    """

    figure: str
    verdict: str
    reason: str
    form: Callable[[float], str] = _in_s


# By the field of AlertRule.
LIMITS = {
    "lag_seconds": Limit("lag", "lag above limit", "its oldest input has waited for {}, more than {}"),
    "pending_input": Limit(
        "pending input", "pending input above limit", "its pending input is {}, more than {}", "{:,}".format
    ),
    "rejected_share": Limit(
        "share of dead letters",
        "dead letters above limit",
        "{} of the rows of recent batches are dead letters, more than {}",
        percent,
    ),
    "event_age_seconds": Limit(
        "age of the newest event", "newest event too old", "its newest event is {} old, more than {}"
    ),
    "batch_gap_seconds": Limit(
        "time since the newest batch", "no batch within limit", "its newest batch was committed {} ago, more than {}"
    ),
    "batch_seconds": Limit(
        "duration of batches", "batch seconds above limit", "its newest batches take {}, more than {}"
    ),
}
ABOVE_LIMIT = [limit.verdict for limit in LIMITS.values()]

NEWEST_BATCHES = """
SELECT p.name, newest.newest_event, CASE WHEN newest.batches >= 3 THEN newest.seconds END AS seconds
FROM tidegauge.pipeline p CROSS JOIN LATERAL (
    SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM b.committed_at - b.started_at))
             FILTER (WHERE r.is_recent)::float8 AS seconds,
           count(*) FILTER (WHERE r.is_recent) AS batches,
           max(b.committed_at - (b.metrics ->> 'event_age_seconds')::float8 * interval '1 s') AS newest_event
    FROM tidegauge.batch b, LATERAL (SELECT b.committed_at > clock_timestamp() - interval '1 day' AS is_recent) r
    WHERE b.pipeline = p.name AND b.txid BETWEEN p.committed_txid - 4 AND p.committed_txid
) newest
WHERE p.name = ANY(%(names)s) AND p.reprocesses IS NULL
"""


def limits_of(rule: AlertRule) -> dict[str, float]:
    """Return the limits that a rule has."""
    given = {name: getattr(rule, name) for name in LIMITS}
    return {name: limit for name, limit in given.items() if limit is not None}


def figures(pipelines: Sequence[PipelineStatus], at: datetime) -> Mapping[str, Figures]:
    """Return the figures of each pipeline, by its name."""
    rows = queries.fetch(NEWEST_BATCHES, {"names": [each.name for each in pipelines]})
    newest = {row["name"]: row for row in rows}
    return {each.name: _figures(each, newest.get(each.name, {}), at) for each in pipelines}


def _figures(pipeline: PipelineStatus, newest: Mapping[str, Any], at: datetime) -> Figures:
    return Figures(
        lag_seconds=pipeline.lag_seconds,
        pending_input=(pipeline.pending or {}).get("count"),
        rejected_share=pipeline.rejected_share,
        event_age_seconds=_since(newest.get("newest_event"), at),
        batch_gap_seconds=_since(pipeline.committed_at, at),
        batch_seconds=newest.get("seconds"),
    )


def _since(moment: datetime | None, at: datetime) -> float | None:
    return None if moment is None else (at - moment).total_seconds()

"""The head of the Health page: the verdict on all pipelines as a title, four figures, and the waterline of the lag."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Sum
from django.utils import timezone

from tidegauge.webapp.accounts.models import UsageHour
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.verdicts import verdict
from tidegauge.webapp.console.dashboard.incidents import Incident
from tidegauge.webapp.core.writing import number
from tidegauge.webapp.notify.alerts.models import HealthSample
from tidegauge.webapp.notify.alerts.samples import sample, samples

SHOWN = timedelta(hours=1)
WIDTH, HEIGHT = 1000, 64
# The drawing reaches this many times the limit at least, so that the mark has room above it.
ABOVE_LIMIT, ABOVE_LAG = 1.35, 1.1
# Without a check for longer than this, nobody knows what the lag was.
GAP_SECONDS = 120


@dataclass(frozen=True)
class Waterline:
    """The worst lag of the last hour. areas: points for SVG, one area between two gaps. mark: where the limit is."""

    areas: Sequence[str]
    mark: float | None
    limit: float | None
    is_above: bool


@dataclass(frozen=True)
class Figures:
    """worst_lag: seconds. rejected: share of the rows of the last hour. requests: to the API in the last full hour.

    None: unknown, or not for a restricted reader.
    """

    worst_lag: float | None
    rows_per_second: float
    rejected: float | None
    requests: int | None


@dataclass(frozen=True)
class Health:
    """unserved: names of states whose reads are refused, because their store and the ledger disagree."""

    title: str
    says: str
    figures: Figures
    waterline: Waterline | None
    unserved: Sequence[str]


def health(pipelines: Sequence[PipelineStatus], found: Sequence[Incident], *, is_restricted: bool) -> Health:
    """Return the head of the page. A restricted reader gets no figures that are about other pipelines, too."""
    now = timezone.now()
    latest = sample(pipelines, now)
    recorded = [] if is_restricted else samples(now - SHOWN)
    figures = Figures(
        worst_lag=latest.lag_seconds,
        rows_per_second=sum(pipeline.rows_per_second for pipeline in pipelines),
        rejected=_rejected(recorded, latest),
        requests=None if is_restricted else _requests(now),
    )
    line = waterline([*recorded, latest], now, settings.TIDEGAUGE_STALE_AFTER_SECONDS) if recorded else None
    unserved = [name for pipeline in pipelines for name in pipeline.unserved]
    return Health(_title(pipelines, found, unserved), _says(pipelines, found), figures, line, unserved)


def waterline(points: Sequence[HealthSample], now: datetime, limit: float | None) -> Waterline:
    lags = [point.lag_seconds or 0.0 for point in points]
    top = max(ABOVE_LIMIT * (limit or 0.0), ABOVE_LAG * max(lags, default=0.0), 1.0)
    areas = [_area(run, now, top) for run in _runs(points)]
    mark = None if limit is None else round(HEIGHT * (1 - limit / top), 1)
    return Waterline(areas, mark, limit, is_above=limit is not None and bool(lags) and lags[-1] > limit)


def _runs(points: Sequence[HealthSample]) -> list[list[HealthSample]]:
    runs: list[list[HealthSample]] = []
    for point in points:
        if not runs or (point.at - runs[-1][-1].at).total_seconds() > GAP_SECONDS:
            runs.append([])
        runs[-1].append(point)
    return runs


def _area(points: Sequence[HealthSample], now: datetime, top: float) -> str:
    drawn = [
        (
            round(WIDTH * (1 - (now - point.at) / SHOWN), 1),
            round(HEIGHT * (1 - (point.lag_seconds or 0.0) / top), 1),
        )
        for point in points
    ]
    closed = [(drawn[0][0], HEIGHT + 2), *drawn, (drawn[-1][0], HEIGHT + 2)]
    return " ".join(f"{x:g},{y:g}" for x, y in closed)


def _rejected(recorded: Sequence[HealthSample], latest: HealthSample) -> float | None:
    """Return the share of dead letters since the oldest sample; None if nothing was counted, or a pipeline is gone."""
    rows = latest.rows - recorded[0].rows if recorded else 0
    return max(0, latest.dead_letters - recorded[0].dead_letters) / rows if rows > 0 else None


def _requests(now: datetime) -> int:
    hour = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    return UsageHour.objects.filter(hour=hour).aggregate(sum=Sum("requests"))["sum"] or 0


def _title(pipelines: Sequence[PipelineStatus], found: Sequence[Incident], unserved: Sequence[str]) -> str:
    count = len(pipelines)
    needed = sum(each.acknowledged is None for incident in found for each in incident.pipelines)
    if needed:
        whole = "The pipeline needs" if count == 1 else f"{number(needed)} of {number(count)} pipelines need"
        return f"{whole}{'s' if needed == 1 and count > 1 else ''} you"
    if unserved:
        return "A state is not served" if len(unserved) == 1 else f"{number(len(unserved))} states are not served"
    if found:
        return "Every problem is acknowledged"
    if all(verdict(pipeline).tone == "good" for pipeline in pipelines):
        return "The pipeline is well" if count == 1 else f"All {number(count)} pipelines are well"
    return f"No problems in {number(count)} pipeline{'s' if count > 1 else ''}"


def _says(pipelines: Sequence[PipelineStatus], found: Sequence[Incident]) -> str:
    states = sum(len(pipeline.states) for pipeline in pipelines)
    stale = sum(each.stale for incident in found for each in incident.pipelines)
    taken = sum(each.acknowledged is not None for incident in found for each in incident.pipelines)
    parts = [f"{number(stale)} of {number(states)} states are stale"] if stale else []
    parts += [f"{number(taken)} acknowledged"] if taken else []
    return " · ".join(parts)

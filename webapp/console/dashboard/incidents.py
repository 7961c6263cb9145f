"""Incidents: the pipelines that need somebody, grouped by the cause that they share."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.verdicts import Verdict, verdict
from tidegauge.webapp.console.dashboard.verdict_history import Bar, bars_of
from tidegauge.webapp.notify.alerts.acknowledged import acknowledgements
from tidegauge.webapp.notify.alerts.messages import silences
from tidegauge.webapp.notify.alerts.models import Acknowledgement, Silence, VerdictPeriod

SHOWN = timedelta(hours=24)
CAUSE_CHARACTERS = 160

# What differs between two messages of one cause: names in quotes, and numbers. As REASON_PATTERN for dead letters.
DIFFERS = re.compile(r"""(?<!\w)('[^']*'|"[^"]*")(?!\w)|(?<!\w)[-+]?[0-9][0-9A-Fa-f.:+TZ-]*""")


@dataclass(frozen=True)
class Troubled:
    """A pipeline that needs somebody. since: None if nobody recorded it. bars: its verdicts of the last 24 hours.

    stale: how many of its states are not fresh.
    """

    pipeline: PipelineStatus
    found: Verdict
    since: datetime | None
    bars: Sequence[Bar]
    stale: int
    acknowledged: Acknowledgement | None
    silence: Silence | None

    @property
    def command(self) -> str:
        """The first command of its remedy; empty if it has none."""
        return self.found.remedy.partition("`")[2].partition("`")[0]


@dataclass(frozen=True)
class Incident:
    """Pipelines with one cause, the worst first."""

    cause: str
    pipelines: Sequence[Troubled]

    @property
    def tone(self) -> str:
        return self.pipelines[0].found.tone

    @property
    def is_open(self) -> bool:
        """Return whether nobody has acknowledged all of it."""
        return any(each.acknowledged is None for each in self.pipelines)

    @property
    def is_silenced(self) -> bool:
        return all(each.silence is not None for each in self.pipelines)


def incidents(pipelines: Iterable[PipelineStatus], *, is_restricted: bool) -> list[Incident]:
    """Return the incidents in the order of their worst pipeline. pipelines: the worst first."""
    troubled = [pipeline for pipeline in pipelines if verdict(pipeline).is_problem]
    if not troubled:
        return []
    names = [pipeline.name for pipeline in troubled]
    periods = periods_of(names)
    # Their users' names and texts are not for a restricted reader.
    taken = {} if is_restricted else acknowledgements(troubled)
    quiet = {} if is_restricted else _silenced(names)
    groups: dict[str, list[Troubled]] = {}
    for pipeline in troubled:
        own, found = periods.get(pipeline.name, []), verdict(pipeline)
        each = Troubled(
            pipeline=pipeline,
            found=found,
            since=_since(pipeline, own),
            bars=bars_of(pipeline, own, SHOWN),
            stale=len(pipeline.states) if found.is_stale else 0,
            acknowledged=taken.get(pipeline.name),
            silence=quiet.get(pipeline.name),
        )
        groups.setdefault(_kind_of_cause(pipeline), []).append(each)
    return [Incident(cause_of(group[0].pipeline), group) for group in groups.values()]


def cause_of(pipeline: PipelineStatus) -> str:
    """Return the first line of the driver's message, or the reason of the verdict if it has none."""
    found = verdict(pipeline)
    if found.name in ("failed", "retrying") and pipeline.message.strip():
        line = pipeline.message.strip().splitlines()[0]
        return line if len(line) <= CAUSE_CHARACTERS else f"{line[:CAUSE_CHARACTERS]}…"
    return f"{found.reason} on host {pipeline.host}" if found.name == "lost" and pipeline.host else found.reason


def _kind_of_cause(pipeline: PipelineStatus) -> str:
    """Return what pipelines of one incident have in common: the cause, without what differs from one to the next."""
    found = verdict(pipeline)
    if found.name == "lost":
        return cause_of(pipeline)
    if found.name in ("failed", "retrying") and pipeline.message:
        return DIFFERS.sub("…", cause_of(pipeline))
    return pipeline.name  # two that are paused are two decisions


def periods_of(names: Collection[str]) -> Mapping[str, list[VerdictPeriod]]:
    """Return the recorded periods of the last 24 hours, by pipeline."""
    found: dict[str, list[VerdictPeriod]] = {}
    since = timezone.now() - SHOWN
    rows = VerdictPeriod.objects.filter(pipeline__in=names, until__gte=since).order_by("began_at", "id")
    for period in rows:
        found.setdefault(period.pipeline, []).append(period)
    return found


def _since(pipeline: PipelineStatus, periods: Sequence[VerdictPeriod]) -> datetime | None:
    """Return since when it has its verdict: since its driver ended, or as the periodic check has recorded it."""
    if pipeline.ended_at is not None:
        return pipeline.ended_at
    last = periods[-1] if periods else None
    return last.began_at if last and last.is_current and last.verdict == verdict(pipeline).name else None


def _silenced(names: Collection[str]) -> Mapping[str, Silence]:
    """Return the longest silence of each pipeline that stops the messages of all rules."""
    of_all = sorted((each for each in silences(timezone.now()) if each.rule_id is None), key=lambda each: each.until)
    return {name: each for each in of_all for name in names if each.pipeline in ("", name)}

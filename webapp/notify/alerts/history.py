"""The history of verdicts: which one each pipeline had, from when until when.

Only the periodic task writes it. If it has not run for longer than LONGEST_PAUSE, the history has a gap instead of the
verdict from before, because nobody knows what happened.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest

from django.db.models import Exists
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.verdicts import TONES, verdict
from tidegauge.webapp.core.cached import Cached
from tidegauge.webapp.notify.alerts.models import LastCheck, VerdictPeriod

TASK = "alerts.check"
LONGEST_PAUSE = timedelta(minutes=2)
LAST_CHECK = 1

# Of all good verdicts, because these change with each batch.
WELL = "well"


def tone_of(verdict: str) -> str:
    """Return the tone of a recorded verdict."""
    return TONES["caught up"] if verdict == WELL else TONES[verdict]


@dataclass(frozen=True)
class VerdictChange:
    """A change of a pipeline's verdict. before: the previous one; empty if it is unknown."""

    at: datetime
    until: datetime
    before: str
    verdict: str
    reason: str

    @property
    def tone(self) -> str:
        return tone_of(self.verdict)

    @property
    def length(self) -> timedelta:
        return max(timedelta(), self.until - self.at)


def recorded_name(pipeline: PipelineStatus) -> str:
    """Return the verdict as recorded: all good ones count as one."""
    found = verdict(pipeline)
    return WELL if found.tone == "good" else found.name


def record_verdicts(pipelines: Iterable[PipelineStatus], at: datetime) -> None:
    """Extend the period of each pipeline whose verdict is as before; end the others, and begin new ones.

    Runs in the caller's transaction, of which there must be only one at a time.
    """
    current = {period.pipeline: period for period in VerdictPeriod.objects.filter(is_current=True)}
    lasting: list[int] = []
    begun: list[VerdictPeriod] = []
    for pipeline in pipelines:
        name, period = recorded_name(pipeline), current.get(pipeline.name)
        if period and period.verdict == name and not _is_gap(period, at):
            lasting.append(period.pk)
        else:
            begun.append(
                VerdictPeriod(
                    pipeline=pipeline.name, verdict=name, reason=verdict(pipeline).reason, began_at=at, until=at
                )
            )
    ended = [period for period in current.values() if period.pk not in lasting]
    followed = [period.pk for period in ended if not _is_gap(period, at)]
    VerdictPeriod.objects.filter(pk__in=[*lasting, *followed]).update(until=at)
    VerdictPeriod.objects.filter(pk__in=[period.pk for period in ended]).update(is_current=False)
    VerdictPeriod.objects.bulk_create(begun)
    LastCheck.objects.update_or_create(pk=LAST_CHECK, defaults={"at": at})


def periods(pipeline: str, since: datetime, until: datetime) -> list[VerdictPeriod]:
    """Return the periods of a pipeline that overlap a time range, oldest first."""
    found = VerdictPeriod.objects.filter(pipeline=pipeline, began_at__lt=until, until__gte=since)
    return list(found.order_by("began_at", "id"))


def changes(pipeline: str, limit: int) -> list[VerdictChange]:
    """Return the newest changes of a pipeline's verdict, newest first."""
    found = list(VerdictPeriod.objects.filter(pipeline=pipeline)[: limit + 1])
    return [
        VerdictChange(
            at=period.began_at,
            until=period.until,
            before=before.verdict if before and not _is_gap(before, period.began_at) else "",
            verdict=period.verdict,
            reason=period.reason,
        )
        for period, before in zip_longest(found[:limit], found[1:])
    ]


def _is_gap(period: VerdictPeriod, at: datetime) -> bool:
    return at - period.until > LONGEST_PAUSE


def _read_last_check() -> datetime | None:
    is_scheduled = Exists(PeriodicTask.objects.filter(task=TASK, enabled=True))
    return LastCheck.objects.filter(is_scheduled).values_list("at", flat=True).first()


last_check = Cached(_read_last_check, 1.0)


def silent_since() -> datetime | None:
    """Return when the schedule last ran, if it has stopped although it is enabled; None otherwise."""
    at = last_check()
    return at if at is not None and timezone.now() - at > LONGEST_PAUSE else None

"""The maintenance schedule: its tasks, how often they run, and when they run next."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.maintenance.services import SCHEDULE


@dataclass(frozen=True)
class ScheduledTask:
    """every: as text. last_at: None if it never ran. next_at: None if it is disabled."""

    id: int
    name: str
    every: str
    is_enabled: bool
    last_at: datetime | None
    next_at: datetime | None


def scheduled() -> list[ScheduledTask]:
    """Return the tasks that maintain states, by their names."""
    tasks = PeriodicTask.objects.filter(task="states.maintain_all").select_related(
        "interval", "crontab", "solar", "clocked"
    )
    requested = _last_requested()
    return [described(task, requested.get(_kind(task))) for task in tasks.order_by("name") if task.scheduler]


def described(task: PeriodicTask, requested_at: datetime | None = None) -> ScheduledTask:
    """requested_at: when the task last requested a run, because the scheduler stores its own time minutes later."""
    # For a crontab, str() is the crontab expression.
    every = getattr(task.scheduler, "human_readable", None) or str(task.scheduler)
    last_at = max((at for at in (task.last_run_at, requested_at) if at), default=None)
    return ScheduledTask(task.id, task.name, every, task.enabled, last_at, _next_at(task, last_at))


def _last_requested() -> dict[str, datetime]:
    """Return when the schedule last requested a run of each kind."""
    runs = MaintenanceRun.objects.filter(requested_by=SCHEDULE).order_by()
    return dict(runs.values_list("kind").annotate(Max("requested_at")))


def _kind(task: PeriodicTask) -> str:
    try:
        return str(json.loads(task.args)[0])
    except (ValueError, LookupError, TypeError):
        return ""


def _next_at(task: PeriodicTask, last_at: datetime | None) -> datetime | None:
    """Return when the scheduler runs the task next, by the scheduler's own estimate; now if it is overdue."""
    if not task.enabled:
        return None
    since = last_at or task.start_time or task.date_changed
    return timezone.now() + max(timedelta(), task.schedule.remaining_estimate(since))

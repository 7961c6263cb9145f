"""The schedule, read: which tasks run by themselves, how often, and when next."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django_celery_beat.models import PeriodicTask


@dataclass(frozen=True)
class ScheduledTask:
    """every: in words. last_at, next_at: None where it never ran, or never will while nothing changes."""

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
    return [as_told(task) for task in tasks.order_by("name") if task.scheduler]


def as_told(task: PeriodicTask) -> ScheduledTask:
    # A crontab's own text is for its author.
    every = getattr(task.scheduler, "human_readable", None) or str(task.scheduler)
    return ScheduledTask(task.id, task.name, every, task.enabled, task.last_run_at, _next_at(task))


def _next_at(task: PeriodicTask) -> datetime | None:
    """Return when the scheduler takes it up next, by its own reckoning; now where that is overdue."""
    if not task.enabled:
        return None
    began = task.last_run_at or task.start_time or task.date_changed
    return timezone.now() + max(timedelta(), task.schedule.remaining_estimate(began))

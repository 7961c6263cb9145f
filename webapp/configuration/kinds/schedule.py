"""The maintenance schedule: tasks of the admin's list that run at an interval or by a crontab.

Tasks that the admin cannot make, such as those of Celery itself, are left alone.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from tidegauge.webapp.accounts.actors import Actor
from tidegauge.webapp.configuration.errors import ConfigurationError
from tidegauge.webapp.configuration.fields import FLAG, REQUIRED, TEXT, Field, Fields
from tidegauge.webapp.configuration.kinds.kind import FormKind, check, record_added
from tidegauge.webapp.configuration.spans import SPAN, parts_of
from tidegauge.webapp.maintenance.admin.schedule import IntervalForm, PeriodicTaskForm, work_of

COLUMNS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")


def _default(work: str, every: str, *, enabled: bool = True) -> Fields:
    return {"work": work, "every": every, "crontab": None, "timezone": "UTC", "enabled": enabled, "description": ""}


class Schedule(FormKind):
    noun = "schedule"
    fields = {
        "work": Field(TEXT, REQUIRED),
        "every": Field(SPAN),
        "crontab": Field(TEXT),
        "timezone": Field(TEXT, "UTC"),
        "enabled": Field(FLAG, True),
        "description": Field(TEXT, ""),
    }
    # Those of the migrations, without which states are not compacted and webhooks not sent.
    kept = {
        "Compact all states": _default("compaction", "1 hour"),
        "Expire rows past their time": _default("expiry", "10 minutes"),
        "Audit states with a changelog": _default("audit", "1 day", enabled=False),
        "Check pipelines": _default("alerts", "15 seconds"),
        "Send webhooks": _default("webhooks", "10 seconds"),
    }

    def stored(self, names: Collection[str] | None) -> dict[str, PeriodicTask]:
        tasks = PeriodicTask.objects.select_related("interval", "crontab")
        tasks = tasks if names is None else tasks.filter(name__in=names)
        return {task.name: task for task in tasks if work_of(task) and (task.interval or task.crontab)}

    def values(self, found: PeriodicTask) -> dict[str, Any]:
        every, crontab = found.interval, found.crontab
        return {
            "work": str(work_of(found)),
            "every": every and timedelta(**{every.period: every.every}),
            "crontab": crontab and " ".join(getattr(crontab, column).replace(" ", "") for column in COLUMNS),
            "timezone": str(crontab.timezone) if crontab else "UTC",
            "enabled": found.enabled,
            "description": found.description,
        }

    def form(self, name: str, fields: Fields, found: PeriodicTask | None, by: Actor) -> PeriodicTaskForm:
        answers: dict[str, Any] = {"name": name, **fields}
        answers["interval"] = fields["every"] and _interval(fields["every"], by).pk
        answers["crontab"] = fields["crontab"] and _crontab(fields["crontab"], fields["timezone"], by).pk
        return check(PeriodicTaskForm(answers, instance=found))


def _interval(every: str, by: Actor) -> IntervalSchedule:
    count, unit = parts_of(every)
    wanted = {"every": count, "period": f"{unit}s"}
    found = IntervalSchedule.objects.filter(**wanted).first()  # the table may have several equal ones
    if found is None:
        found = check(IntervalForm(wanted)).save()
        record_added(found, by)
    return found


def _crontab(text: str, timezone: str, by: Actor) -> CrontabSchedule:
    parts = text.split(" ")
    if len(parts) != len(COLUMNS):
        raise ConfigurationError(f"crontab: {text!r} does not have five parts: {', '.join(COLUMNS)}")
    wanted = CrontabSchedule(**dict(zip(COLUMNS, parts, strict=True)), timezone=timezone)
    try:
        wanted.full_clean()
    except ValidationError as error:
        raise ConfigurationError(f"crontab: {'; '.join(error.messages)}") from error
    given = {column: getattr(wanted, column) for column in (*COLUMNS, "timezone")}
    found = CrontabSchedule.objects.filter(**given).first()
    if found is None:
        wanted.save()
        record_added(wanted, by)
    return found or wanted

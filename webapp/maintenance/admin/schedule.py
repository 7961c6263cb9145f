"""The maintenance schedule of django-celery-beat, limited to tasks that the workers know."""

import json
from datetime import timedelta
from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget

from tidegauge.webapp.accounts.audit.admin import AuditedEdits
from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.celery import app
from tidegauge.webapp.core.admin_pages import link_to_audit, moment
from tidegauge.webapp.maintenance.schedule import described

# Solar and one-off schedules are not offered, because maintenance is either periodic or requested.
for model in (PeriodicTask, IntervalSchedule, CrontabSchedule, SolarSchedule, ClockedSchedule):
    admin.site.unregister(model)

MAINTAIN_ALL = "states.maintain_all"
# Tasks that can be scheduled: label, task name, and arguments as celery-beat stores them.
WORK: dict[str, tuple[str, str, str]] = {
    MaintenanceRun.Kind.COMPACTION: ("Compact all states", MAINTAIN_ALL, '["compaction"]'),
    MaintenanceRun.Kind.EXPIRY: ("Expire rows of all states", MAINTAIN_ALL, '["expiry"]'),
    MaintenanceRun.Kind.AUDIT: ("Audit all states with a changelog", MAINTAIN_ALL, '["audit"]'),
    "webhooks": ("Send webhooks", "webhooks.follow", "[]"),
    "alerts": ("Check pipelines", "alerts.check", "[]"),
}
UNCHANGED = "unchanged"

# Each task requests a run of every state, so shorter intervals would only fill the queue.
MIN_INTERVAL = timedelta(seconds=10)


def work_of(task: PeriodicTask) -> str | None:
    """Return the key of a task in WORK; None if WORK does not have it."""
    stored = task.task, _json(task.args)
    return next((key for key, (_, name, args) in WORK.items() if stored == (name, _json(args))), None)


def task_call(task: PeriodicTask) -> str:
    return f"{task.task} {task.args}".removesuffix(" []")


def _json(text: str) -> Any:
    try:
        return json.loads(text or "[]")
    except ValueError:
        return text


def is_known(task: PeriodicTask) -> bool:
    """Return whether the workers have a task of this name."""
    app.loader.import_default_modules()
    return task.task in app.tasks


class PeriodicTaskForm(forms.ModelForm):
    work = forms.ChoiceField(label="Task", widget=UnfoldAdminSelectWidget)

    class Meta:
        model = PeriodicTask
        fields = ["name", "interval", "crontab", "enabled", "description"]
        labels = {"enabled": "Enabled", "interval": "Interval", "crontab": "Crontab"}
        # Replaced, because the defaults describe database columns.
        help_texts = {
            "name": "",
            "enabled": "",
            "description": "Shown in this admin only.",
            "interval": "Counted from the last run.",
            "crontab": "By hour and day.",
        }
        widgets = {"description": UnfoldAdminTextareaWidget(attrs={"rows": 2})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(str(key), label) for key, (label, *_) in WORK.items()]
        known = work_of(self.instance)
        if self.instance.pk and known is None:
            choices.insert(0, (UNCHANGED, task_call(self.instance)))
        cast(forms.ChoiceField, self.fields["work"]).choices = choices
        self.initial["work"] = known or choices[0][0]

    def clean_work(self) -> str:
        work = str(self.cleaned_data["work"])
        if work == UNCHANGED and not is_known(self.instance):
            raise forms.ValidationError(
                f"no worker knows task {self.instance.task!r}; choose another task, or delete this entry"
            )
        return work

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if bool(cleaned.get("interval")) == bool(cleaned.get("crontab")) and not self.errors:
            raise forms.ValidationError("choose either an interval or a crontab")
        return cleaned

    def _post_clean(self) -> None:
        work = self.cleaned_data.get("work")
        if work in WORK:
            _, self.instance.task, self.instance.args = WORK[work]
            self.instance.kwargs = "{}"
        super()._post_clean()  # type: ignore[misc]


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(AuditedEdits, ModelAdmin):
    form = PeriodicTaskForm
    list_display = ["name", "does", "every", "state_of_task", "last_run", "next_run"]
    list_filter = ["enabled"]
    list_fullwidth = True
    search_fields = ["name", "description"]
    actions = ["turn_on", "turn_off"]
    warn_unsaved_form = True
    fieldsets = [
        (None, {"fields": ["name", "work", "enabled", "description"]}),
        (
            "Schedule",
            {
                "description": "Choose one. Tasks can share a schedule; changing it changes all of them.",
                "fields": ["interval", "crontab"],
            },
        ),
        ("History", {"fields": ["last_run", "next_run", "total_runs", "audit"]}),
    ]
    readonly_fields = ["last_run", "next_run", "total_runs", "audit"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[PeriodicTask]:
        return super().get_queryset(request).select_related("interval", "crontab", "solar", "clocked").order_by("name")

    def get_fieldsets(self, request: HttpRequest, obj: PeriodicTask | None = None):
        shown = list(self.fieldsets) if obj else self.fieldsets[:-1]
        if obj and not self.has_change_permission(request, obj):
            # `does` in place of `work`, because a read-only page has no form and so no field `work`.
            shown[0] = (None, {"fields": ["name", "does", "enabled", "description"]})
        return shown

    @admin.action(description="Enable", permissions=["change"])
    def turn_on(self, request: HttpRequest, queryset: QuerySet[PeriodicTask]) -> None:
        self._set_enabled(request, queryset, enabled=True)

    @admin.action(description="Disable", permissions=["change"])
    def turn_off(self, request: HttpRequest, queryset: QuerySet[PeriodicTask]) -> None:
        self._set_enabled(request, queryset, enabled=False)

    def _set_enabled(self, request: HttpRequest, queryset: QuerySet[PeriodicTask], *, enabled: bool) -> None:
        for task in queryset:
            if enabled and not is_known(task):
                messages.error(request, f"{task.name}: no worker knows task {task.task!r}, so it stays disabled")
                continue
            task.enabled = enabled
            task.save()
            messages.success(request, f"{task.name}: {'enabled' if enabled else 'disabled'}")

    def audited(self, instance: PeriodicTask) -> dict[str, Any]:
        return {"task": instance.task, "args": instance.args, "when": str(instance.scheduler), "on": instance.enabled}

    def record_edit(self, by: str, act: str, instance: PeriodicTask, **detail: Any) -> None:
        record(f"schedule.{act}", f"schedule {instance.name}", by=by, **detail)

    @display(description="Task")
    def does(self, task):
        work = work_of(task)
        return WORK[work][0] if work else task_call(task)

    @display(description="Schedule")
    def every(self, task):
        return described(task).every if task.scheduler else "never"

    @display(description="Status", label={"enabled": "success", "disabled": "warning", "unknown task": "danger"})
    def state_of_task(self, task):
        if not is_known(task):
            return "unknown task"
        return "enabled" if task.enabled else "disabled"

    @display(description="Last run", ordering="last_run_at")
    def last_run(self, task):
        return moment(task.last_run_at)

    @display(description="Next run")
    def next_run(self, task):
        return moment(described(task).next_at) if task.scheduler else None

    @display(description="Total runs")
    def total_runs(self, task):
        return f"{task.total_run_count:,}"

    @display(description="Audit")
    def audit(self, task):
        return link_to_audit("schedule", task.name)


class IntervalForm(forms.ModelForm):
    class Meta:
        model = IntervalSchedule
        fields = ["every", "period"]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        every, period = cleaned.get("every"), cleaned.get("period")
        try:
            is_short = bool(every and period) and timedelta(**{str(period): float(every or 0)}) < MIN_INTERVAL
        except OverflowError:
            raise forms.ValidationError("the interval is too long; disable the task instead") from None
        if is_short:
            raise forms.ValidationError(f"the shortest interval is {MIN_INTERVAL.seconds} seconds")
        return cleaned


class TimingAdmin(AuditedEdits, ModelAdmin):
    """Schedules that tasks share. A schedule in use cannot be deleted, because that would delete its tasks."""

    list_fullwidth = True

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        return super().get_queryset(request).prefetch_related("periodictask_set")

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {name: action for name, action in super().get_actions(request).items() if name != "delete_selected"}

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return super().has_delete_permission(request, obj) and not (obj and self._is_used(obj))

    def _is_used(self, timing: Any) -> bool:
        return bool(timing.periodictask_set.exists())

    def record_edit(self, by: str, act: str, instance: Model, **detail: Any) -> None:
        record(f"schedule.{act}", f"schedule {instance}", by=by, **detail)

    @display(description="Used by")
    def used_by(self, timing):
        return ", ".join(sorted(task.name for task in timing.periodictask_set.all())) or "no task"


@admin.register(IntervalSchedule)
class IntervalAdmin(TimingAdmin):
    form = IntervalForm
    list_display = ["__str__", "used_by"]
    fields = ["every", "period"]


@admin.register(CrontabSchedule)
class CrontabAdmin(TimingAdmin):
    list_display = ["in_words", "__str__", "used_by"]
    fields = ["minute", "hour", "day_of_month", "month_of_year", "day_of_week", "timezone"]

    @display(description="In words")
    def in_words(self, timing):
        return timing.human_readable

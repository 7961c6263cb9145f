"""The schedule of django-celery-beat, as far as it makes sense here: which tasks run by themselves, and how often."""

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

from webapp.accounts.audit.admin import AuditedEdits
from webapp.accounts.audit.services import record
from webapp.celery import app
from webapp.states.admin.base import link_to_audit, moment
from webapp.states.models import MaintenanceRun
from webapp.states.schedule import as_told

# Nobody here rises with the sun, and what is to happen once can be asked for when it is.
for model in (PeriodicTask, IntervalSchedule, CrontabSchedule, SolarSchedule, ClockedSchedule):
    admin.site.unregister(model)

MAINTAIN_ALL = "states.maintain_all"
# What may be scheduled: the name of a task and its arguments, as celery-beat keeps them.
WORK: dict[str, tuple[str, str, str]] = {
    MaintenanceRun.Kind.COMPACTION: ("Compact all states", MAINTAIN_ALL, '["compaction"]'),
    MaintenanceRun.Kind.EXPIRY: ("Expire rows of all states", MAINTAIN_ALL, '["expiry"]'),
}
AS_IT_IS = "as it is"

# Each round asks for a run of every state; nobody is served by more of them than that.
SHORTEST_INTERVAL = timedelta(seconds=10)


def work_of(task: PeriodicTask) -> str | None:
    """Return which of WORK a task does, None for anything else."""
    stored = task.task, _json(task.args)
    return next((key for key, (_, name, args) in WORK.items() if stored == (name, _json(args))), None)


def spelled(task: PeriodicTask) -> str:
    return f"{task.task} {task.args}".removesuffix(" []")


def _json(text: str) -> Any:
    try:
        return json.loads(text or "[]")
    except ValueError:
        return text


def is_known(task: PeriodicTask) -> bool:
    """Whether the workers know the task by this name."""
    app.loader.import_default_modules()
    return task.task in app.tasks


class PeriodicTaskForm(forms.ModelForm):
    work = forms.ChoiceField(label="What it does", widget=UnfoldAdminSelectWidget)

    class Meta:
        model = PeriodicTask
        fields = ["name", "interval", "crontab", "enabled", "description"]
        labels = {"enabled": "Runs by itself", "interval": "Interval", "crontab": "Crontab"}
        # Theirs speak of columns.
        help_texts = {
            "name": "",
            "enabled": "",
            "description": "For people; nothing reads it.",
            "interval": "Every so often, reckoned from the last run.",
            "crontab": "At certain hours and days.",
        }
        widgets = {"description": UnfoldAdminTextareaWidget(attrs={"rows": 2})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(str(key), label) for key, (label, *_) in WORK.items()]
        known = work_of(self.instance)
        if self.instance.pk and known is None:
            choices.insert(0, (AS_IT_IS, spelled(self.instance)))
        cast(forms.ChoiceField, self.fields["work"]).choices = choices
        self.initial["work"] = known or choices[0][0]

    def clean_work(self) -> str:
        work = str(self.cleaned_data["work"])
        if work == AS_IT_IS and not is_known(self.instance):
            raise forms.ValidationError(
                f"no worker knows a task {self.instance.task!r}; choose what it shall do, or delete it"
            )
        return work

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if bool(cleaned.get("interval")) == bool(cleaned.get("crontab")) and not self.errors:
            raise forms.ValidationError("choose an interval or a crontab, one of the two")
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
            "When",
            {
                "description": "One of the two. Many tasks may share one; a change to it changes all of them.",
                "fields": ["interval", "crontab"],
            },
        ),
        ("So far", {"fields": ["last_run", "next_run", "rounds", "audit"]}),
    ]
    readonly_fields = ["last_run", "next_run", "rounds", "audit"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[PeriodicTask]:
        return super().get_queryset(request).select_related("interval", "crontab", "solar", "clocked").order_by("name")

    def get_fieldsets(self, request: HttpRequest, obj: PeriodicTask | None = None):
        shown = list(self.fieldsets) if obj else self.fieldsets[:-1]
        if obj and not self.has_change_permission(request, obj):
            # What is shown of a form that cannot be filled in.
            shown[0] = (None, {"fields": ["name", "does", "enabled", "description"]})
        return shown

    @admin.action(description="Turn on", permissions=["change"])
    def turn_on(self, request: HttpRequest, queryset: QuerySet[PeriodicTask]) -> None:
        self._turn(request, queryset, enabled=True)

    @admin.action(description="Turn off", permissions=["change"])
    def turn_off(self, request: HttpRequest, queryset: QuerySet[PeriodicTask]) -> None:
        self._turn(request, queryset, enabled=False)

    def _turn(self, request: HttpRequest, queryset: QuerySet[PeriodicTask], *, enabled: bool) -> None:
        for task in queryset:
            if enabled and not is_known(task):
                messages.error(request, f"{task.name}: no worker knows a task {task.task!r}, so it stays off")
                continue
            task.enabled = enabled
            task.save()
            messages.success(request, f"{task.name}: {'on' if enabled else 'off'}")

    def audited(self, instance: PeriodicTask) -> dict[str, Any]:
        return {"task": instance.task, "args": instance.args, "when": str(instance.scheduler), "on": instance.enabled}

    def record_edit(self, request: HttpRequest, act: str, instance: PeriodicTask, **detail: Any) -> None:
        record(f"schedule.{act}", f"schedule {instance.name}", by=request.user.get_username(), **detail)

    @display(description="What it does")
    def does(self, task):
        work = work_of(task)
        return WORK[work][0] if work else spelled(task)

    @display(description="How often")
    def every(self, task):
        return as_told(task).every if task.scheduler else "never"

    @display(description="Status", label={"on": "success", "off": "warning", "unknown task": "danger"})
    def state_of_task(self, task):
        if not is_known(task):
            return "unknown task"
        return "on" if task.enabled else "off"

    @display(description="Last run", ordering="last_run_at")
    def last_run(self, task):
        return moment(task.last_run_at)

    @display(description="Next run")
    def next_run(self, task):
        return moment(as_told(task).next_at) if task.scheduler else None

    @display(description="How often so far")
    def rounds(self, task):
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
            is_short = bool(every and period) and timedelta(**{str(period): float(every or 0)}) < SHORTEST_INTERVAL
        except OverflowError:
            raise forms.ValidationError("that is never; turn the task off instead") from None
        if is_short:
            raise forms.ValidationError(f"the shortest interval is {SHORTEST_INTERVAL.seconds} seconds")
        return cleaned


class WhenAdmin(AuditedEdits, ModelAdmin):
    """A schedule that tasks share. One that is in use cannot be deleted: its tasks would go with it."""

    list_fullwidth = True

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        return super().get_queryset(request).prefetch_related("periodictask_set")

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {name: action for name, action in super().get_actions(request).items() if name != "delete_selected"}

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return super().has_delete_permission(request, obj) and not (obj and self._is_used(obj))

    def _is_used(self, when: Any) -> bool:
        return bool(when.periodictask_set.exists())

    def record_edit(self, request: HttpRequest, act: str, instance: Model, **detail: Any) -> None:
        record(f"schedule.{act}", f"schedule {instance}", by=request.user.get_username(), **detail)

    @display(description="Used by")
    def used_by(self, when):
        return ", ".join(sorted(task.name for task in when.periodictask_set.all())) or "no task"


@admin.register(IntervalSchedule)
class IntervalAdmin(WhenAdmin):
    form = IntervalForm
    list_display = ["__str__", "used_by"]
    fields = ["every", "period"]


@admin.register(CrontabSchedule)
class CrontabAdmin(WhenAdmin):
    list_display = ["in_words", "__str__", "used_by"]
    fields = ["minute", "hour", "day_of_month", "month_of_year", "day_of_week", "timezone"]

    @display(description="In words")
    def in_words(self, when):
        return when.human_readable

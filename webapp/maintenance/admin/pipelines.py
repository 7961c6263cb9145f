"""Pipelines: their status, and actions to pause and resume them."""

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from unfold.decorators import display

from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.limits import limits_of
from tidegauge.webapp.catalog.models import Batch, DeadLetter, MaintenanceRun, Pipeline, State
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.verdicts import TONES, verdict
from tidegauge.webapp.core.admin import ReadOnlyAdmin
from tidegauge.webapp.core.admin_pages import (
    confirmation_page,
    link,
    link_to,
    link_to_audit,
    link_to_list,
    moment,
    selection,
)
from tidegauge.webapp.core.confirmation import Confirmation, is_confirmed
from tidegauge.webapp.core.writing import duration
from tidegauge.webapp.maintenance import operations
from tidegauge.webapp.maintenance.admin.limits import describe, limits_address

COLOURS = {"bad": "danger", "watch": "warning", "good": "success", "calm": "info"}
VERDICT_COLOURS = {name: COLOURS[tone] for name, tone in TONES.items()}
NOTES = {
    "Pause": [
        "No data is lost: input waits at the source, and the states are still served.",
        "Rows continue to expire while a pipeline is paused.",
    ],
    "Resume": ["The pipelines continue with the next batch and process the input that is waiting."],
}


class DesiredStateFilter(admin.SimpleListFilter):
    title = "desired state"
    parameter_name = "wanted"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [("paused", "paused"), ("running", "running")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Pipeline]) -> QuerySet[Pipeline]:
        paused = queryset.filter(desired_state__paused=True)
        return {"paused": paused, "running": queryset.exclude(desired_state__paused=True)}.get(
            self.value() or "", queryset
        )


@admin.register(Pipeline)
class PipelineAdmin(ReadOnlyAdmin):
    list_display = [
        "name", "status", "wanted", "committed_txid", "last_commit", "lag", "states", "batches", "dead_letters",
    ]  # fmt: skip
    actions = ["pause", "resume"]
    search_fields = ["name", "description"]
    list_filter = ["spout", DesiredStateFilter]
    fieldsets = [
        (None, {"fields": ["name", "description", "status", "reason", "message", "wanted_by", "source", "guarantee"]}),
        ("Related", {"fields": ["states", "batches", "dead_letters", "late", "runs", "limits", "audit"]}),
        (
            "Committed",
            {"fields": ["committed_txid", "committed_attempt", "committed_batch_id", "committed_time", "last_commit"]},
        ),
        ("Open", {"fields": ["open_txid", "open_attempt", "open_batch_id", "open_time"]}),
        (
            "Driver",
            {
                "fields": [
                    "driver_at",
                    "driver_status",
                    "failures",
                    "next_try_at",
                    "fence",
                    "checkpoint_id",
                    "created_at",
                ]
            },
        ),
    ]

    @admin.action(description="Pause…", permissions=["control"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Pipeline]) -> HttpResponse | None:
        return self._control(request, queryset, "Pause", operations.pause_pipeline, _will_pause)

    @admin.action(description="Resume…", permissions=["control"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Pipeline]) -> HttpResponse | None:
        return self._control(request, queryset, "Resume", operations.resume_pipeline, _will_resume)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pipeline]:
        # Without reprocesses. They are stored as pipelines, but the dashboard shows each with the pipeline it replaces.
        return super().get_queryset(request).filter(reprocesses=None).select_related("driver")

    def get_changelist_instance(self, request: HttpRequest):
        listed = super().get_changelist_instance(request)
        now = {pipeline.name: pipeline for pipeline in queries.pipelines()}
        for pipeline in listed.result_list:
            pipeline.now = now[pipeline.name]
        return listed

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Pipeline | None:
        pipeline = super().get_object(request, object_id, from_field)
        if pipeline is not None:
            pipeline.now = queries.pipeline(pipeline.name)
        return pipeline

    def has_control_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("states.change_pipeline")

    def _control(
        self,
        request: HttpRequest,
        queryset: QuerySet[Pipeline],
        title: str,
        service: Callable[..., None],
        will: Callable[[PipelineStatus], str],
    ) -> HttpResponse | None:
        names = set(queryset.values_list("name", flat=True))
        chosen = [pipeline for pipeline in queries.pipelines() if pipeline.name in names]
        if not is_confirmed(request):
            return confirmation_page(self, request, _confirmation(request, title, chosen, will))
        for pipeline in chosen:
            service(name=pipeline.name, requested_by=request.user.get_username())
            messages.success(request, f"pipeline {pipeline.name!r}: {will(pipeline)}")
        return None

    @display(description="Status", label=VERDICT_COLOURS)
    def status(self, pipeline):
        return verdict(pipeline.now).name

    @display(description="Reason")
    def reason(self, pipeline):
        return verdict(pipeline.now).reason

    @display(description="Driver status")
    def driver_status(self, pipeline):
        return pipeline.now.status

    @display(description="Last commit")
    def last_commit(self, pipeline):
        return moment(pipeline.now.committed_at)

    @display(description="Message")
    def message(self, pipeline):
        return pipeline.now.message

    @display(description="Source")
    def source(self, pipeline):
        return pipeline.spout

    @display(description="Guarantee")
    def guarantee(self, pipeline):
        return pipeline.now.guarantee

    @display(description="Driver")
    def driver_at(self, pipeline):
        driver = getattr(pipeline, "driver", None)
        return f"host {driver.host}, pid {driver.pid}, since {driver.since:%Y-%m-%d %H:%M:%S %Z}" if driver else None

    @display(description="Desired state", label={"running": "success", "paused": "info"})
    def wanted(self, pipeline):
        return pipeline.now.wanted

    @display(description="Desired state")
    def wanted_by(self, pipeline):
        now = pipeline.now
        return (
            f"{now.wanted}, requested by {now.wanted_by} at {now.wanted_at:%Y-%m-%d %H:%M:%S %Z}"
            if now.wanted_by
            else now.wanted
        )

    @display(description="Lag")
    def lag(self, pipeline):
        seconds = pipeline.now.lag_seconds
        return "unknown" if seconds is None else duration(seconds) if seconds else "none"

    @display(description="Failures in a row")
    def failures(self, pipeline):
        now = pipeline.now
        return f"{now.failures} of {now.max_failures}" if now.max_failures else now.failures

    @display(description="Next attempt")
    def next_try_at(self, pipeline):
        return moment(pipeline.now.next_try_at)

    @display(description="Late events")
    def late(self, pipeline):
        return f"{pipeline.now.late:,}, of which {pipeline.now.dropped:,} dropped"

    @display(description="States")
    def states(self, pipeline):
        count = len(pipeline.now.states)
        return link_to_list(State, f"{count} state{'' if count == 1 else 's'}", pipeline__name__exact=pipeline.name)

    @display(description="Batches")
    def batches(self, pipeline):
        return link_to_list(Batch, "batches", pipeline__name__exact=pipeline.name)

    @display(description="Dead letters")
    def dead_letters(self, pipeline):
        return link_to_list(DeadLetter, f"{pipeline.now.dead_letters:,}", pipeline__name__exact=pipeline.name)

    @display(description="Maintenance")
    def runs(self, pipeline):
        return link_to_list(MaintenanceRun, "runs of its states", state__pipeline__name__exact=pipeline.name)

    @display(description="Limits")
    def limits(self, pipeline):
        return link(limits_address(pipeline.name), describe(limits_of(pipeline.name)))

    @display(description="Audit")
    def audit(self, pipeline):
        return link_to_audit("pipeline", pipeline.name)

    def view_on_site(self, pipeline):
        return reverse("dashboard:pipeline", args=[pipeline.name])


def _confirmation(
    request: HttpRequest, title: str, chosen: Sequence[PipelineStatus], will: Callable[[PipelineStatus], str]
) -> Confirmation:
    rows: list[list[Any]] = [
        [link_to(Pipeline, pipeline.name), verdict(pipeline).name, pipeline.wanted, will(pipeline)]
        for pipeline in chosen
    ]
    return Confirmation(
        title=f"{title} {len(chosen)} pipeline{'' if len(chosen) == 1 else 's'}?",
        button=title,
        cancel_url=request.get_full_path(),
        notes=NOTES[title],
        headers=["pipeline", "status", "desired state", "effect"],
        rows=rows,
        hidden=selection(request, [pipeline.name for pipeline in chosen]),
    )


def _will_pause(pipeline: PipelineStatus) -> str:
    if pipeline.wanted == "paused":
        return f"no change: {pipeline.wanted_by} has already requested it"
    if pipeline.is_driven:
        return "the driver pauses after the current batch"
    return "no driver is running; one that starts waits until the pipeline is resumed"


def _will_resume(pipeline: PipelineStatus) -> str:
    if pipeline.wanted == "running":
        return "no change: it is not paused"
    if pipeline.is_driven:
        return "the driver continues within a second"
    return "no driver is running; one that starts processes input"

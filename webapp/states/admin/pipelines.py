"""Pipelines: looked at, paused and resumed."""

from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from unfold.decorators import display

from webapp.states import queries, services
from webapp.states.admin.base import (
    Question,
    ReadOnlyAdmin,
    ask,
    is_confirmed,
    link_to,
    link_to_audit,
    link_to_list,
    moment,
    selection,
)
from webapp.states.models import Batch, DeadLetter, MaintenanceRun, Pipeline, State
from webapp.states.queries import PipelineStatus

DRIVER_COLOURS = {
    "running": "success",
    "finished": "success",
    "starting": "info",
    "paused": "info",
    "restarting": "warning",
    "lost": "danger",
    "failed": "danger",
}


class WantedFilter(admin.SimpleListFilter):
    title = "what people want"
    parameter_name = "wanted"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [("paused", "paused"), ("running", "running")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Pipeline]) -> QuerySet[Pipeline]:
        paused = queryset.filter(wish__paused=True)
        return {"paused": paused, "running": queryset.exclude(wish__paused=True)}.get(self.value() or "", queryset)


@admin.register(Pipeline)
class PipelineAdmin(ReadOnlyAdmin):
    list_display = [
        "name", "status", "wanted", "committed_txid", "committed_time", "lag", "states", "batches", "dead_letters",
    ]  # fmt: skip
    actions = ["pause", "resume"]
    search_fields = ["name", "description"]
    list_filter = ["spout", WantedFilter]
    fieldsets = [
        (None, {"fields": ["name", "description", "status", "message", "wanted_by", "spout", "guarantee"]}),
        ("What belongs to it", {"fields": ["states", "batches", "dead_letters", "late", "runs", "audit"]}),
        ("Committed", {"fields": ["committed_txid", "committed_attempt", "committed_batch_id", "committed_time"]}),
        ("Open", {"fields": ["open_txid", "open_attempt", "open_batch_id", "open_time"]}),
        ("Driver", {"fields": ["driver_at", "failures", "next_try_at", "fence", "checkpoint_id", "created_at"]}),
    ]

    @admin.action(description="Pause ..", permissions=["steer"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Pipeline]) -> HttpResponse | None:
        return self._steer(request, queryset, "Pause", services.pause_pipeline, _will_pause)

    @admin.action(description="Resume ..", permissions=["steer"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Pipeline]) -> HttpResponse | None:
        return self._steer(request, queryset, "Resume", services.resume_pipeline, _will_resume)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pipeline]:
        # What feeds a pipeline's states anew is none of its own; its page on the dashboard shows how far it is.
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

    def has_steer_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("states.change_pipeline")

    def _steer(
        self,
        request: HttpRequest,
        queryset: QuerySet[Pipeline],
        verb: str,
        service: Callable[..., None],
        will: Callable[[PipelineStatus], str],
    ) -> HttpResponse | None:
        names = set(queryset.values_list("name", flat=True))
        chosen = [pipeline for pipeline in queries.pipelines() if pipeline.name in names]
        if not is_confirmed(request):
            return ask(self, request, _question(request, verb, chosen, will))
        for pipeline in chosen:
            service(name=pipeline.name, requested_by=request.user.get_username())
            messages.success(request, f"pipeline {pipeline.name!r}: {will(pipeline)}")
        return None

    @display(description="Status", label=DRIVER_COLOURS)
    def status(self, pipeline):
        return pipeline.now.status

    @display(description="Message")
    def message(self, pipeline):
        return pipeline.now.message

    @display(description="Guarantee")
    def guarantee(self, pipeline):
        return pipeline.now.guarantee

    @display(description="Driver")
    def driver_at(self, pipeline):
        driver = getattr(pipeline, "driver", None)
        return f"host {driver.host}, pid {driver.pid}, since {driver.since:%Y-%m-%d %H:%M:%S %Z}" if driver else None

    @display(description="Wanted", label={"running": "success", "paused": "info"})
    def wanted(self, pipeline):
        return pipeline.now.wanted

    @display(description="Wanted")
    def wanted_by(self, pipeline):
        now = pipeline.now
        return f"{now.wanted}, by {now.wanted_by} since {now.wanted_at:%Y-%m-%d %H:%M:%S %Z}" if now.wanted_by else None

    @display(description="Lag")
    def lag(self, pipeline):
        seconds = pipeline.now.lag_seconds
        return None if seconds is None else f"{seconds:,.0f} s"

    @display(description="Failures in a row")
    def failures(self, pipeline):
        now = pipeline.now
        return f"{now.failures} of {now.max_failures}" if now.max_failures else now.failures

    @display(description="Next try")
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

    @display(description="Runs")
    def runs(self, pipeline):
        return link_to_list(MaintenanceRun, "maintenance of its states", state__pipeline__name__exact=pipeline.name)

    @display(description="Audit")
    def audit(self, pipeline):
        return link_to_audit("pipeline", pipeline.name)

    def view_on_site(self, pipeline):
        return reverse("dashboard:pipeline", args=[pipeline.name])


def _question(
    request: HttpRequest, verb: str, chosen: Iterable[PipelineStatus], will: Callable[[PipelineStatus], str]
) -> Question:
    chosen = list(chosen)
    rows: list[list[Any]] = [
        [link_to(Pipeline, pipeline.name), pipeline.status, pipeline.wanted, will(pipeline)] for pipeline in chosen
    ]
    return Question(
        title=f"{verb} {len(chosen)} pipeline{'' if len(chosen) == 1 else 's'}?",
        verb=verb,
        back=request.get_full_path(),
        says=SAYS[verb],
        headers=["pipeline", "status", "wanted", "what will happen"],
        rows=rows,
        hidden=selection(request, [pipeline.name for pipeline in chosen]),
    )


SAYS = {
    "Pause": [
        "Nothing is lost: input waits at the source, and the states stay as they are and are served.",
        "Rows go on towards the end of their ttl meanwhile.",
    ],
    "Resume": ["The pipelines go on with the batch after the committed one, and catch up with what has waited."],
}


def _will_pause(pipeline: PipelineStatus) -> str:
    if pipeline.wanted == "paused":
        return f"it is to pause already, as {pipeline.wanted_by} wished"
    if pipeline.is_driven:
        return "its driver pauses after the batch at hand"
    return "no driver lives; one that is started waits until the pipeline is resumed"


def _will_resume(pipeline: PipelineStatus) -> str:
    if pipeline.wanted == "running":
        return "it is to run already"
    if pipeline.is_driven:
        return "its driver goes on within a second"
    return "no driver lives; one that is started runs"

"""Pipelines, their batches, and the input that could not be counted."""

from django.contrib import admin, messages
from django.contrib.admin import EmptyFieldListFilter
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from unfold.decorators import display

from webapp.states import selectors, services
from webapp.states.admin.read_only import ReadOnlyAdmin, link_to, link_to_list
from webapp.states.models import Batch, DeadLetter, Pipeline, State

DRIVER_COLOURS = {
    "running": "success",
    "finished": "success",
    "starting": "info",
    "paused": "info",
    "restarting": "warning",
    "lost": "danger",
    "failed": "danger",
}


@admin.register(Pipeline)
class PipelineAdmin(ReadOnlyAdmin):
    list_display = [
        "name",
        "status",
        "committed_txid",
        "committed_time",
        "open_txid",
        "states",
        "batches",
        "dead_letters",
    ]
    actions = ["pause", "resume"]
    search_fields = ["name", "description"]
    list_filter = ["spout"]
    fieldsets = [
        (None, {"fields": ["name", "description", "status", "message", "spout", "guarantee", "created_at"]}),
        ("Committed", {"fields": ["committed_txid", "committed_attempt", "committed_batch_id", "committed_time"]}),
        ("Open", {"fields": ["open_txid", "open_attempt", "open_batch_id", "open_time"]}),
        ("Driver", {"fields": ["driver_at", "wanted", "failures", "next_try_at", "fence", "checkpoint_id"]}),
        ("What belongs to it", {"fields": ["states", "batches", "dead_letters", "late"]}),
    ]

    @admin.action(description="Pause", permissions=["steer"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Pipeline]) -> None:
        for pipeline in queryset.order_by("name"):
            services.pause_pipeline(name=pipeline.name, requested_by=request.user.get_username())
            messages.success(request, f"pipeline {pipeline.name!r}: its driver pauses after the batch at hand")

    @admin.action(description="Resume", permissions=["steer"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Pipeline]) -> None:
        for pipeline in queryset.order_by("name"):
            services.resume_pipeline(name=pipeline.name, requested_by=request.user.get_username())
            messages.success(request, f"pipeline {pipeline.name!r}: its driver goes on")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pipeline]:
        # What feeds a pipeline's states anew is none of its own; its page on the dashboard shows how far it is.
        return super().get_queryset(request).filter(reprocesses=None)

    def has_steer_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("states.change_pipeline")

    @display(description="Status", label=DRIVER_COLOURS)
    def status(self, pipeline):
        return selectors.pipeline(pipeline.name).status

    @display(description="Message")
    def message(self, pipeline):
        return selectors.pipeline(pipeline.name).message

    @display(description="Guarantee")
    def guarantee(self, pipeline):
        return selectors.pipeline(pipeline.name).guarantee

    @display(description="Driver")
    def driver_at(self, pipeline):
        driver = getattr(pipeline, "driver", None)
        return f"host {driver.host}, pid {driver.pid}, since {driver.since:%Y-%m-%d %H:%M:%S %Z}" if driver else None

    @display(description="Wanted")
    def wanted(self, pipeline):
        now = selectors.pipeline(pipeline.name)
        return f"{now.wanted}, by {now.wanted_by} since {now.wanted_at:%Y-%m-%d %H:%M:%S %Z}" if now.wanted_by else None

    @display(description="Failures in a row")
    def failures(self, pipeline):
        now = selectors.pipeline(pipeline.name)
        return f"{now.failures} of {now.max_failures}" if now.max_failures else now.failures

    @display(description="Next try")
    def next_try_at(self, pipeline):
        return selectors.pipeline(pipeline.name).next_try_at

    @display(description="Late events")
    def late(self, pipeline):
        now = selectors.pipeline(pipeline.name)
        return f"{now.late:,}, of which {now.dropped:,} dropped"

    @display(description="States")
    def states(self, pipeline):
        return link_to_list(State, f"{pipeline.states.count()} states", pipeline__name__exact=pipeline.name)

    @display(description="Batches")
    def batches(self, pipeline):
        return link_to_list(Batch, "batches", pipeline__name__exact=pipeline.name)

    @display(description="Dead letters")
    def dead_letters(self, pipeline):
        count = selectors.pipeline(pipeline.name).dead_letters
        return link_to_list(DeadLetter, f"{count:,} dead letters", pipeline__name__exact=pipeline.name)

    def view_on_site(self, pipeline):
        return reverse("dashboard:pipeline", args=[pipeline.name])


@admin.register(Batch)
class BatchAdmin(ReadOnlyAdmin):
    list_display = [
        "txid",
        "of_pipeline",
        "status",
        "attempt",
        "batch_time",
        "seconds",
        "rows_in",
        "letters",
        "late",
        "dropped",
    ]
    list_filter = ["pipeline", ("committed_at", EmptyFieldListFilter)]
    search_fields = ["=txid", "=pipeline__name"]
    ordering = ["-batch_time", "-txid"]
    fields = [
        "txid", "of_pipeline", "status", "attempt", "batch_id", "fence", "batch_time", "started_at", "committed_at",
        "seconds", "rows_in", "keys_written", "tasks", "letters", "late", "dropped", "watermark", "metrics", "offsets",
    ]  # fmt: skip

    @display(description="Pipeline", ordering="pipeline")
    def of_pipeline(self, batch):
        return link_to(Pipeline, batch.pipeline_id)

    @display(description="Status", label={"committed": "success", "open": "info"})
    def status(self, batch):
        return "open" if batch.committed_at is None else "committed"

    @display(description="Seconds")
    def seconds(self, batch):
        return batch.committed_at and round((batch.committed_at - batch.started_at).total_seconds(), 3)

    @display(description="Dead letters", ordering="dead_letters")
    def letters(self, batch):
        if not batch.dead_letters:
            return 0
        return link_to_list(
            DeadLetter, f"{batch.dead_letters:,}", pipeline__name__exact=batch.pipeline_id, txid=batch.txid
        )


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    list_display = ["place", "reason", "of_pipeline", "txid", "state", "at"]
    list_filter = ["pipeline", "state"]
    search_fields = ["source", "line", "reason"]
    fields = ["of_pipeline", "of_batch", "state", "source", "line_number", "line", "reason", "at"]

    @display(description="Source and line", ordering="source")
    def place(self, letter):
        return str(letter)

    @display(description="Pipeline", ordering="pipeline")
    def of_pipeline(self, letter):
        return link_to(Pipeline, letter.pipeline_id)

    @display(description="Batch")
    def of_batch(self, letter):
        batch = Batch.objects.filter(pipeline=letter.pipeline_id, txid=letter.txid).first()
        return link_to(Batch, batch.id, letter.txid) if batch else letter.txid

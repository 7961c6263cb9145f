"""Batches and dead letters. Both tables may be large, so the lists show only the newest rows."""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial

from django.contrib import admin, messages
from django.contrib.admin import EmptyFieldListFilter
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from unfold.decorators import display

from tidegauge.state_backends.dead_letters.replay import Choice
from tidegauge.webapp.accounts.permissions import REPLAY_DEAD_LETTERS, VIEW_DEAD_LETTERS
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.models import Batch, DeadLetter, Pipeline, State
from tidegauge.webapp.core.admin import LongListAdmin
from tidegauge.webapp.core.admin_pages import ask, link_to, link_to_list, selection
from tidegauge.webapp.core.confirmation import Confirmation
from tidegauge.webapp.core.writing import duration, number
from tidegauge.webapp.maintenance.confirmations import replay_confirmation
from tidegauge.webapp.maintenance.replay import (
    NotDrivenError,
    NothingToReplayError,
    ReplayUnderWayError,
    replay_dead_letters,
    request_replay,
)

FROM_SOURCE = "source"

# Columns of a dead letter that only users with VIEW_DEAD_LETTERS see.
RAW_INPUT = ["line", "record"]


class AttemptsFilter(admin.SimpleListFilter):
    title = "attempts"
    parameter_name = "attempts"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [("1", "first attempt"), ("more", "replayed")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Batch]) -> QuerySet[Batch]:
        return {"1": queryset.filter(attempt=1), "more": queryset.filter(attempt__gt=1)}.get(
            self.value() or "", queryset
        )


class RejectedByFilter(admin.SimpleListFilter):
    """Offers the states of the catalog, because the default filter would read all dead letters to find them."""

    title = "rejected by"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [(FROM_SOURCE, "the source"), *((name, f"state {name}") for name in queries.state_names())]

    def queryset(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> QuerySet[DeadLetter]:
        if self.value() is None:
            return queryset
        return queryset.filter(state="" if self.value() == FROM_SOURCE else self.value())


@admin.register(Batch)
class BatchAdmin(LongListAdmin):
    list_display = [
        "txid", "of_pipeline", "status", "attempt", "batch_time", "duration", "rows", "keys", "letters", "late",
    ]  # fmt: skip
    list_filter = ["pipeline", ("committed_at", EmptyFieldListFilter), AttemptsFilter, "batch_time"]
    search_fields = ["=txid", "=pipeline__name"]
    search_help_text = "Txid or pipeline name; lists the newest 10,000 batches"
    fieldsets = [
        (None, {"fields": ["txid", "of_pipeline", "status", "attempt", "batch_id", "fence"]}),
        ("Times", {"fields": ["batch_time", "started_at", "committed_at", "duration", "watermark"]}),
        ("Results", {"fields": ["rows", "keys_by_state", "letters", "late", "dropped", "tasks"]}),
        ("Details", {"fields": ["ttls", "metrics", "offsets"]}),
    ]

    @display(description="Pipeline", ordering="pipeline")
    def of_pipeline(self, batch):
        return link_to(Pipeline, batch.pipeline_id)

    @display(description="Status", label={"committed": "success", "open": "info"})
    def status(self, batch):
        return "open" if batch.committed_at is None else "committed"

    @display(description="Duration")
    def duration(self, batch):
        return batch.committed_at and duration(batch.committed_at - batch.started_at)

    @display(description="Rows", ordering="rows_in")
    def rows(self, batch):
        return number(batch.rows_in)

    @display(description="Keys written")
    def keys(self, batch):
        return None if batch.keys_written is None else f"{sum(batch.keys_written.values()):,}"

    @display(description="Keys written, by state")
    def keys_by_state(self, batch):
        return ", ".join(f"{state}: {keys:,}" for state, keys in sorted((batch.keys_written or {}).items())) or None

    @display(description="Dead letters", ordering="dead_letters")
    def letters(self, batch):
        if not batch.dead_letters:
            return 0
        return link_to_list(
            DeadLetter, f"{batch.dead_letters:,}", pipeline__name__exact=batch.pipeline_id, txid=batch.txid
        )

    def view_on_site(self, batch):
        return reverse("dashboard:pipeline", args=[batch.pipeline_id])


@admin.register(DeadLetter)
class DeadLetterAdmin(LongListAdmin):
    list_display = ["place", "reason", "of_pipeline", "of_batches", "rejected_by", "at"]
    list_filter = ["pipeline", RejectedByFilter, "at"]
    search_fields = ["source", "line", "reason"]
    search_help_text = "Part of the source, line or reason; lists the newest 10,000 dead letters"
    actions = ["replay"]
    fields = ["of_pipeline", "of_batch", "rejected_by", "source", "line_number", "line", "reason", "at"]

    @admin.action(description="Replay…", permissions=["replay"])
    def replay(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponse | None:
        chosen: dict[str, list[int]] = defaultdict(list)
        for pipeline, letter_id in queryset.filter(pipeline__reprocesses=None).values_list("pipeline_id", "id"):
            chosen[pipeline].append(letter_id)
        if (asked := ask(self, request, _replay_confirmation(request, chosen))) is not None:
            return asked
        for pipeline, ids in chosen.items():
            try:
                found = request_replay(name=pipeline, choice=Choice(ids=ids), requested_by=request.user.get_username())
            except (ReplayUnderWayError, NothingToReplayError, NotDrivenError) as error:
                messages.warning(request, str(error))
            else:
                messages.success(request, f"pipeline {pipeline!r}: replay of {found.letters:,} letters requested")
        return None

    def has_replay_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(REPLAY_DEAD_LETTERS)

    def get_fields(self, request: HttpRequest, obj: DeadLetter | None = None):
        return [name for name in self.fields if name not in RAW_INPUT or request.user.has_perm(VIEW_DEAD_LETTERS)]

    def get_search_fields(self, request: HttpRequest):
        # Also from the search, because a match reveals what a column holds even if it is not shown.
        return [
            name for name in self.search_fields if name not in RAW_INPUT or request.user.has_perm(VIEW_DEAD_LETTERS)
        ]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        # Refused, because a filter in the address such as `?line__startswith=` reveals it, too.
        is_input = lookup.partition("__")[0] in RAW_INPUT
        return super().lookup_allowed(lookup, value, request) and (
            not is_input or request.user.has_perm(VIEW_DEAD_LETTERS)
        )

    @display(description="Source and line", ordering="source")
    def place(self, letter):
        return str(letter)

    @display(description="Pipeline", ordering="pipeline")
    def of_pipeline(self, letter):
        return link_to(Pipeline, letter.pipeline_id)

    @display(description="Rejected by", ordering="state")
    def rejected_by(self, letter):
        return link_to(State, letter.state) if letter.state else "the source"

    @display(description="Batch", ordering="txid")
    def of_batches(self, letter):
        return link_to_list(Batch, letter.txid, pipeline__name__exact=letter.pipeline_id, txid=letter.txid)

    @display(description="Batch")
    def of_batch(self, letter):
        batch = Batch.objects.filter(pipeline=letter.pipeline_id, txid=letter.txid).first()
        return link_to(Batch, batch.id, letter.txid) if batch else letter.txid

    def view_on_site(self, letter):
        return reverse("dashboard:pipeline", args=[letter.pipeline_id])


def _replay_confirmation(request: HttpRequest, chosen: Mapping[str, list[int]]) -> Confirmation:
    found = {
        pipeline: replay_dead_letters(name=pipeline, choice=Choice(ids=ids), requested_by="", dry_run=True)
        for pipeline, ids in chosen.items()
    }
    ids = [str(letter_id) for each in chosen.values() for letter_id in each]
    return replay_confirmation(
        found,
        queries.pipelines(),
        cancel_url=request.get_full_path(),
        link_pipeline=partial(link_to, Pipeline),
        hidden=selection(request, ids),
    )

"""States: their figures and settings, and actions to compact, expire and audit them."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, Prefetch, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.decorators import display

from tidegauge.state_backends import BACKENDS, Catalog
from tidegauge.webapp.catalog import queries, readers
from tidegauge.webapp.catalog.models import Batch, DeadLetter, MaintenanceRun, Pipeline, State
from tidegauge.webapp.catalog.retention import time_to_live
from tidegauge.webapp.core.admin import ReadOnlyAdmin
from tidegauge.webapp.core.admin_pages import (
    ask,
    confirmation_page,
    link_to,
    link_to_audit,
    link_to_list,
)
from tidegauge.webapp.core.confirmation import Confirmation, is_confirmed
from tidegauge.webapp.core.writing import number, size
from tidegauge.webapp.maintenance import operations, runner
from tidegauge.webapp.maintenance.admin import editing
from tidegauge.webapp.maintenance.admin.runs import confirmation_of_runs, request_runs
from tidegauge.webapp.maintenance.operations import CatalogBusyError

Kind = MaintenanceRun.Kind

UNFINISHED = Prefetch(
    "runs", MaintenanceRun.objects.filter(status__in=MaintenanceRun.UNFINISHED), to_attr="active_runs"
)


class KindFilter(admin.SimpleListFilter):
    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [(kind, kind.replace("_", "-")) for kind in ("opaque", "transactional", "non_transactional")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[State]) -> QuerySet[State]:
        return queryset.filter(definition__kind=self.value()) if self.value() else queryset


class OverriddenFilter(admin.SimpleListFilter):
    title = "settings"
    parameter_name = "edited"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [("yes", "overridden"), ("no", "as declared")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[State]) -> QuerySet[State]:
        as_declared = queryset.filter(edits={})
        return {"yes": queryset.exclude(edits={}), "no": as_declared}.get(self.value() or "", queryset)


@admin.register(State)
class StateAdmin(ReadOnlyAdmin):
    form = editing.StateForm
    list_display = ["name", "of_pipeline", "kind", "retention", "changelog_state", "keys", "bytes", "active_run"]
    list_filter = ["pipeline", KindFilter, OverriddenFilter]
    search_fields = ["name", "pipeline__name"]
    actions = ["compact", "expire", "audit_keys"]
    warn_unsaved_form = True
    settings_fieldset: tuple[str, dict[str, Any]] = (
        "Settings",
        {
            "description": "These override the declaration in the code until they are reset to “as declared”. "
            "The effect is shown for confirmation before it is applied.",
            "fields": ["keep", ("amount", "unit"), "changelog"],
        },
    )
    fieldsets = [
        (None, {"fields": ["name", "of_pipeline", "kind", "key", "measures", "backend", "guarantee"]}),
        ("Effective settings", {"fields": ["retention", "changelog_state", "declared_terms"]}),
        ("Now", {"fields": ["committed_txid", "keys", "bytes", "active_run"]}),
        ("Related", {"fields": ["runs", "batches", "dead_letters", "audit"]}),
        ("Catalog", {"fields": ["version", "since_txid", "oldest_txid", "created_at", "definition"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[State]:
        return super().get_queryset(request).select_related("pipeline").prefetch_related(UNFINISHED)

    def get_changelist_instance(self, request: HttpRequest):
        listed = super().get_changelist_instance(request)
        now = {state.name: state for state in queries.states()}
        for state in listed.result_list:
            state.now = now.get(state.name)
        return listed

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> State | None:
        state = super().get_object(request, object_id, from_field)
        if state is not None:
            state.now = queries.state(state.name)
        return state

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.has_perm("states.change_state")

    def has_maintain_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("states.add_maintenancerun")

    def get_fieldsets(self, request: HttpRequest, obj: State | None = None):
        shown: list[Any] = list(self.fieldsets)
        if self.has_change_permission(request, obj):
            shown.insert(1, self.settings_fieldset)
        return shown

    def get_readonly_fields(self, request: HttpRequest, obj: State | None = None):
        return [name for _, options in self.fieldsets for name in options["fields"]]

    def change_view(self, request: HttpRequest, object_id: str, form_url: str = "", extra_context=None) -> HttpResponse:
        if request.method == "POST" and not is_confirmed(request):
            confirmation = self._confirmation(request, object_id)
            if confirmation is not None:
                return confirmation
        try:
            return super().change_view(request, object_id, form_url, _only_save(extra_context))
        except CatalogBusyError as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(request.path)

    def save_model(self, request: HttpRequest, obj: State, form: Any, change: bool) -> None:
        operations.change_state(name=obj.name, **form.changes(), requested_by=request.user.get_username())

    def construct_change_message(self, request: HttpRequest, form: ModelForm, formsets: Any, add: bool = False):
        return [{"changed": {"fields": [*form.changed_data]}}] if form.changed_data else []

    @admin.action(description="Compact…", permissions=["maintain"])
    def compact(self, request: HttpRequest, queryset: QuerySet[State]) -> HttpResponse | None:
        return self._maintain(request, Kind.COMPACTION, queryset)

    @admin.action(description="Expire…", permissions=["maintain"])
    def expire(self, request: HttpRequest, queryset: QuerySet[State]) -> HttpResponse | None:
        return self._maintain(request, Kind.EXPIRY, queryset)

    @admin.action(description="Audit…", permissions=["maintain"])
    def audit_keys(self, request: HttpRequest, queryset: QuerySet[State]) -> HttpResponse | None:
        return self._maintain(request, Kind.AUDIT, queryset)

    def _maintain(self, request: HttpRequest, kind: Kind, queryset: QuerySet[State]) -> HttpResponse | None:
        planned = runner.plans(kind, sorted(state.name for state in queryset))
        asked = ask(self, request, confirmation_of_runs(request, kind, planned))
        return asked or request_runs(request, kind, [plan for plan in planned if not plan.is_idle])

    def _confirmation(self, request: HttpRequest, object_id: str) -> HttpResponse | None:
        """Return the confirmation page of an edit; None if the edit is invalid or not allowed."""
        state: Any = self.get_object(request, object_id)
        if state is None or not self.has_change_permission(request, state):
            return None
        form = self.get_form(request, state, change=True)(request.POST, instance=state)
        if not form.is_valid():
            return None
        if form.after() == form.terms:
            messages.info(request, f"state {state.name!r}: nothing was changed")
            return HttpResponseRedirect(request.path)
        return confirmation_page(
            self,
            request,
            Confirmation(
                title=f"Change state {state.name}?",
                button="Change state",
                cancel_url=request.get_full_path(),
                notes=editing.consequences(state.now, form.terms, form.after()),
                danger=editing.loses_something(form.terms, form.after()),
                hidden=[(name, request.POST[name]) for name in form.fields if name in request.POST],
            ),
        )

    @display(description="Pipeline", ordering="pipeline")
    def of_pipeline(self, state):
        return link_to(Pipeline, state.pipeline_id)

    @display(description="Kind", label=True)
    def kind(self, state):
        return state.definition["kind"]

    @display(description="Key")
    def key(self, state):
        definition = state.definition
        columns = [f"{name} {definition['key'][name]}" for name in definition["key_order"]]
        return ", ".join(columns) or "none: one global row"

    @display(description="Measures")
    def measures(self, state):
        definition = state.definition
        measures = [f"{name}: {definition['measures'][name]['aggregator']}" for name in definition["measure_order"]]
        return ", ".join(measures) or "JSON"

    @display(description="Backend")
    def backend(self, state):
        return BACKENDS[state.backend].title

    @display(description="Retention", ordering="ttl")
    def retention(self, state):
        return f"{time_to_live(state.ttl)}{' (overridden)' if 'ttl' in state.edits else ''}"

    @display(description="Changelog")
    def changelog_state(self, state):
        now = state.definition["changelog"]
        planned = state.edits.get("changelog", state.declared.get("changelog", now))
        if planned == now:
            return f"{editing.ON_OFF[now]}{' (overridden)' if 'changelog' in state.edits else ''}"
        return f"{editing.ON_OFF[now]}; {editing.ON_OFF[planned]} after the next start of the driver"

    @display(description="As declared")
    def declared_terms(self, state):
        terms = Catalog(readers.connection()).terms(state.name)
        log = editing.ON_OFF[terms.declared_changelog]
        return f"retention {time_to_live(terms.declared_ttl)}, changelog {log}"

    @display(description="Committed txid")
    def committed_txid(self, state):
        return link_to_list(
            Batch, state.pipeline.committed_txid, pipeline__name__exact=state.pipeline_id,
            txid=state.pipeline.committed_txid,
        )  # fmt: skip

    @display(description="Keys")
    def keys(self, state):
        return state.now and number(state.now.keys_estimate)

    @display(description="Size")
    def bytes(self, state):
        return state.now and size(state.now.bytes)

    @display(description="Active run")
    def active_run(self, state):
        return next(
            (link_to(MaintenanceRun, run.id, f"{run.kind} {run.id} {run.status}") for run in state.active_runs), None
        )

    @display(description="Runs")
    def runs(self, state):
        return link_to_list(MaintenanceRun, "maintenance runs", state__name__exact=state.name)

    @display(description="Batches")
    def batches(self, state):
        return link_to_list(Batch, f"batches of pipeline {state.pipeline_id}", pipeline__name__exact=state.pipeline_id)

    @display(description="Dead letters")
    def dead_letters(self, state):
        return link_to_list(DeadLetter, "input that it rejected", state=state.name)

    @display(description="Audit")
    def audit(self, state):
        return link_to_audit("state", state.name)

    def view_on_site(self, state):
        return reverse("dashboard:state", args=[state.name])


def _only_save(extra_context: dict[str, Any] | None) -> dict[str, Any]:
    return {"show_save_and_add_another": False, "show_save_and_continue": False, **(extra_context or {})}

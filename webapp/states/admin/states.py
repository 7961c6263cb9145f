"""States: looked at, given another ttl or changelog, compacted and expired, once a page has said what that will do."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, Prefetch, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from unfold.decorators import display

from state_backends import BACKENDS, Catalog
from webapp.states import maintenance, queries, readers, services
from webapp.states.admin import editing
from webapp.states.admin.base import (
    Question,
    ReadOnlyAdmin,
    ask,
    is_confirmed,
    link_to,
    link_to_audit,
    link_to_list,
    list_address,
    selection,
    time_to_live,
)
from webapp.states.maintenance import Plan
from webapp.states.models import Batch, DeadLetter, MaintenanceRun, Pipeline, State
from webapp.states.services import BrokerUnavailableError, CatalogBusyError, StateBusyError

Kind = MaintenanceRun.Kind

UNFINISHED = Prefetch("runs", MaintenanceRun.objects.filter(status__in=MaintenanceRun.UNFINISHED), to_attr="going")


class KindFilter(admin.SimpleListFilter):
    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [(kind, kind.replace("_", "-")) for kind in ("opaque", "transactional", "non_transactional")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[State]) -> QuerySet[State]:
        return queryset.filter(definition__kind=self.value()) if self.value() else queryset


class EditedFilter(admin.SimpleListFilter):
    title = "edits"
    parameter_name = "edited"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [("yes", "edited"), ("no", "as declared")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[State]) -> QuerySet[State]:
        as_declared = queryset.filter(edits={})
        return {"yes": queryset.exclude(edits={}), "no": as_declared}.get(self.value() or "", queryset)


@admin.register(State)
class StateAdmin(ReadOnlyAdmin):
    form = editing.StateForm
    list_display = ["name", "of_pipeline", "kind", "kept", "log", "keys", "bytes", "busy"]
    list_filter = ["pipeline", KindFilter, EditedFilter]
    search_fields = ["name", "pipeline__name"]
    actions = ["compact", "expire"]
    warn_unsaved_form = True
    edited_fieldset: tuple[str, dict[str, Any]] = (
        "What you may set",
        {
            "description": "It stands above what the code declares until it is set back to “as declared”. "
            "A page in between says what will happen.",
            "fields": ["keep", ("amount", "unit"), "changelog"],
        },
    )
    fieldsets = [
        (None, {"fields": ["name", "of_pipeline", "kind", "key", "measures", "backend", "guarantee"]}),
        ("In force", {"fields": ["kept", "log", "declared_terms"]}),
        ("Now", {"fields": ["committed_txid", "keys", "bytes", "busy"]}),
        ("What belongs to it", {"fields": ["runs", "batches", "dead_letters", "audit"]}),
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
            shown.insert(1, self.edited_fieldset)
        return shown

    def get_readonly_fields(self, request: HttpRequest, obj: State | None = None):
        return [name for _, options in self.fieldsets for name in options["fields"]]

    def change_view(self, request: HttpRequest, object_id: str, form_url: str = "", extra_context=None) -> HttpResponse:
        if request.method == "POST" and not is_confirmed(request):
            question = self._question(request, object_id)
            if question is not None:
                return question
        try:
            return super().change_view(request, object_id, form_url, _only_save(extra_context))
        except CatalogBusyError as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(request.path)

    def save_model(self, request: HttpRequest, obj: State, form: Any, change: bool) -> None:
        services.change_state(name=obj.name, **form.wish(), requested_by=request.user.get_username())

    def construct_change_message(self, request: HttpRequest, form: ModelForm, formsets: Any, add: bool = False):
        return [{"changed": {"fields": [*form.changed_data]}}] if form.changed_data else []

    @admin.action(description="Compact ..", permissions=["maintain"])
    def compact(self, request: HttpRequest, queryset: QuerySet[State]) -> HttpResponse | None:
        return self._maintain(request, Kind.COMPACTION, queryset)

    @admin.action(description="Expire ..", permissions=["maintain"])
    def expire(self, request: HttpRequest, queryset: QuerySet[State]) -> HttpResponse | None:
        return self._maintain(request, Kind.EXPIRY, queryset)

    def _maintain(self, request: HttpRequest, kind: Kind, queryset: QuerySet[State]) -> HttpResponse | None:
        planned = maintenance.plans(kind, sorted(state.name for state in queryset))
        if is_confirmed(request):
            return _queue(request, kind, [plan for plan in planned if not plan.is_idle])
        return ask(self, request, _question(request, kind, planned))

    def _question(self, request: HttpRequest, object_id: str) -> HttpResponse | None:
        """Return the page that says what an edit will do; None where it cannot be done, and the form says why."""
        state: Any = self.get_object(request, object_id)
        if state is None or not self.has_change_permission(request, state):
            return None
        form = self.get_form(request, state, change=True)(request.POST, instance=state)
        if not form.is_valid():
            return None
        if form.after() == form.terms:
            messages.info(request, f"state {state.name!r}: nothing was changed")
            return HttpResponseRedirect(request.path)
        return ask(
            self,
            request,
            Question(
                title=f"Change state {state.name}?",
                verb="Change it",
                back=request.get_full_path(),
                says=editing.consequences(state.now, form.terms, form.after()),
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
        held = state.definition
        return ", ".join(f"{name} {held['key'][name]}" for name in held["key_order"]) or "none: one global row"

    @display(description="Measures")
    def measures(self, state):
        held = state.definition
        return ", ".join(f"{name}: {held['measures'][name]['aggregator']}" for name in held["measure_order"]) or "JSON"

    @display(description="Lives in")
    def backend(self, state):
        return BACKENDS[state.backend].title

    @display(description="Rows are kept", ordering="ttl")
    def kept(self, state):
        return f"{time_to_live(state.ttl)}{', as set' if 'ttl' in state.edits else ''}"

    @display(description="Changelog")
    def log(self, state):
        now = state.definition["changelog"]
        wanted = state.edits.get("changelog", state.declared.get("changelog", now))
        if wanted == now:
            return f"{editing.LOG_WORDS[now]}{', as set' if 'changelog' in state.edits else ''}"
        return f"{editing.LOG_WORDS[now]}; {editing.LOG_WORDS[wanted]} once the driver has started again"

    @display(description="As declared")
    def declared_terms(self, state):
        terms = Catalog(readers.connection()).terms(state.name)
        log = editing.LOG_WORDS[terms.declared_changelog]
        return f"rows are kept {time_to_live(terms.declared_ttl)}, changelog {log}"

    @display(description="Committed txid")
    def committed_txid(self, state):
        return link_to_list(
            Batch, state.pipeline.committed_txid, pipeline__name__exact=state.pipeline_id,
            txid=state.pipeline.committed_txid,
        )  # fmt: skip

    @display(description="Keys, about")
    def keys(self, state):
        return state.now and f"{state.now.keys_estimate:,}"

    @display(description="Size")
    def bytes(self, state):
        return state.now and filesizeformat(state.now.bytes)

    @display(description="Under way")
    def busy(self, state):
        return next((link_to(MaintenanceRun, run.id, f"{run.kind} {run.id} {run.status}") for run in state.going), None)

    @display(description="Runs")
    def runs(self, state):
        return link_to_list(MaintenanceRun, "maintenance runs", state__name__exact=state.name)

    @display(description="Batches")
    def batches(self, state):
        return link_to_list(Batch, f"batches of pipeline {state.pipeline_id}", pipeline__name__exact=state.pipeline_id)

    @display(description="Dead letters")
    def dead_letters(self, state):
        return link_to_list(DeadLetter, "input that it could not take", state=state.name)

    @display(description="Audit")
    def audit(self, state):
        return link_to_audit("state", state.name)

    def view_on_site(self, state):
        return reverse("dashboard:state", args=[state.name])


def _question(request: HttpRequest, kind: Kind, planned: Sequence[Plan]) -> Question:
    useful = [plan for plan in planned if not plan.is_idle]
    return Question(
        title=f"{TITLES[kind]} {len(planned)} state{'' if len(planned) == 1 else 's'}?",
        verb=f"{TITLES[kind]} {len(useful)} of them" if 0 < len(useful) < len(planned) else TITLES[kind] * bool(useful),
        back=request.get_full_path(),
        says=SAYS[kind](),
        headers=["state", "keys, about", "size", "what it will do", "under way"],
        rows=[_planned(plan) for plan in planned],
        hidden=selection(request, [plan.state.name for plan in planned]),
    )


def _planned(plan: Plan) -> list[Any]:
    state, run = plan.state, plan.busy
    busy = run and link_to(MaintenanceRun, run.id, f"{run.kind} {run.id} is {run.status}: no other is queued")
    return [
        link_to(State, state.name), f"{state.keys_estimate:,}", filesizeformat(state.bytes), WILL[plan.kind](plan),
        busy or "nothing",
    ]  # fmt: skip


def _will_compact(plan: Plan) -> str:
    if not plan.state.changelog:
        return "drop tombstones, give dead space back; it keeps no changelog"
    if plan.horizon is None:
        return f"give dead space back; nothing is older than {time_to_live(plan.keeps)} yet"
    txid, time = plan.horizon
    entries = "entries" if plan.removable is None else f"up to {plan.removable:,} entries"
    return f"drop {entries} of its changelog up to batch {txid:,}, of {time:%Y-%m-%d %H:%M} UTC"


def _will_expire(plan: Plan) -> str:
    if plan.is_idle:
        return "nothing: it has no ttl, its rows are kept for ever"
    rows = "rows" if plan.removable is None else f"{plan.removable:,} rows"
    return f"free {rows} that were not updated for {time_to_live(plan.state.ttl)}"


def _says_compaction() -> list[str]:
    kept = (
        f"Of what is older than {time_to_live(maintenance.keeps())}" if maintenance.keeps() else "Of what is committed"
    )
    return [
        f"{kept} the newest version of each key stays; histories and reads in the past reach back that far and no "
        "further.",
        "Readers and the pipelines go on meanwhile. A run can be cancelled; what it has done by then stays done.",
    ]


def _says_expiry() -> list[str]:
    return [
        "Rows past their ttl are gone for readers already; this frees their space. None goes that an open batch needs.",
        "Readers and the pipelines go on meanwhile. A run can be cancelled; what it has done by then stays done.",
    ]


TITLES = {Kind.COMPACTION: "Compact", Kind.EXPIRY: "Expire"}
SAYS = {Kind.COMPACTION: _says_compaction, Kind.EXPIRY: _says_expiry}
WILL: dict[str, Callable[[Plan], str]] = {Kind.COMPACTION: _will_compact, Kind.EXPIRY: _will_expire}


def _queue(request: HttpRequest, kind: Kind, planned: Iterable[Plan]) -> HttpResponse | None:
    """Ask for a run of each state; lead to the run if one state was chosen, else to the list of the runs."""
    runs = [run for plan in planned if (run := _ask(request, kind, plan.state.name)) is not None]
    if not runs:
        return None
    if len(runs) == 1:
        return HttpResponseRedirect(reverse("admin:states_maintenancerun_change", args=runs))
    return HttpResponseRedirect(list_address(MaintenanceRun, id__in=",".join(map(str, runs))))


def _ask(request: HttpRequest, kind: Kind, state: str) -> int | None:
    """Return the number of the run that was queued, or of the one that is in its way."""
    try:
        run = services.request_maintenance(kind=kind, state=state, requested_by=request.user.get_username())
    except StateBusyError as busy:
        messages.warning(request, str(busy))
        return busy.run_id
    except BrokerUnavailableError as error:
        messages.error(request, str(error))
        return None
    messages.success(request, f"state {state!r}: {kind} queued")
    return run.id


def _only_save(extra_context: dict[str, Any] | None) -> dict[str, Any]:
    return {"show_save_and_add_another": False, "show_save_and_continue": False, **(extra_context or {})}

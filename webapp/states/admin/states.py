"""States, with the two actions. An action leads to the run that it asked for."""

from collections.abc import Iterable

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.decorators import display

from webapp.states import selectors, services
from webapp.states.admin.read_only import ReadOnlyAdmin, link_to, link_to_list, list_address
from webapp.states.errors import BrokerUnavailableError, StateBusyError
from webapp.states.models import MaintenanceRun, Pipeline, State

Kind = MaintenanceRun.Kind


@admin.register(State)
class StateAdmin(ReadOnlyAdmin):
    list_display = ["name", "of_pipeline", "kind", "key", "measures", "time_to_live", "guarantee", "version", "runs"]
    list_filter = ["pipeline"]
    list_select_related = ["pipeline"]
    search_fields = ["name", "pipeline__name"]
    actions = ["compact", "expire"]
    fieldsets = [
        (
            None,
            {"fields": ["name", "of_pipeline", "kind", "key", "measures", "time_to_live", "changelog", "guarantee"]},
        ),
        ("Now", {"fields": ["committed_txid", "keys", "bytes", "runs"]}),
        ("Catalog", {"fields": ["version", "since_txid", "oldest_txid", "created_at", "definition"]}),
    ]

    @admin.action(description="Compact", permissions=["maintain"])
    def compact(self, request: HttpRequest, queryset: QuerySet[State]) -> HttpResponse | None:
        return _maintain(request, Kind.COMPACTION, queryset)

    @admin.action(description="Expire now", permissions=["maintain"])
    def expire(self, request: HttpRequest, queryset: QuerySet[State]) -> HttpResponse | None:
        return _maintain(request, Kind.EXPIRY, queryset)

    def has_maintain_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("states.add_maintenancerun")

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

    @display(description="TTL", ordering="ttl")
    def time_to_live(self, state):
        return "for ever" if state.ttl is None else str(state.ttl).removesuffix(", 0:00:00")

    @display(description="Changelog", boolean=True)
    def changelog(self, state):
        return state.definition["changelog"]

    @display(description="Committed txid")
    def committed_txid(self, state):
        return state.pipeline.committed_txid

    @display(description="Keys, about")
    def keys(self, state):
        return f"{selectors.state(state.name).keys_estimate:,}"

    @display(description="Bytes, with indexes and changelog")
    def bytes(self, state):
        return f"{selectors.state(state.name).bytes:,}"

    @display(description="Runs")
    def runs(self, state):
        return link_to_list(MaintenanceRun, "maintenance runs", state__name__exact=state.name)

    def view_on_site(self, state):
        return reverse("dashboard:state", args=[state.name])


def _maintain(request: HttpRequest, kind: Kind, states: Iterable[State]) -> HttpResponse | None:
    """Ask for a run of each state; lead to the run if one state was chosen, else to the list of the runs."""
    runs = [run for state in states if (run := _ask(request, kind, state.name)) is not None]
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

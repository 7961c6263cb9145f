"""Maintenance runs: progress and results, cancelling, and requesting runs of states with a confirmation."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse
from unfold.decorators import display

from tidegauge.webapp.catalog.models import MaintenanceRun, State
from tidegauge.webapp.catalog.runs import UnfinishedRunError
from tidegauge.webapp.core.admin import LongListAdmin
from tidegauge.webapp.core.admin_pages import (
    link_to,
    link_to_audit,
    link_to_list,
    list_address,
    selection,
)
from tidegauge.webapp.core.confirmation import Confirmation
from tidegauge.webapp.core.writing import duration, size
from tidegauge.webapp.maintenance import services
from tidegauge.webapp.maintenance.confirmations import maintenance_confirmation
from tidegauge.webapp.maintenance.runner import Plan
from tidegauge.webapp.maintenance.services import BrokerUnavailableError, RunFinishedError

Kind = MaintenanceRun.Kind

STATUS_COLOURS = {
    "queued": "info",
    "running": "warning",
    "done": "success",
    "failed": "danger",
}


@admin.register(MaintenanceRun)
class MaintenanceRunAdmin(LongListAdmin):
    list_display = ["id", "run_kind", "of_state", "run_status", "removed", "requested_by", "requested_at", "duration"]
    list_filter = ["status", "kind", "state__pipeline", "state", "requested_at"]
    search_fields = ["state__name", "requested_by", "error"]
    fields = [
        "run_status", "run_kind", "of_state", "requested_by", "requested_at", "started_at", "finished_at", "duration",
        "error", "other_runs", "audit",
    ]  # fmt: skip

    def get_urls(self):
        cancel = path("<int:run_id>/cancel/", self.admin_site.admin_view(self.cancel), name="states_run_cancel")
        return [cancel, *super().get_urls()]

    def change_view(self, request: HttpRequest, object_id: str, form_url: str = "", extra_context=None) -> HttpResponse:
        run = self.get_object(request, object_id)
        context = {} if run is None else self._report(run, self.has_maintain_permission(request))
        return super().change_view(request, object_id, form_url, context | (extra_context or {}))

    def cancel(self, request: HttpRequest, run_id: int) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_maintain_permission(request):
            raise PermissionDenied
        try:
            services.cancel_maintenance(run_id, requested_by=request.user.get_username())
        except RunFinishedError as error:
            messages.warning(request, str(error))
        return HttpResponseRedirect(reverse("admin:states_maintenancerun_change", args=[run_id]))

    def has_maintain_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("states.add_maintenancerun")

    def _report(self, run: MaintenanceRun, may_maintain: bool) -> dict[str, Any]:
        return {
            "headline": f"{run.get_kind_display()} of {run.state_id}: {self.run_status(run)}",
            "may_cancel": may_maintain and not run.is_finished,
            "progress_table": _progress_table(run),
            "figures_table": _figures_table(run),
        }

    @display(description="Status", ordering="status", label=STATUS_COLOURS)
    def run_status(self, run):
        return "cancelling" if run.status == "running" and run.cancel_requested else run.status

    @display(description="Kind", ordering="kind")
    def run_kind(self, run):
        return run.kind

    @display(description="State", ordering="state")
    def of_state(self, run):
        return link_to(State, run.state_id)

    @display(description="Other runs")
    def other_runs(self, run):
        return link_to_list(MaintenanceRun, f"runs of state {run.state_id}", state__name__exact=run.state_id)

    @display(description="Audit")
    def audit(self, run):
        return link_to_audit("state", run.state_id)

    def view_on_site(self, run):
        return reverse("dashboard:state", args=[run.state_id])

    @display(description="Removed")
    def removed(self, run):
        return f"{sum(step['removed'] for step in run.steps):,}"

    @display(description="Duration")
    def duration(self, run):
        return run.finished_at and run.started_at and duration(run.finished_at - run.started_at)


def confirmation_of_runs(request: HttpRequest, kind: Kind, planned: Sequence[Plan]) -> Confirmation:
    """Return the confirmation of a run of each selected state."""
    return maintenance_confirmation(
        kind,
        planned,
        cancel_url=request.get_full_path(),
        link_state=partial(link_to, State),
        link_run=lambda run, text: link_to(MaintenanceRun, run.id, text),
        hidden=selection(request, [plan.state.name for plan in planned]),
    )


def request_runs(request: HttpRequest, kind: Kind, planned: Iterable[Plan]) -> HttpResponse | None:
    """Request a run of each state. Redirects to the run if there is only one, otherwise to the list of the runs."""
    runs = [run for plan in planned if (run := _request_run(request, kind, plan.state.name)) is not None]
    if not runs:
        return None
    if len(runs) == 1:
        return HttpResponseRedirect(reverse("admin:states_maintenancerun_change", args=runs))
    return HttpResponseRedirect(list_address(MaintenanceRun, id__in=",".join(map(str, runs))))


def _progress_table(run: MaintenanceRun) -> dict[str, Any]:
    rows = [[step["step"], f"{step['seen']:,}", f"{step['removed']:,}"] for step in run.steps]
    return {"headers": ["step", "rows seen", "rows removed"], "rows": rows}


def _figures_table(run: MaintenanceRun) -> dict[str, Any]:
    rows = [_figure(name, run.before[name], run.after.get(name)) for name in sorted(run.before, reverse=True)]
    return {"headers": ["metric", "before", "after", "change"], "rows": rows}


def _figure(name: str, before: int, after: int | None) -> list[str]:
    shown = size if name.endswith("_bytes") else "{:,}".format
    if after is None:
        return [name.replace("_", " "), shown(before), "—", ""]
    change = after - before
    sign = "-" if change < 0 else "+"
    return [name.replace("_", " "), shown(before), shown(after), f"{sign}{shown(abs(change))}" if change else "none"]


def _request_run(request: HttpRequest, kind: Kind, state: str) -> int | None:
    """Return the id of the queued run, or of the active run that prevents it."""
    try:
        run = services.request_maintenance(kind=kind, state=state, requested_by=request.user.get_username())
    except UnfinishedRunError as busy:
        messages.warning(request, str(busy))
        return busy.run_id
    except BrokerUnavailableError as error:
        messages.error(request, str(error))
        return None
    messages.success(request, f"state {state!r}: {kind} queued")
    return run.id

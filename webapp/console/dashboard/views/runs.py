"""Pages for operators: maintenance runs and their schedule, requesting and cancelling runs; and the API's problems."""

from functools import partial
from hashlib import blake2s
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required, permission_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tidegauge.state_backends.errors import UnknownStateError
from tidegauge.webapp.accounts.permissions import REQUEST_MAINTENANCE, key_scope
from tidegauge.webapp.api.problems import by_status
from tidegauge.webapp.catalog import queries, runs
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.runs import UnfinishedRunError, UnknownRunError
from tidegauge.webapp.catalog.visible import of_request, without_names
from tidegauge.webapp.console.dashboard.pasted import whole_number
from tidegauge.webapp.console.dashboard.run_rows import RunView, latest_of_each
from tidegauge.webapp.console.dashboard.views.live import (
    ask,
    is_current,
    name_link,
    no_change,
    page,
    sentence,
    signed_in,
    state_page,
    static_page,
    unknown_run,
    unknown_state,
)
from tidegauge.webapp.maintenance import services
from tidegauge.webapp.maintenance.confirmations import maintenance_confirmation
from tidegauge.webapp.maintenance.runner import plans
from tidegauge.webapp.maintenance.schedule import scheduled
from tidegauge.webapp.maintenance.services import BrokerUnavailableError, RunFinishedError
from tidegauge.webapp.notify.alerts.history import silent_since

PAGE_STATES = 50
PAGE_RUNS = 25
RUNS_OF_STATE = 10


@require_safe
@signed_in
def maintenance(request):
    before = whole_number(request.GET.get("before", ""))
    visible = of_request(request)
    found = visible.runs(before=before, limit=PAGE_RUNS + 1)
    active = [visible.of_run(run) for run in runs.unfinished() if visible.sees(run.state_id)]
    schedule = scheduled()
    has_worker = any(member.role == "worker" and member.healthy for member in queries.members())
    silent = silent_since()
    version = f"{_version(found, active, schedule)}{has_worker:d}{bool(silent):d}"
    if is_current(request, version):
        return no_change()
    upkeep = latest_of_each(visible.states(), runs.latest(), active)
    states = Paginator(upkeep, PAGE_STATES).get_page(request.GET.get("states"))
    context = {
        "active": [RunView(run) for run in active],
        "runs": [RunView(run) for run in found[:PAGE_RUNS] if run.is_finished],
        "older": found[PAGE_RUNS - 1].id if len(found) > PAGE_RUNS else None,
        "is_first": not before,
        "states": states,
        "schedule": schedule,
        "has_worker": has_worker,
        "silent_since": silent,
        "may_maintain": request.user.has_perm(REQUEST_MAINTENANCE) and not visible.scope.key_prefix,
    }
    shown = {name: request.GET[name] for name in ("before", "states") if request.GET.get(name)}
    return page(request, "dashboard/maintenance.html", version, context, shown)


@state_page
@permission_required(REQUEST_MAINTENANCE, raise_exception=True)
def upkeep(request, pipeline, version, name):
    """The maintenance of one state: what can be requested, and its last runs."""
    visible = of_request(request)
    found = visible.runs(before=None, limit=RUNS_OF_STATE, state=name)
    active = [visible.of_run(run) for run in runs.unfinished() if run.state_id == name]
    state = visible.state(name)
    [latest] = latest_of_each([state], runs.latest(), active)
    context = {
        "pipeline": pipeline,
        "state": state,
        "upkeep": latest,
        "runs": [RunView(run) for run in found if run.is_finished],
    }
    return page(request, "dashboard/upkeep.html", f"{version}{_version(found, active)}", context)


@require_safe
@signed_in
def run(request, run_id):
    try:
        found = of_request(request).run(run_id)
    except UnknownRunError:
        return unknown_run(request, run_id)
    version = _version([found])
    if is_current(request, version):
        return no_change()
    context = {"view": RunView(found), "may_maintain": request.user.has_perm(REQUEST_MAINTENANCE)}
    return page(request, "dashboard/run.html", version, context)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
@permission_required(REQUEST_MAINTENANCE, raise_exception=True)
def request_run(request, name, kind):
    """Show what a run would do; request it once that is confirmed. kind: of the run; the route sets it."""
    key_scope(request).check_whole_state(name)
    planned = plans(kind, [name])
    if not planned:
        return unknown_state(request, name)
    confirmation = maintenance_confirmation(
        kind,
        planned,
        cancel_url=reverse("dashboard:state", args=[name]),
        link_state=partial(name_link, "state"),
        link_run=_run_link,
    )
    return ask(request, confirmation) or _request_run(request, name, kind)


def _request_run(request: HttpRequest, name: str, kind: str) -> HttpResponse:
    try:
        queued = services.request_maintenance(kind=kind, state=name, requested_by=request.user.get_username())
    except UnknownStateError:
        return unknown_state(request, name)
    except UnfinishedRunError as busy:
        return _redirect(request, messages.WARNING, without_names(busy, request), "dashboard:run", busy.run_id)
    except BrokerUnavailableError as error:
        return _redirect(request, messages.ERROR, error, "dashboard:maintenance")
    return _redirect(request, messages.SUCCESS, f"Queued: {queued.kind} of {name}.", "dashboard:run", queued.id)


@require_POST
@login_required
@permission_required(REQUEST_MAINTENANCE, raise_exception=True)
def cancel(request, run_id):
    try:
        visible = of_request(request)
        visible.scope.check_whole_state(visible.run(run_id).state_id)
        services.cancel_maintenance(run_id, requested_by=request.user.get_username())
    except UnknownRunError:
        return unknown_run(request, run_id)
    except RunFinishedError as error:
        messages.warning(request, sentence(error))
    return redirect("dashboard:run", run_id)


def _run_link(run: MaintenanceRun, text: str) -> SafeString:
    return format_html('<a href="{}">{}</a>', reverse("dashboard:run", args=[run.id]), text)


def _redirect(request: HttpRequest, level: int, message: object, route: str, *parts: Any) -> HttpResponse:
    messages.add_message(request, level, sentence(message))
    return redirect(route, *parts)


def _version(*shown: list[Any]) -> str:
    """Return a digest that changes with the runs and the schedule, but not with time, which the page counts itself."""
    facts = [
        (entry.id, entry.status, entry.progress, entry.cancel_requested)
        if isinstance(entry, MaintenanceRun)
        else (entry.id, entry.is_enabled, entry.every, entry.last_at)
        for entries in shown
        for entry in entries
    ]
    return blake2s(repr(facts).encode(), digest_size=8).hexdigest()


@require_safe
def problems(request: HttpRequest) -> HttpResponse:
    """List the problems that the API may report. Needs no login, because the `type` of each problem links here."""
    return static_page(request, "dashboard/problems.html", {"problems": by_status()})

"""Maintenance: what runs, what ran, what runs next by itself; and the buttons to ask for a run or call one off."""

from hashlib import blake2s
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from state_backends.errors import UnknownStateError
from webapp.accounts import queries as accounts
from webapp.dashboard.entries import whole_number
from webapp.dashboard.maintenance import RunView, latest_of_each
from webapp.dashboard.views.live import is_seen, no_run, no_state, page, signed_in, still_page, unchanged
from webapp.states import queries, services
from webapp.states.models import MaintenanceRun
from webapp.states.schedule import scheduled
from webapp.states.services import BrokerUnavailableError, RunFinishedError, StateBusyError, UnknownRunError

PAGE_RUNS = 25

MAINTAIN = "states.add_maintenancerun"


@require_safe
@signed_in
def maintenance(request):
    before = whole_number(request.GET.get("before", ""))
    found = services.page(before=before, limit=PAGE_RUNS + 1)
    going, schedule = services.unfinished(), scheduled()
    version = _version(found, going, schedule)
    if is_seen(request, version):
        return unchanged()
    context = {
        "going": [RunView(run) for run in going],
        "runs": [RunView(run) for run in found[:PAGE_RUNS] if run.is_finished],
        "older": found[PAGE_RUNS - 1].id if len(found) > PAGE_RUNS else None,
        "is_first": not before,
        "states": latest_of_each(queries.states(), services.latest(), going),
        "schedule": schedule,
        "may_maintain": request.user.has_perm(MAINTAIN),
    }
    return page(request, "dashboard/maintenance.html", version, context, {"before": str(before)} if before else {})


@require_safe
@signed_in
def run(request, run_id):
    try:
        found = services.run(run_id)
    except UnknownRunError:
        return no_run(request, run_id)
    version = _version([found])
    if is_seen(request, version):
        return unchanged()
    context = {"view": RunView(found), "may_maintain": request.user.has_perm(MAINTAIN)}
    return page(request, "dashboard/run.html", version, context)


@require_POST
@login_required
@permission_required(MAINTAIN, raise_exception=True)
def ask(request, name, kind):
    """Ask for a run; `kind` is set by the route."""
    try:
        asked = services.request_maintenance(kind=kind, state=name, requested_by=request.user.get_username())
    except UnknownStateError:
        return no_state(request, name)
    except StateBusyError as busy:
        return _told(request, messages.WARNING, busy, "dashboard:run", busy.run_id)
    except BrokerUnavailableError as error:
        return _told(request, messages.ERROR, error, "dashboard:maintenance")
    return _told(request, messages.SUCCESS, f"Queued: {asked.kind} of {name}.", "dashboard:run", asked.id)


@require_POST
@login_required
@permission_required(MAINTAIN, raise_exception=True)
def cancel(request, run_id):
    try:
        services.cancel_maintenance(run_id, requested_by=request.user.get_username())
    except UnknownRunError:
        return no_run(request, run_id)
    except RunFinishedError as error:
        messages.warning(request, _sentence(error))
    return redirect("dashboard:run", run_id)


def _told(request: HttpRequest, level: int, what: object, place: str, *at: Any) -> HttpResponse:
    messages.add_message(request, level, _sentence(what))
    return redirect(place, *at)


def _sentence(what: object) -> str:
    text = str(what)
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _version(*shown: list[Any]) -> str:
    """Return what changes whenever a run or the schedule does; the time that passes is the page's own affair."""
    facts = [
        (entry.id, entry.status, entry.progress, entry.cancel_requested)
        if isinstance(entry, MaintenanceRun)
        else (entry.id, entry.is_enabled, entry.every, entry.last_at)
        for entries in shown
        for entry in entries
    ]
    return blake2s(repr(facts).encode(), digest_size=8).hexdigest()


# API keys: which there are, what each may do, and when it was last used. They are made and rotated in the admin.


SEE_KEYS = "api_keys.view_apikey"


@require_safe
@signed_in
@permission_required(SEE_KEYS, raise_exception=True)
def api_keys(request):
    return still_page(request, "dashboard/keys.html", {"keys": accounts.api_keys()})

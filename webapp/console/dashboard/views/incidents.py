"""Acting on incidents from the Health page: acknowledge their problems, or send no messages about them for a time."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps

from django.contrib import messages
from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_POST

from tidegauge.webapp.accounts.permissions import SILENCE, key_scope
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.console.dashboard.views.live import View
from tidegauge.webapp.notify.alerts.acknowledged import acknowledge, silence

HOUR = timedelta(hours=1)
# The morning in the reader's time zone, which its browser sends; later than this is not the next one.
LONGEST = timedelta(hours=25)


def _acting(view: Callable[[HttpRequest, list[PipelineStatus]], None]) -> View:
    """Call `view(request, chosen)` with the pipelines named `pipeline` that exist, then show Health or the alerts."""

    @require_POST
    @login_required
    @permission_required(SILENCE, raise_exception=True)
    @wraps(view)
    def acting(request: HttpRequest) -> HttpResponse:
        key_scope(request).check_unrestricted()
        asked = set(request.POST.getlist("pipeline"))
        if chosen := [pipeline for pipeline in queries.pipelines() if pipeline.name in asked]:
            view(request, chosen)
        else:
            messages.warning(request, "Nothing was changed: these pipelines do not exist.")
        return redirect("dashboard:alerts" if request.POST.get("next") == "alerts" else "dashboard:index")

    return acting


@_acting
def acknowledge_problems(request: HttpRequest, chosen: list[PipelineStatus]) -> None:
    acknowledge(chosen, request.user)  # type: ignore[arg-type]
    messages.success(request, f"Acknowledged: {_names(chosen)}.")


@_acting
def silence_messages(request: HttpRequest, chosen: list[PipelineStatus]) -> None:
    """Until the time `until`, or for an hour if it is empty."""
    until = _until(request.POST.get("until", ""))
    silence(chosen, until, request.user)  # type: ignore[arg-type]
    messages.success(request, f"No messages about {_names(chosen)} for {_length(until - timezone.now())}.")


def _until(given: str) -> datetime:
    now = timezone.now()
    try:
        until = parse_datetime(given)
    except ValueError:
        until = None
    is_usable = until is not None and until.tzinfo is not None and now < until <= now + LONGEST
    return until if is_usable and until is not None else now + HOUR


def _names(chosen: list[PipelineStatus]) -> str:
    names = [pipeline.name for pipeline in chosen]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _length(length: timedelta) -> str:
    minutes = round(length.total_seconds() / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"

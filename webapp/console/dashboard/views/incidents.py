"""Acting on incidents from the Health page: acknowledge their problems, or send no messages about them for a time."""

from datetime import datetime, timedelta

from django.contrib import messages
from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_POST

from tidegauge.webapp.accounts.permissions import key_scope
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.console.dashboard.views.pipelines import SILENCE
from tidegauge.webapp.notify.alerts.acknowledged import acknowledge, silence

HOUR = timedelta(hours=1)
# The morning in the reader's time zone, which its browser sends; later than this is not the next one.
LONGEST = timedelta(hours=25)


@require_POST
@login_required
@permission_required(SILENCE, raise_exception=True)
def act(request: HttpRequest) -> HttpResponse:
    """Acknowledge the pipelines named `pipeline`, or silence them until a time; an empty `until` is in an hour."""
    key_scope(request).check_unrestricted()
    asked = set(request.POST.getlist("pipeline"))
    chosen = [pipeline for pipeline in queries.pipelines() if pipeline.name in asked]
    if not chosen:
        messages.warning(request, "Nothing was changed: these pipelines do not exist.")
    elif request.POST.get("act") == "acknowledge":
        acknowledge(chosen, request.user)  # type: ignore[arg-type]
        messages.success(request, f"Acknowledged: {_names(chosen)}.")
    else:
        until = _until(request.POST.get("until", ""))
        silence(chosen, until, request.user)  # type: ignore[arg-type]
        messages.success(request, f"No messages about {_names(chosen)} for {_length(until - timezone.now())}.")
    return redirect("dashboard:index")


def _until(given: str) -> datetime:
    now = timezone.now()
    try:
        until = parse_datetime(given)
    except ValueError:
        until = None
    is_usable = until is not None and until.tzinfo is not None and now < until <= now + LONGEST
    return until if is_usable and until is not None else now + HOUR


def _names(chosen: list[queries.PipelineStatus]) -> str:
    names = [pipeline.name for pipeline in chosen]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _length(length: timedelta) -> str:
    minutes = round(length.total_seconds() / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"

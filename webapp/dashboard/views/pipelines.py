"""One pipeline: its figures, the states it feeds, its newest batches, and the button that pauses it."""

from collections.abc import Callable

from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from state_backends.errors import UnknownPipelineError
from webapp.dashboard.live import page
from webapp.dashboard.sparkline import sparkline
from webapp.dashboard.views.following import of_pipeline
from webapp.dashboard.views.missing import no_pipeline
from webapp.states import selectors, services

SPARKLINE_BATCHES = 60
SHOWN_BATCHES = 12
SHOWN_DEAD_LETTERS = 5

STEER = "states.change_pipeline"


@of_pipeline
def pipeline(request, found, version):
    batches = selectors.batches(found.name, SPARKLINE_BATCHES)
    shown = {
        "pipeline": found,
        "sparkline": sparkline(batches),
        "batches": batches[:SHOWN_BATCHES],
        "dead_letters": selectors.dead_letters(found.name, SHOWN_DEAD_LETTERS) if found.dead_letters else [],
        "states": selectors.states(found.name),
        "may_steer": request.user.has_perm(STEER),
    }
    return page(request, "dashboard/pipeline.html", version, shown)


@require_POST
@login_required
@permission_required(STEER, raise_exception=True)
def pause(request, name):
    return _wish(request, services.pause_pipeline, name)


@require_POST
@login_required
@permission_required(STEER, raise_exception=True)
def resume(request, name):
    return _wish(request, services.resume_pipeline, name)


def _wish(request: HttpRequest, service: Callable[..., None], name: str) -> HttpResponse:
    try:
        service(name=name, requested_by=request.user.get_username())
    except UnknownPipelineError:
        return no_pipeline(request, name)
    return redirect("dashboard:pipeline", name)

"""The pages: what goes on, pipeline by pipeline and state by state."""

import json
from collections.abc import Callable
from shlex import quote

from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST
from redis import RedisError

from state_backends.errors import MovedOnError, UnknownPipelineError, UnknownStateError
from webapp.dashboard.entries import EntriesQuery, entries_page, global_value, leading_keys, number_measures
from webapp.dashboard.live import is_seen, page, signed_in, tide, unchanged
from webapp.dashboard.sparkline import sparkline
from webapp.states import selectors, services, specs, stores

SPARKLINE_BATCHES = 60
SHOWN_BATCHES = 20
SHOWN_DEAD_LETTERS = 20

STEER = "states.change_pipeline"


@signed_in
def overview(request):
    pipelines, members = selectors.pipelines(), selectors.members()
    version = tide(pipelines, members)
    if is_seen(request, version):
        return unchanged()
    batches = selectors.recent_batches(SPARKLINE_BATCHES)
    cards = [(pipeline, sparkline(batches.get(pipeline.name, []))) for pipeline in pipelines]
    shown = {"cards": cards, "states": selectors.states(), "members": members}
    return page(request, "dashboard/overview.html", version, shown)


@signed_in
def pipeline(request, name):
    try:
        found = selectors.pipeline(name)
    except UnknownPipelineError:
        return _missing(request, "pipeline", name, selectors.pipeline_names())
    version = tide([found])
    if is_seen(request, version):
        return unchanged()
    batches = selectors.batches(name, SPARKLINE_BATCHES)
    shown = {
        "pipeline": found,
        "sparkline": sparkline(batches),
        "batches": batches[:SHOWN_BATCHES],
        "dead_letters": selectors.dead_letters(name, SHOWN_DEAD_LETTERS) if found.dead_letters else [],
        "states": selectors.states(name),
        "may_steer": request.user.is_staff and request.user.has_perm(STEER),
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
        return _missing(request, "pipeline", name, selectors.pipeline_names())
    return redirect("dashboard:pipeline", name)


@signed_in
def state(request, name):
    try:
        feeding = selectors.pipeline_of(name)
    except UnknownStateError:
        return _missing(request, "state", name, selectors.state_names())
    version = tide([feeding])
    if is_seen(request, version):
        return unchanged()
    reader = specs.reader(stores.connection(), name)
    asked = {part: request.GET[part] for part in ("q", "order", "by", "page") if request.GET.get(part)}
    try:
        values = _entries(reader, EntriesQuery.parse(asked, reader.spec)) if reader.spec.key else _only_value(reader)
    except (RedisError, MovedOnError):
        # Asked again with the next look, whatever the tide does.
        version, values = "", {"is_silent": True, "example": []}
    shown = {
        "pipeline": feeding,
        "state": selectors.state(name),
        "is_json": not reader.spec.measures,
        "curl": _curl(request, name, values["example"]),
    }
    return page(request, "dashboard/state.html", version, shown | values, asked)


def _entries(reader, query):
    measures = number_measures(reader.spec)
    measure = query.by or next(iter(measures), "")
    found = entries_page(reader, query)
    leading = leading_keys(reader, measure) if measure else []
    return {
        "query": query,
        "entries": found,
        "measures": measures,
        "measure": measure,
        "leading": leading,
        "example": leading[0].key if leading else next((entry["key"] for entry in found.entries), [".."]),
    }


def _only_value(reader):
    return {"figures": global_value(reader), "example": []}


def _curl(request: HttpRequest, name: str, key: list) -> str:
    return (
        f"curl -s {request.build_absolute_uri(f'/api/v1/states/{name}/query')} \\\n"
        '  -H "Authorization: Bearer $TIDEMARK_API_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d {quote(json.dumps({'keys': [key]}))}"
    )


def _missing(request: HttpRequest, kind: str, name: str, names: list[str]) -> HttpResponse:
    there_are = [(other, reverse(f"dashboard:{kind}", args=[other])) for other in names]
    return render(request, "dashboard/missing.html", {"kind": kind, "name": name, "there_are": there_are}, status=404)

"""The pages: what goes on, pipeline by pipeline and state by state."""

import json

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from state_backends import StateReader
from state_backends.errors import UnknownPipelineError, UnknownStateError
from webapp.dashboard.entries import EntriesQuery, entries_page, global_value, leading_keys, number_measures
from webapp.dashboard.live import is_seen, page, signed_in, tide, unchanged
from webapp.dashboard.sparkline import sparkline
from webapp.states import selectors, specs, stores

SPARKLINE_BATCHES = 60
SHOWN_BATCHES = 20
SHOWN_DEAD_LETTERS = 20


@signed_in
def overview(request):
    pipelines = selectors.pipelines()
    version = tide(pipelines)
    if is_seen(request, version):
        return unchanged()
    batches = selectors.recent_batches(SPARKLINE_BATCHES)
    cards = [(pipeline, sparkline(batches.get(pipeline.name, []))) for pipeline in pipelines]
    return page(request, "dashboard/overview.html", version, {"cards": cards, "states": selectors.states()})


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
    }
    return page(request, "dashboard/pipeline.html", version, shown)


@signed_in
def state(request, name):
    try:
        feeding = selectors.pipeline_of(name)
    except UnknownStateError:
        return _missing(request, "state", name, selectors.state_names())
    version = tide([feeding])
    if is_seen(request, version):
        return unchanged()
    reader = StateReader(stores.connection(), specs.spec(stores.connection(), name))
    query = EntriesQuery.parse(request.GET, reader.spec)
    shown = {"pipeline": feeding, "state": selectors.state(name), "query": query}
    shown |= _values(reader, query) if reader.spec.key else {"figures": global_value(reader)}
    shown["curl"] = _curl(request, name, shown.get("leading", []), has_key=bool(reader.spec.key))
    asked = {name: request.GET[name] for name in ("q", "order", "by", "page") if request.GET.get(name)}
    return page(request, "dashboard/state.html", version, shown, asked)


def _values(reader, query):
    return {
        "measures": number_measures(reader.spec),
        "leading": leading_keys(reader, query.by) if query.by else [],
        "entries": entries_page(reader, query),
    }


def _curl(request: HttpRequest, name: str, leading: list, has_key: bool) -> str:
    key = leading[0].key if leading else [".."] if has_key else []
    return (
        f"curl -s {request.build_absolute_uri(f'/api/v1/states/{name}/query')} \\\n"
        '  -H "Authorization: Bearer $TIDEMARK_API_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d '{json.dumps({'keys': [key]})}'"
    )


def _missing(request: HttpRequest, kind: str, name: str, names: list[str]) -> HttpResponse:
    there_are = [(other, reverse(f"dashboard:{kind}", args=[other])) for other in names]
    return render(request, "dashboard/missing.html", {"kind": kind, "name": name, "there_are": there_are}, status=404)

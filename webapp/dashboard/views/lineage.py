"""The page of lineage: all states, those around one pipeline, or those of a filter."""

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from webapp.accounts.permissions import key_scope
from webapp.core.system_snapshot import pipeline_statuses
from webapp.dashboard.lineage import PAGE_ROWS, USED_DAYS, StateLineage, lineage
from webapp.dashboard.lineage_drawing import drawing
from webapp.dashboard.strip import keep
from webapp.dashboard.views.live import signed_in, static_page
from webapp.states.visible import of_request


@require_safe
@signed_in
def lineage_page(request: HttpRequest) -> HttpResponse:
    asked = {part: request.GET.get(part, "").strip()[:200] for part in ("q", "pipeline")}
    every = lineage(request)
    found = _matching(asked["q"], _around(asked["pipeline"], every))
    pipelines = of_request(request).of_pipelines(pipeline_statuses())
    keep(request, pipelines)
    context = {
        **asked,
        "lineage": Paginator(found, PAGE_ROWS).get_page(request.GET.get("page")),
        "drawing": drawing(found, every, pipelines),
        "pipelines": [pipeline.name for pipeline in pipelines],
        "used_days": USED_DAYS,
        "is_restricted": not key_scope(request).is_unrestricted,
    }
    return static_page(request, "dashboard/lineage.html", context)


def _matching(text: str, rows: list[StateLineage]) -> list[StateLineage]:
    return [row for row in rows if any(text.lower() in name.lower() for name in row.names)]


def _around(pipeline: str, rows: list[StateLineage]) -> list[StateLineage]:
    """Return the states of a pipeline, and those that they read or that read them."""
    if not pipeline:
        return rows
    own = {row.state for row in rows if row.pipeline == pipeline}
    return [row for row in rows if own & row.states]

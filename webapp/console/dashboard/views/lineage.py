"""The lineage page: all states, those around one pipeline, or those that match a filter."""

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from tidegauge.webapp.accounts.permissions import key_scope
from tidegauge.webapp.catalog.visible import of_request
from tidegauge.webapp.console.dashboard.lineage import PAGE_ROWS, USED_DAYS, StateLineage, lineage
from tidegauge.webapp.console.dashboard.lineage_drawing import drawing
from tidegauge.webapp.console.dashboard.strip import keep
from tidegauge.webapp.console.dashboard.views.live import signed_in, static_page
from tidegauge.webapp.console.system_snapshot import pipeline_statuses


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

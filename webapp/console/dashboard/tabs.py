"""The tabs of the pages of a pipeline and of a state: links, each to a page of its own."""

from collections.abc import Collection
from dataclasses import dataclass

from django.http import HttpRequest
from django.urls import reverse

from tidegauge.webapp.accounts.permissions import REQUEST_MAINTENANCE, STEER_PIPELINES, key_scope
from tidegauge.webapp.catalog.queries import PipelineStatus, StateSummary


@dataclass(frozen=True)
class Tab:
    """count: of what is in it; 0 shows none."""

    label: str
    address: str
    is_here: bool
    count: int = 0


def pipeline_tabs(request: HttpRequest, pipeline: PipelineStatus) -> list[Tab]:
    is_whole = key_scope(request).is_unrestricted
    may_operate = is_whole and request.user.has_perm(STEER_PIPELINES)
    letters = [("dead_letters", "Dead letters", {"replay"}, pipeline.dead_letters)] if is_whole else []
    operations = [("acts", "Operations", set[str](), 0)] if may_operate else []
    wanted = [
        ("pipeline", "Health", set[str](), 0),
        ("batches", "Batches", {"batch"}, 0),
        *letters,
        ("pipeline_states", "States & lineage", set[str](), 0),
        *operations,
        ("pipeline_api", "API", set[str](), 0),
    ]
    return [_tab(request, route, label, pipeline.name, within, count) for route, label, within, count in wanted]


def state_tabs(request: HttpRequest, state: StateSummary) -> list[Tab]:
    upkeep = [("upkeep", "Maintenance", {"compact", "expire", "audit"})]
    wanted = [
        ("state", "Data", {"key", "lookup"}),
        *([("explore", "Explore", {"compare"})] if state.key else []),
        ("schema", "Schema & lineage", set[str]()),
        ("state_api", "API", set[str]()),
        *(upkeep if request.user.has_perm(REQUEST_MAINTENANCE) else []),
    ]
    return [_tab(request, route, label, state.name, within) for route, label, within in wanted]


def _tab(request: HttpRequest, route: str, label: str, name: str, within: Collection[str], count: int = 0) -> Tab:
    match = request.resolver_match
    here = match.url_name if match else None
    return Tab(label, reverse(f"dashboard:{route}", args=[name]), here == route or here in within, count)

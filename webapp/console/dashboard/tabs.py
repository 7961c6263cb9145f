"""The tabs of the pages of a pipeline and of a state: links, each to a page of its own."""

from dataclasses import dataclass
from functools import partial

from django.http import HttpRequest
from django.urls import reverse

from tidegauge.webapp.accounts.permissions import REQUEST_MAINTENANCE, STEER_PIPELINES, key_scope
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.state_summary import StateSummary


@dataclass(frozen=True)
class Tab:
    """count: of what is in it; 0 shows none."""

    label: str
    address: str
    is_here: bool
    count: int = 0


def pipeline_tabs(request: HttpRequest, pipeline: PipelineStatus) -> list[Tab]:
    is_whole, tab = key_scope(request).is_unrestricted, partial(_tab, request, pipeline.name)
    letters = [tab("dead_letters", "Dead letters", "replay", count=pipeline.dead_letters)] if is_whole else []
    operations = [tab("acts", "Operations")] if is_whole and request.user.has_perm(STEER_PIPELINES) else []
    return [
        tab("pipeline", "Health"),
        tab("batches", "Batches", "batch"),
        *letters,
        tab("pipeline_states", "States & lineage"),
        *operations,
        tab("pipeline_api", "API"),
    ]


def state_tabs(request: HttpRequest, state: StateSummary) -> list[Tab]:
    tab = partial(_tab, request, state.name)
    may_maintain = request.user.has_perm(REQUEST_MAINTENANCE)
    return [
        tab("state", "Data", "key", "lookup"),
        *([tab("explore", "Explore", "compare")] if state.key else []),
        tab("schema", "Schema & lineage"),
        tab("state_api", "API"),
        *([tab("upkeep", "Maintenance", "compact", "expire", "audit")] if may_maintain else []),
    ]


def _tab(request: HttpRequest, name: str, route: str, label: str, *within: str, count: int = 0) -> Tab:
    """within: the routes of the pages below it."""
    match = request.resolver_match
    here = match.url_name if match else None
    return Tab(label, reverse(f"dashboard:{route}", args=[name]), here == route or here in within, count)

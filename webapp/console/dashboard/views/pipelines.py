"""The overview of all pipelines, and the pages of one: figures, batches, pause and resume."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from tidegauge.state_backends.errors import UnknownPipelineError
from tidegauge.webapp.accounts.permissions import IN_NO_GROUP, SILENCE, STEER_PIPELINES, key_scope
from tidegauge.webapp.catalog import queries, replicas
from tidegauge.webapp.catalog.batches import BatchSummary, batch_at, batch_detail, recent_rates
from tidegauge.webapp.catalog.limits import limits_of
from tidegauge.webapp.catalog.verdicts import verdict, worst_first
from tidegauge.webapp.catalog.visible import of_request
from tidegauge.webapp.console.dashboard import api_panel, strip
from tidegauge.webapp.console.dashboard.alerts import pipeline_alerts
from tidegauge.webapp.console.dashboard.charts import sparkline
from tidegauge.webapp.console.dashboard.first_run import ways
from tidegauge.webapp.console.dashboard.health import health
from tidegauge.webapp.console.dashboard.incidents import SHOWN as DAY
from tidegauge.webapp.console.dashboard.incidents import incidents, periods_of
from tidegauge.webapp.console.dashboard.lineage import lineage
from tidegauge.webapp.console.dashboard.overview import (
    OverviewQuery,
    listed_pipelines,
    pipeline_headings,
    shown_pipelines,
    shown_states,
    state_headings,
    well_pipelines,
)
from tidegauge.webapp.console.dashboard.pasted import whole_number
from tidegauge.webapp.console.dashboard.service_strip import services
from tidegauge.webapp.console.dashboard.skew import skews
from tidegauge.webapp.console.dashboard.time_charts import (
    DURATION,
    ShownRange,
    moment_of,
    more_charts,
    pipeline_charts,
)
from tidegauge.webapp.console.dashboard.timeline import timeline
from tidegauge.webapp.console.dashboard.verdict_history import bars_of, verdict_history
from tidegauge.webapp.console.dashboard.views.live import (
    is_current,
    no_change,
    page,
    pipeline_page,
    pipelines_version,
    signed_in,
    unknown_batch,
    unknown_pipeline,
)
from tidegauge.webapp.maintenance.operations import pause_pipeline, resume_pipeline
from tidegauge.webapp.notify.alerts.acknowledged import acts_version

OVERVIEW_BATCHES = 30
WATERMARK_BATCHES = 60
SHOWN_LINEAGE = 12
PAGE_BATCHES = 50

# With more states than this, the table of batches shows the sum of their keys.
MAX_STATE_COLUMNS = 5


@signed_in
def overview(request):
    visible = of_request(request)
    is_whole = visible.scope.is_unrestricted
    pipelines, members = visible.pipelines(), queries.members() if is_whole else []
    standings = replicas.configured.standings() if is_whole else []
    needs = strip.keep(request, pipelines).needs
    found_services = services(members) if is_whole else []
    has_incidents = any(verdict(pipeline).is_problem for pipeline in pipelines)
    incident_version = acts_version() if is_whole and has_incidents else ""
    version = pipelines_version(pipelines, members, standings, (found_services, incident_version))
    if is_current(request, version):
        return no_change()
    query = OverviewQuery.parse(request.GET)
    left = shown_pipelines(query, pipelines, needs)
    well, all_incidents = well_pipelines(query, left), incidents(worst_first(pipelines), is_restricted=not is_whole)
    names = {pipeline.name for pipeline in left}
    context = _filtered(query, pipelines, needs) | {
        "overall": health(pipelines, all_incidents, is_restricted=not is_whole),
        "incidents": [each for each in all_incidents if any(one.pipeline.name in names for one in each.pipelines)],
        "well": well,
        "well_count": sum(verdict(pipeline).tone == "good" for pipeline in left),
        "idle_count": sum(verdict(pipeline).tone == "calm" for pipeline in left),
        "rows": _well_rows(list(well)),
        "pipeline_headings": pipeline_headings(query),
        "may_act": is_whole and request.user.has_perm(SILENCE),
        "services": found_services,
        "members": sorted(members, key=lambda member: member.healthy),
        "replicas": sorted(standings, key=lambda standing: standing.is_used),
        "ways": ways() if not pipelines else [],
        "is_restricted": not is_whole,
        "is_in_no_group": visible.scope is IN_NO_GROUP,
    }
    return page(request, "dashboard/overview.html", version, context, query.parts, rows=len(left))


@require_safe
@signed_in
def all_pipelines(request):
    """All pipelines, the worst first."""
    pipelines = of_request(request).pipelines()
    needs = strip.keep(request, pipelines).needs
    version = pipelines_version(pipelines)
    if is_current(request, version):
        return no_change()
    query = OverviewQuery.parse(request.GET)
    shown = listed_pipelines(query, shown_pipelines(query, pipelines, needs))
    context = _filtered(query, pipelines, needs) | {
        "shown": shown,
        "rows": _well_rows(list(shown)),
        "pipeline_headings": pipeline_headings(query),
    }
    return page(request, "dashboard/pipelines_page.html", version, context, query.parts, rows=len(shown))


@require_safe
@signed_in
def states(request):
    """All states, with the pipelines that feed them."""
    return _states(request, "dashboard/all_states.html")


@require_safe
@signed_in
def explore_states(request):
    """The states that can be explored, which are those with a key."""
    return _states(request, "dashboard/explore_states.html", has_key=True)


def _states(request, template, *, has_key=False):
    visible = of_request(request)
    pipelines = visible.pipelines()
    needs = strip.keep(request, pipelines).needs
    version = pipelines_version(pipelines)
    if is_current(request, version):
        return no_change()
    query = OverviewQuery.parse(request.GET)
    left = shown_pipelines(query, pipelines, needs)
    found = shown_states(query, left, [state for state in visible.states() if state.key or not has_key])
    context = _filtered(query, pipelines, needs) | {"states": found, "state_headings": state_headings(query)}
    return page(request, template, version, context, query.parts, rows=len(found))


def _filtered(query, pipelines, needs):
    """Return what the filter above a table shows."""
    return {"query": query, "count": len(pipelines), "troubled": len(needs)}


def _well_rows(shown):
    """Return each pipeline with its sparkline and its verdicts of the last 24 hours."""
    names = [pipeline.name for pipeline in shown]
    rates, periods = recent_rates(names, OVERVIEW_BATCHES), periods_of(names)
    return [
        (
            pipeline,
            sparkline(rates.get(pipeline.name, [])),
            bars_of(pipeline, periods.get(pipeline.name, []), DAY),
        )
        for pipeline in shown
    ]


@pipeline_page
def pipeline(request, found, version):
    """Its health: what is wrong, and the charts."""
    visible = of_request(request)
    is_whole, shown_range = visible.scope.is_unrestricted, ShownRange.of_pipeline(request.GET, found)
    marks = timeline(found, shown_range, visible)
    shown = {
        "range": shown_range,
        "charts": pipeline_charts(is_restricted=not is_whole, lag_limit=limits_of(found.name).stale_seconds),
        "more_charts": more_charts(
            has_event_time=any(batch.watermark for batch in visible.batches(found.name, WATERMARK_BATCHES)),
            pending_unit=(found.pending or {}).get("unit", ""),
        ),
        "marks": marks,
        "drawn_marks": [mark.drawn for mark in marks],
        "history": verdict_history(found, shown_range),
        "alerts": pipeline_alerts(found, visible),
        "is_restricted": not is_whole,
    }
    return page(request, "dashboard/pipeline.html", version, _of(request, found) | shown, shown_range.query)


@pipeline_page
def pipeline_states(request, found, version):
    shown = {
        "states": of_request(request).states(found.name),
        "lineage": lineage(request, pipeline=found.name)[:SHOWN_LINEAGE],
    }
    return page(request, "dashboard/pipeline_states.html", version, _of(request, found) | shown)


@pipeline_page
def pipeline_api(request, found, version):
    shown_range = ShownRange.of_pipeline(request.GET, found)
    snippets = api_panel.of_pipeline(request, found.name, shown_range)
    shown = _of(request, found) | {"snippets": snippets}
    return page(request, "dashboard/pipeline_api.html", version, shown, shown_range.query)


def _of(request, pipeline):
    """Return what the head of each page of a pipeline shows."""
    may_control = request.user.has_perm(STEER_PIPELINES) and of_request(request).scope.is_unrestricted
    return {"pipeline": pipeline, "may_control": may_control}


@require_POST
@login_required
@permission_required(STEER_PIPELINES, raise_exception=True)
def pause(request, name):
    return _request(request, pause_pipeline, name)


@require_POST
@login_required
@permission_required(STEER_PIPELINES, raise_exception=True)
def resume(request, name):
    return _request(request, resume_pipeline, name)


def _request(request: HttpRequest, service: Callable[..., None], name: str) -> HttpResponse:
    key_scope(request).check_unrestricted()
    try:
        service(name=name, requested_by=request.user.get_username())
    except UnknownPipelineError:
        return unknown_pipeline(request, name)
    return redirect("dashboard:pipeline", name)


@pipeline_page
def batches(request, pipeline, version):
    before = whole_number(request.GET.get("before", ""))
    found = of_request(request).batches(pipeline.name, PAGE_BATCHES + 1, before)
    shown = found[:PAGE_BATCHES]
    context = (
        _of(request, pipeline)
        | {
            "batches": shown,
            "chart": DURATION,
            "range": ShownRange.of_batches(shown),
            # Only on the first page, because the API does not list older batches.
            "snippets": None if before else api_panel.of_batches(request, pipeline.name, PAGE_BATCHES),
            "columns": pipeline.states if len(pipeline.states) <= MAX_STATE_COLUMNS else [],
            "has_watermark": any(batch.watermark for batch in shown),
        }
        | _pages(shown, before, has_more=len(found) > PAGE_BATCHES)
    )
    return page(request, "dashboard/batches.html", version, context, {"before": str(before)} if before else {})


@pipeline_page
def batch_of_time(request, pipeline, version):
    """Lead from a point of a chart to the batch that was the newest one then."""
    moment = moment_of(request.GET.get("time", ""))
    txid = moment and batch_at(pipeline, moment)
    return redirect("dashboard:batch", pipeline.name, txid) if txid else redirect("dashboard:batches", pipeline.name)


@pipeline_page
def batch(request, pipeline, version, txid):
    found = batch_detail(pipeline, txid)
    if found is None:
        return unknown_batch(request, pipeline.name, txid)
    found = of_request(request).of_batch_detail(found)
    durations = sorted(found.summary.metrics.get("duration_ms", {}).items(), key=lambda phase: -phase[1])
    context = _of(request, pipeline) | {
        "detail": found,
        "batch": found.summary,
        "skews": skews(found.summary),
        "durations": [(phase, ms / 1000, round(100 * ms / max(durations[0][1], 1), 1)) for phase, ms in durations],
        "newest": pipeline.open_txid or pipeline.committed_txid,
    }
    return page(request, "dashboard/batch.html", version, context)


def _pages(shown: list[BatchSummary], before: int | None, *, has_more: bool) -> dict[str, Any]:
    """Return where the older and the newer page start. The latter is PAGE_BATCHES above, because txids have no gaps."""
    return {
        "older": shown[-1].txid if has_more else None,
        "newer": shown[0].txid + PAGE_BATCHES + 1 if before and shown else None,
        "is_first": not before,
    }

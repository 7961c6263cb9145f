"""The overview: every pipeline, state and process at a glance, the worst first."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from state_backends.errors import UnknownPipelineError
from webapp.dashboard.attention import skews, urgency, worst_first
from webapp.dashboard.charts import BarChart, bar_chart, sparkline
from webapp.dashboard.entries import whole_number
from webapp.dashboard.views.live import is_seen, no_batch, no_pipeline, of_pipeline, page, signed_in, tide, unchanged
from webapp.states import queries, services
from webapp.states.batches import batch_detail, batch_page, dead_letter_page
from webapp.states.queries import BatchSummary

OVERVIEW_BATCHES = 60


@signed_in
def overview(request):
    pipelines, members = queries.pipelines(), queries.members()
    version = tide(pipelines, members)
    if is_seen(request, version):
        return unchanged()
    batches = queries.recent_batches(OVERVIEW_BATCHES)
    ranked = worst_first(pipelines)
    shown = {
        "cards": [(pipeline, sparkline(batches.get(pipeline.name, []))) for pipeline in ranked],
        "troubled": sum(urgency(pipeline) == "bad" for pipeline in pipelines),
        "states": queries.states(),
        "members": sorted(members, key=lambda member: member.healthy),
    }
    return page(request, "dashboard/overview.html", version, shown)


# One pipeline: its figures, the states it feeds, its newest batches, and the button that pauses it.


SPARKLINE_BATCHES = 60
SHOWN_BATCHES = 12
SHOWN_DEAD_LETTERS = 5

STEER = "states.change_pipeline"


@of_pipeline
def pipeline(request, found, version):
    batches = queries.batches(found.name, SPARKLINE_BATCHES)
    shown = {
        "pipeline": found,
        "sparkline": sparkline(batches),
        "batches": batches[:SHOWN_BATCHES],
        "dead_letters": queries.dead_letters(found.name, SHOWN_DEAD_LETTERS) if found.dead_letters else [],
        "states": queries.states(found.name),
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


# The batches of a pipeline, page by page, one of them in detail, and the input that none of them could count.


PAGE_BATCHES = 50
PAGE_LETTERS = 25

# More columns than this are not read as a table any more.
STATE_COLUMNS = 5


@of_pipeline
def batches(request, pipeline, version):
    before = whole_number(request.GET.get("before", ""))
    found = batch_page(pipeline, before=before, limit=PAGE_BATCHES + 1)
    shown = found[:PAGE_BATCHES]
    context = {
        "pipeline": pipeline,
        "batches": shown,
        "chart": duration_chart(shown),
        "columns": pipeline.states if len(pipeline.states) <= STATE_COLUMNS else [],
        "has_watermark": any(batch.watermark for batch in shown),
    } | _pages(shown, before, has_more=len(found) > PAGE_BATCHES)
    return page(request, "dashboard/batches.html", version, context, {"before": str(before)} if before else {})


@of_pipeline
def batch(request, pipeline, version, txid):
    found = batch_detail(pipeline, txid)
    if found is None:
        return no_batch(request, pipeline.name, txid)
    durations = sorted(found.summary.metrics.get("duration_ms", {}).items(), key=lambda part: -part[1])
    context = {
        "pipeline": pipeline,
        "detail": found,
        "batch": found.summary,
        "skews": skews(found.summary),
        "durations": [(part, ms, round(100 * ms / max(durations[0][1], 1), 1)) for part, ms in durations],
        "newest": pipeline.open_txid or pipeline.committed_txid,
    }
    return page(request, "dashboard/batch.html", version, context)


@of_pipeline
def dead_letters(request, pipeline, version):
    asked = {part: request.GET[part].replace("\0", "") for part in ("state", "txid", "before") if request.GET.get(part)}
    found = dead_letter_page(
        pipeline,
        state=asked.get("state", ""),
        txid=whole_number(asked.get("txid", "")),
        before=_place(asked.get("before", "")),
        limit=PAGE_LETTERS,
    )
    context = {
        "pipeline": pipeline,
        "letters": found.letters,
        "asked": asked,
        "filters": {part: text for part, text in asked.items() if part != "before"},
        "following": "{}.{}".format(*found.following) if found.following else "",
    }
    return page(request, "dashboard/dead_letters.html", version, context, asked)


def duration_chart(shown: list[BatchSummary]) -> BarChart | None:
    """Draw how long the committed ones took, oldest first; replays are marked."""
    timed = [batch for batch in reversed(shown) if batch.seconds is not None and batch.status == "committed"]
    return bar_chart([(batch.txid, batch.seconds or 0.0, "watch" if batch.attempt > 1 else "") for batch in timed])


def _pages(shown: list[BatchSummary], before: int | None, *, has_more: bool) -> dict[str, Any]:
    """Return where the pages beside this one begin: txids rise by one, so the newer page is a page further up."""
    return {
        "older": shown[-1].txid if has_more else None,
        "newer": shown[0].txid + PAGE_BATCHES + 1 if before and shown else None,
        "is_first": not before,
    }


def _place(text: str) -> tuple[int, int] | None:
    txid, _, letter_id = text.partition(".")
    place = whole_number(txid), whole_number(letter_id)
    return None if place[0] is None or place[1] is None else (place[0], place[1])

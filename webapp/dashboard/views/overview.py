"""The overview: every pipeline, state and process at a glance, the worst first."""

from webapp.dashboard.attention import urgency, worst_first
from webapp.dashboard.live import is_seen, page, signed_in, tide, unchanged
from webapp.dashboard.sparkline import sparkline
from webapp.states import selectors

SPARKLINE_BATCHES = 60


@signed_in
def overview(request):
    pipelines, members = selectors.pipelines(), selectors.members()
    version = tide(pipelines, members)
    if is_seen(request, version):
        return unchanged()
    batches = selectors.recent_batches(SPARKLINE_BATCHES)
    ranked = worst_first(pipelines)
    shown = {
        "cards": [(pipeline, sparkline(batches.get(pipeline.name, []))) for pipeline in ranked],
        "troubled": sum(urgency(pipeline) == "bad" for pipeline in pipelines),
        "states": selectors.states(),
        "members": sorted(members, key=lambda member: member.healthy),
    }
    return page(request, "dashboard/overview.html", version, shown)

"""The page with the operations on a pipeline: commands and their effect now, and the progress of running ones."""

from hashlib import blake2s

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from tidegauge.state_backends.errors import UnknownNameError
from tidegauge.webapp.accounts.permissions import STEER_PIPELINES, key_scope
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.console.dashboard.pasted import whole_number
from tidegauge.webapp.console.dashboard.views.live import (
    is_current,
    no_change,
    page,
    pipelines_version,
    signed_in,
    unknown_pipeline,
)
from tidegauge.webapp.maintenance import pipeline_acts


@require_safe
@signed_in
@permission_required(STEER_PIPELINES, raise_exception=True)
def acts(request: HttpRequest, name: str) -> HttpResponse:
    key_scope(request).check_unrestricted()
    try:
        pipeline = queries.pipeline(name)
    except UnknownNameError:
        return unknown_pipeline(request, name)
    works = pipeline_acts.works(name)
    version = pipelines_version([pipeline]) + blake2s(repr(works).encode(), digest_size=4).hexdigest()
    if is_current(request, version):
        return no_change()
    to, states = whole_number(request.GET.get("to", "")), queries.states(name)
    context = {
        "pipeline": pipeline,
        "works": works,
        "may_control": True,
        "to": to,
        "rewind": None if to is None else pipeline_acts.rewind_plan(pipeline, to),
        "reprocess_acts": list(pipeline_acts.reprocess_acts(pipeline)),
        "rebuilds": [pipeline_acts.rebuild_act(pipeline, state) for state in states if state.changelog],
        "audits": [(state, pipeline.start.command("audit", state.name)) for state in states],
        "recoveries": pipeline_acts.recovery_acts(pipeline),
    }
    return page(request, "dashboard/acts.html", version, context, {} if to is None else {"to": str(to)})

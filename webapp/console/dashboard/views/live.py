"""Live pages: a page asks whether it has changed, and gets new content only if it has.

It asks when the events process reports a commit, and every 15 seconds in any case; without the events process, every
second. It asks less often if it has many rows, so that a page of any size takes about 2 % of a core. One view and one
address serve both: a browser gets the page, htmx the part that is refreshed. The request sends the version shown as
`v`; if that is still the latest, the answer is an empty 204, which costs one or two statements.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from hashlib import blake2s
from typing import Any

import orjson
from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import now
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh

from tidegauge.state_backends.errors import UnknownNameError
from tidegauge.state_backends.schema.former import Kind
from tidegauge.state_backends.synchronizer.membership import Member
from tidegauge.webapp.accounts.concurrency import BusyError, TooManyAtOnceError
from tidegauge.webapp.accounts.permissions import OutsideError, key_scope
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.standing import Standing
from tidegauge.webapp.catalog.verdicts import verdict
from tidegauge.webapp.catalog.visible import Visible, of_request
from tidegauge.webapp.console.dashboard.strip import strip
from tidegauge.webapp.core.confirmation import Confirmation, is_confirmed

NO_QUERY: Mapping[str, str] = {}

# Reading and rendering this many rows takes 20 ms, which is 2 % of a core at one refresh a second.
ROWS_PER_SECOND = 20

View = Callable[..., HttpResponse]


def signed_in(view: View) -> View:
    """Require a login. An htmx request is told to reload its page, which then redirects to the login."""

    @wraps(view)
    def guarded(request, *args, **kwargs):
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        if request.htmx:
            return HttpResponseClientRefresh()
        return redirect_to_login(request.get_full_path())

    return never_cache(guarded)


def pipeline_page(view: View) -> View:
    """Call `view(request, pipeline, version, ..)` if the named pipeline has changed since the version shown."""
    return _refreshed(view, Visible.pipeline, unknown_pipeline)


def state_page(view: View) -> View:
    """Call `view(request, pipeline, version, name)` if the pipeline of the named state has changed."""
    return _refreshed(view, Visible.pipeline_of, unknown_state, keeps_name=True)


def _refreshed(
    view: View, find: Callable[[Visible, str], PipelineStatus], unknown: View, *, keeps_name: bool = False
) -> View:
    @wraps(view)
    def refreshed(request, name, **rest):
        try:
            pipeline = find(of_request(request), name)
        except (UnknownNameError, OutsideError):
            return unknown(request, name)
        version = pipelines_version([pipeline])
        if is_current(request, version):
            return no_change()
        return view(request, pipeline, version, **rest, **({"name": name} if keeps_name else {}))

    return require_safe(signed_in(refreshed))


def pipelines_version(
    pipelines: Iterable[PipelineStatus],
    members: Sequence[Member] = (),
    replicas: Sequence[Standing] = (),
    others: Any = None,
) -> str:
    """Return a digest that changes with what pages show: commits, statuses, pending input, dead letters, processes.

    others: whatever else the page shows.

    The rate counts only as zero or not, because it falls slowly after the last batch. Lags and their trends, also those
    of replicas, are not part of the digest. Verdicts are, because they also change as time passes.
    """
    pipelines = list(pipelines)
    shown = [
        replace(status, rows_per_second=float(status.rows_per_second > 0), lag_seconds=None, trend=None)
        for status in pipelines
    ]
    used = [(standing.name, standing.is_used) for standing in replicas]
    verdicts = [verdict(status) for status in pipelines]
    return blake2s(repr((shown, verdicts, members, used, others)).encode(), digest_size=8).hexdigest()


def is_current(request: HttpRequest, version: str) -> bool:
    return bool(request.htmx) and request.GET.get("v") == _whole(request, version)  # type: ignore[attr-defined]


def _whole(request: HttpRequest, version: str) -> str:
    """Return the version of a page together with its strip."""
    return f"{version}.{blake2s(repr(strip(request)).encode(), digest_size=4).hexdigest()}"


def no_change() -> HttpResponse:
    return HttpResponse(status=204)


def page(
    request: HttpRequest,
    template: str,
    version: str,
    context: Mapping[str, Any],
    query: Mapping[str, str] = NO_QUERY,
    *,
    rows: int = 0,
    busy: TooManyAtOnceError | BusyError | None = None,
) -> HttpResponse:
    """Render the page, or its live part for htmx. query: what a refresh has to send to get the same page.

    rows: how many its tables have, if they make up its cost. busy: why it shows no values. A live part with that reason
    is still a 200, because htmx merges only successful answers.
    """
    is_part = request.htmx and not request.htmx.history_restore_request  # type: ignore[attr-defined]
    frame = {
        "layout": "dashboard/part.html" if is_part else "dashboard/base.html",
        "poll": orjson.dumps({**query, "v": _whole(request, version)}).decode(),
        "refresh_seconds": 1 + rows // ROWS_PER_SECOND,
        "commits_url": f"{settings.TIDEGAUGE_EVENTS_URL}/events/tide",
        "now": now(),
        "busy": busy,
    }
    response = render(request, template, {**context, **frame})
    patch_vary_headers(response, ["HX-Request"])
    if busy is not None and not is_part:
        response.status_code = busy.status_code
        response["Retry-After"] = str(busy.wait)
    return response


def static_page(request: HttpRequest, template: str, context: Mapping[str, Any], status: int = 200) -> HttpResponse:
    """Render a page that does not refresh itself, such as the result of a form."""
    return render(request, template, {**context, "layout": "dashboard/base.html", "now": now()}, status=status)


def ask(request: HttpRequest, confirmation: Confirmation) -> HttpResponse | None:
    """Return the page that confirms an act; None once it is confirmed and nothing has changed since."""
    refusal = confirmation.refusal(request) if is_confirmed(request) else ""
    if is_confirmed(request) and not refusal:
        return None
    context = {"confirmation": confirmation, "refusal": refusal and sentence(refusal)}
    return static_page(request, "dashboard/confirmation.html", context, status=409 if refusal else 200)


def name_link(kind: Kind, name: str) -> SafeString:
    return format_html('<a class="mono" href="{}">{}</a>', reverse(f"dashboard:{kind}", args=[name]), name)


def sentence(message: object) -> str:
    text = str(message)
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def unknown_pipeline(request: HttpRequest, name: str) -> HttpResponse:
    visible = of_request(request)
    return _missing(request, "pipeline", name, [pipeline.name for pipeline in visible.pipelines()])


def unknown_state(request: HttpRequest, name: str) -> HttpResponse:
    names = of_request(request).names
    return _missing(request, "state", name, [each for each in queries.state_names() if names is None or each in names])


def unknown_batch(request: HttpRequest, pipeline: str, txid: int) -> HttpResponse:
    return unknown(request, "batch", txid, reverse("dashboard:batches", args=[pipeline]))


def unknown_run(request: HttpRequest, run_id: int) -> HttpResponse:
    return unknown(request, "maintenance run", run_id, reverse("dashboard:maintenance"))


def unknown(request: HttpRequest, kind: str, name: str | int, back: str) -> HttpResponse:
    """Say that there is nothing of this name. back: the address of the list of its kind."""
    return render(request, "dashboard/missing.html", {"kind": kind, "name": name, "back": back}, status=404)


def _missing(request: HttpRequest, kind: Kind, name: str, names: list[str]) -> HttpResponse:
    existing = [(other, reverse(f"dashboard:{kind}", args=[other])) for other in names]
    became = queries.find_former(kind, name) if key_scope(request).is_unrestricted else None
    shown = {"kind": kind, "name": name, "existing": existing, "became": became}
    return render(request, "dashboard/missing.html", shown, status=410 if became else 404)

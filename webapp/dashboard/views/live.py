"""Live pages: a page asks whether the tide has moved, and gets new content only if it has.

It asks when the events process tells of a commit, and every now and then besides; where none tells, once a second.
One view and one address serve both: a browser gets the page, htmx the part that is refreshed. The page names the
version it shows in `v`; while that is the latest one the answer is an empty 204, for the price of a statement or two.
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
from django.utils.timezone import now
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh

from state_backends.errors import UnknownNameError
from state_backends.synchronizer.membership import Member
from webapp.states import queries
from webapp.states.queries import PipelineStatus

NO_QUERY: Mapping[str, str] = {}


def signed_in(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Ask for a login first. htmx has no use for a login page inside another page, so it reloads that one."""

    @wraps(view)
    def guarded(request, *args, **kwargs):
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        if request.htmx:
            return HttpResponseClientRefresh()
        return redirect_to_login(request.get_full_path())

    return never_cache(guarded)


def tide(pipelines: Iterable[PipelineStatus], members: Sequence[Member] = ()) -> str:
    """Return what changes whenever a page about these should: commits, batches, status, input, bad lines, who lives.

    The rate only counts as moving or not: it falls gently after the last batch, and a page need not follow.
    """
    moving = [
        replace(status, rows_per_second=float(status.rows_per_second > 0), lag_seconds=None) for status in pipelines
    ]
    return blake2s(repr((moving, members)).encode(), digest_size=8).hexdigest()


def is_seen(request: HttpRequest, version: str) -> bool:
    return bool(request.htmx) and request.GET.get("v") == version  # type: ignore[attr-defined]


def unchanged() -> HttpResponse:
    return HttpResponse(status=204)


def page(
    request: HttpRequest,
    template: str,
    version: str,
    context: Mapping[str, Any],
    query: Mapping[str, str] = NO_QUERY,
) -> HttpResponse:
    """Answer the page, or to htmx its live part. query: what the next question must repeat to see the same again."""
    part = request.htmx and not request.htmx.history_restore_request  # type: ignore[attr-defined]
    frame = {
        "layout": "dashboard/part.html" if part else "dashboard/base.html",
        "poll": orjson.dumps({**query, "v": version}).decode(),
        "tides": f"{settings.TIDEMARK_EVENTS_URL}/events/tide",
        "now": now(),
    }
    response = render(request, template, {**context, **frame})
    patch_vary_headers(response, ["HX-Request"])
    return response


# How the live pages of a pipeline or a state begin: somebody is signed in, it is there, and the tide has moved.


View = Callable[..., HttpResponse]


def of_pipeline(view: View) -> View:
    """Call `view(request, pipeline, version, ..)` where there is something new to show of the named pipeline."""
    return _following(view, queries.pipeline, no_pipeline)


def of_state(view: View) -> View:
    """Call `view(request, feeding, version, name)` where there is something new; feeding: the state's pipeline."""
    return _following(view, queries.pipeline_of, no_state, keeps_name=True)


def _following(view: View, find: Callable[[str], PipelineStatus], missing: View, *, keeps_name: bool = False) -> View:
    @wraps(view)
    def following(request, name, **rest):
        try:
            pipeline = find(name)
        except UnknownNameError:
            return missing(request, name)
        version = tide([pipeline])
        if is_seen(request, version):
            return unchanged()
        return view(request, pipeline, version, **rest, **({"name": name} if keeps_name else {}))

    return require_safe(signed_in(following))


# What a page answers that was asked about something that is not there: what there is.


def no_pipeline(request: HttpRequest, name: str) -> HttpResponse:
    return _missing(request, "pipeline", name, queries.pipeline_names())


def no_state(request: HttpRequest, name: str) -> HttpResponse:
    return _missing(request, "state", name, queries.state_names())


def no_batch(request: HttpRequest, pipeline: str, txid: int) -> HttpResponse:
    shown = {"kind": "batch", "name": txid, "back": reverse("dashboard:batches", args=[pipeline])}
    return render(request, "dashboard/missing.html", shown, status=404)


def no_run(request: HttpRequest, run_id: int) -> HttpResponse:
    shown = {"kind": "maintenance run", "name": run_id, "back": reverse("dashboard:maintenance")}
    return render(request, "dashboard/missing.html", shown, status=404)


def _missing(request: HttpRequest, kind: str, name: str, names: list[str]) -> HttpResponse:
    there_are = [(other, reverse(f"dashboard:{kind}", args=[other])) for other in names]
    return render(request, "dashboard/missing.html", {"kind": kind, "name": name, "there_are": there_are}, status=404)


# A page that stands still: the answer to a form, which no poll may replace.


def still_page(request: HttpRequest, template: str, context: Mapping[str, Any], status: int = 200) -> HttpResponse:
    return render(request, template, {**context, "layout": "dashboard/base.html", "now": now()}, status=status)

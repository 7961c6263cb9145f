"""Boards for people without an account, by a signed link: as a page of their own, or in a frame of another site.

It does not matter whether the reader has a session, because the board shows what its owner may see now.
"""

from typing import Any

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.timezone import now
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_exempt
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh

from tidegauge.webapp.accounts.concurrency import SEARCHES, BusyError, TooManyAtOnceError
from tidegauge.webapp.accounts.rate_limits import take
from tidegauge.webapp.accounts.throttling import client_network
from tidegauge.webapp.console.boards.links import LinkError, UnknownLinkError, opened
from tidegauge.webapp.console.boards.models import BoardLink
from tidegauge.webapp.console.boards.selectors import visible_of
from tidegauge.webapp.console.dashboard.views.boards import Asked
from tidegauge.webapp.console.dashboard.views.live import no_change, sentence

# Nothing tells such a page that there was a commit.
REFRESH_SECONDS = 15


@require_safe
@never_cache
def shared(request: HttpRequest, token: str) -> HttpResponse:
    return _shown(request, token, BoardLink.Kind.LINK)


@require_safe
@never_cache
@xframe_options_exempt
def framed(request: HttpRequest, token: str) -> HttpResponse:
    if not settings.TIDEGAUGE_FRAME_ORIGINS:
        return _refused(request, UnknownLinkError("no page may show frames here: TIDEGAUGE_FRAME_ORIGINS names none"))
    return _shown(request, token, BoardLink.Kind.FRAME)


def _shown(request: HttpRequest, token: str, kind: BoardLink.Kind) -> HttpResponse:
    verdict = take(f"address:{client_network(request)}", settings.TIDEGAUGE_ANONYMOUS_RATE_PER_MINUTE)
    if verdict is not None and not verdict.is_allowed:
        text = f"this address has sent too many requests; try again in {verdict.wait_seconds} seconds"
        return _text(request, text, 429, verdict.wait_seconds)
    try:
        link = opened(token, kind)
    except LinkError as error:
        return _refused(request, error)
    owner = link.board.owner
    asked = Asked(link.board, owner, visible_of(owner))
    if request.htmx and request.GET.get("v") == asked.version:  # type: ignore[attr-defined]
        return no_change()
    try:
        # Counted for the link, so that its readers take no turn of the owner's.
        with SEARCHES.held(f"link {link.pk}"):
            tiles = asked.read()
    except (TooManyAtOnceError, BusyError) as error:
        return _text(request, str(error.detail), error.status_code, error.wait)
    version = "" if any(shown.is_unread for shown in tiles) else asked.version
    context: dict[str, Any] = {
        "board": link.board,
        "expires_at": link.expires_at,
        "is_framed": kind == BoardLink.Kind.FRAME,
        "tiles": tiles,
        "poll": orjson.dumps({"v": version}).decode(),
        "refresh_seconds": REFRESH_SECONDS,
        "now": now(),
    }
    part = "part" if request.htmx else "page"  # type: ignore[attr-defined]
    return _unlisted(render(request, f"dashboard/shared_board_{part}.html", context))


def _refused(request: HttpRequest, error: LinkError) -> HttpResponse:
    if request.htmx:  # type: ignore[attr-defined]
        return HttpResponseClientRefresh()  # so that an open page shows the reason, and not the last values
    return _text(request, str(error), error.status)


def _text(request: HttpRequest, reason: str, status: int, wait_seconds: float = 0) -> HttpResponse:
    context = {"reason": sentence(reason), "wait_seconds": wait_seconds}
    answer = _unlisted(render(request, "dashboard/shared_board_refused.html", context, status=status))
    if wait_seconds:
        answer["Retry-After"] = str(wait_seconds)
    return answer


def _unlisted(answer: HttpResponse) -> HttpResponse:
    """Keep the address, which is all that the page needs, out of search engines and of other sites' logs."""
    answer["X-Robots-Tag"] = "noindex"
    answer["Referrer-Policy"] = "no-referrer"
    return answer

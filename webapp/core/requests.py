"""Every request has an id, a line in the log and a place in the figures.

The outermost middleware: what the others do, and what they log, belongs to the request.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from structlog.contextvars import bind_contextvars, clear_contextvars

from webapp.core import logs, metrics
from webapp.core.logs import request_id

logger = logging.getLogger(logs.REQUESTS)

# What a load balancer, a scraper and a client that polls ask all day long.
ROUTINE = frozenset({"healthz", "readyz", "metrics"})
NOTHING_NEW = frozenset({204, 304})


class ObservedRequests:
    """Binds the request's id while it is answered; what threads bound before is gone."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        clear_contextvars()
        named = request_id(request.META.get("HTTP_X_REQUEST_ID", ""))
        bind_contextvars(request_id=named)
        watch = request.watch = metrics.Watch()  # type: ignore[attr-defined]
        response = self._get_response(request)
        response["X-Request-ID"] = named
        if response.streaming:
            noted = partial(_note, request, response.status_code, watch)
            response.streaming_content = _Stream(response.streaming_content, noted)  # type: ignore[attr-defined]
        else:
            _note(request, response.status_code, watch)
            clear_contextvars()
        return response


class _Stream:
    """Passes a stream on, and notes it when it is closed: at its end, or when its reader has gone, even at once."""

    def __init__(self, parts: Iterable[bytes], note: Callable[[], None]) -> None:
        self._parts = iter(parts)
        self._note = note

    def __iter__(self) -> "_Stream":
        return self

    def __next__(self) -> bytes:
        return next(self._parts)

    def close(self) -> None:
        self._note()
        clear_contextvars()


def _note(request: HttpRequest, status: int, watch: metrics.Watch) -> None:
    if watch.state and status in (200, 304):
        watch.note_lookup()
    seconds = watch.seconds()
    route = _route(request)
    metrics.answered(route, cast(str, request.method), status, seconds)
    level = _level(route, status)
    if logger.isEnabledFor(level):
        logger.log(level, "request", extra=_facts(request, route, status, seconds, watch))


def _facts(
    request: HttpRequest, route: str, status: int, seconds: float, watch: metrics.Watch
) -> dict[str, str | int | float]:
    facts: dict[str, str | int | float] = {
        "method": request.method or "",
        "route": route,
        "status": status,
        "ms": round(1000 * seconds, 3),
        "actor": _actor(request),
    }
    if watch.state:
        facts |= {"state": watch.state, "keys": watch.keys}
    return facts


def _level(route: str, status: int) -> int:
    if status >= 500:
        return logging.ERROR
    return logging.DEBUG if status in NOTHING_NEW or (route in ROUTINE and status == 200) else logging.INFO


def _route(request: HttpRequest) -> str:
    match = request.resolver_match
    if match is not None:
        return match.view_name or "unnamed"
    return "static" if request.path_info.startswith(settings.STATIC_URL) else "-"


def _actor(request: HttpRequest) -> str:
    """Return whose request it was, as far as answering it has shown; nobody is looked up for the log."""
    key: Any = getattr(request, "auth", None)
    if key is not None:
        return f"API key {key.name}"
    user: Any = getattr(request, "_cached_user", None)
    return user.get_username() if user is not None and user.is_authenticated else "-"

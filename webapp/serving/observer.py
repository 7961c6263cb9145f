"""Gives each request an id, a log line and a place in the metrics.

RequestObserver is the outermost middleware, so that log lines of the others have the request's id, and their time
counts.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar, cast

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from structlog.contextvars import bind_contextvars, clear_contextvars

from tidegauge.webapp.accounts import usage
from tidegauge.webapp.accounts.concurrency import client_of
from tidegauge.webapp.catalog.waits import of_request
from tidegauge.webapp.core import logs, metrics, proxies
from tidegauge.webapp.core.logs import request_id

logger = logging.getLogger(logs.REQUESTS)

Response = TypeVar("Response", bound=HttpResponseBase)

# Logged at DEBUG, because they come all the time: requests of load balancers and scrapers, and polls without news.
ROUTINE = frozenset({"healthz", "readyz", "metrics"})
NOTHING_NEW = frozenset({204, 304})


class RequestObserver:
    """Binds the request's id to its log lines, and first clears what an earlier request of the thread has bound."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        begin(request)
        response = self._get_response(request)
        wait = of_request.get()
        if wait is not None and wait.is_wanted:
            # Not counted or logged, because the front drops this answer and calls the view again after the wait.
            wait.client = client_of(request)
            response.close()
            clear_contextvars()
            return response
        return finish(request, response)


def begin(request: Any) -> None:
    clear_contextvars()
    request.id = request_id(request.META.get("HTTP_X_REQUEST_ID", ""))
    bind_contextvars(request_id=request.id)
    proxies.notice(request.META)
    request.watch = metrics.Watch()


def finish(request: Any, response: Response) -> Response:
    """Give the answer the request's id, and count and log it, a stream once it has ended."""
    response["X-Request-ID"] = request.id
    sent = partial(_finish, request, response.status_code, request.watch)
    if response.streaming:
        response.streaming_content = _Observed(response.streaming_content, sent)  # type: ignore[attr-defined]
    else:
        sent(len(response.content))  # type: ignore[attr-defined]
        clear_contextvars()
    return response


class _Observed:
    """Passes the parts of a stream on and calls `finish` when it is closed: at its end, or after a disconnect."""

    def __init__(self, parts: Iterable[bytes], finish: Callable[[int], None]) -> None:
        self._parts = iter(parts)
        self._finish = finish
        self._sent = 0

    def __iter__(self) -> "_Observed":
        return self

    def __next__(self) -> bytes:
        part = next(self._parts)
        self._sent += len(part)
        return part

    def close(self) -> None:
        self._finish(self._sent)
        clear_contextvars()


def _finish(request: HttpRequest, status: int, watch: metrics.Watch, sent: int) -> None:
    if watch.state and status in (200, 304):
        watch.count_lookup()
    seconds = watch.seconds()
    route = _route(request)
    metrics.count_request(route, cast(str, request.method), status, seconds)
    usage.observe(request, status, watch.keys_of, sent)
    level = _level(route, status)
    if logger.isEnabledFor(level):
        # Not by logger.log(), which walks the stack for a source line that no line shows.
        extra = _log_fields(request, route, status, seconds, watch)
        logger.handle(logger.makeRecord(logger.name, level, "", 0, "request", (), None, extra=extra))


def _log_fields(
    request: HttpRequest, route: str, status: int, seconds: float, watch: metrics.Watch
) -> dict[str, str | int | float]:
    fields: dict[str, str | int | float] = {
        "method": request.method or "",
        "route": route,
        "status": status,
        "ms": round(1000 * seconds, 3),
        "actor": _actor(request),
    }
    if watch.state:
        fields |= {"state": watch.state, "keys": watch.keys}
    return fields


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
    """Return the API key or user if the view has authenticated one. The log does not query for them."""
    key: Any = getattr(request, "auth", None)
    if key is not None:
        return f"API key {key.name}"
    user: Any = getattr(request, "_cached_user", None)
    return user.get_username() if user is not None and user.is_authenticated else "-"

"""The events process, as ASGI sees it: what is at which address, and how each answer begins and ends.

Pure ASGI beside Django: a thousand clients wait here for nothing most of the time, and Django's request, response and
middleware would be held for each of them. Django answers who may listen, in a thread, before a stream begins.
"""

import asyncio
import io
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import orjson
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse
from structlog.contextvars import bind_contextvars

from webapp.api.errors import MEDIA_TYPE, problem
from webapp.core.health import healthz, metrics
from webapp.core.logs import request_id
from webapp.events.auth import Admitted, Refused, cors_headers, preflight_headers
from webapp.events.connections import Connections, FullError

logger = logging.getLogger(__name__)

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

# Answered by Django's own views.
VIEWS: Mapping[str, Callable[..., HttpResponse]] = {"/healthz": healthz, "/metrics": metrics}

# Nothing between us and the client may keep events back, or them for others.
STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}

FULL_RETRY_SECONDS, CLOSING_RETRY_SECONDS = "15", "2"


class EventsApplication:
    """One per process. Everything of it lives on the event loop of the first request, or of the server's start."""

    def __init__(self) -> None:
        self._hub: Connections | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._started()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                if self._hub is not None:
                    await self._hub.closed()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _started(self) -> Connections:
        # A server without lifespan starts us with the first request.
        if self._hub is None:
            self._hub = Connections()
            _close_on_signals(self._hub)
        return self._hub

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        hub = self._started()
        named = request_id(_header(scope, b"x-request-id") or "")
        bind_contextvars(request_id=named)
        origin = _header(scope, b"origin")
        answer = _Answer(send, {"X-Request-ID": named} | cors_headers(origin))
        if scope["path"] in VIEWS:
            response = await hub.in_thread(lambda: VIEWS[scope["path"]](ASGIRequest(dict(scope), io.BytesIO())))
            await answer.whole(response.status_code, dict(response.headers), response.content)
        elif scope["method"] == "OPTIONS":
            await answer.whole(204, preflight_headers(origin) | {"Allow": "GET, OPTIONS"}, b"")
        elif hub.closing:
            told = problem(503, "this process is closing; come again in a moment")
            await answer.problem(told, {"Retry-After": CLOSING_RETRY_SECONDS})
        else:
            await self._listen(hub, scope, receive, answer)

    async def _listen(self, hub: Connections, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        try:
            admitted = await hub.ask(scope)
        except Exception:
            logger.exception("a request could not be answered")
            await answer.problem(problem(500, "something went wrong here; the log says what"), {})
            return
        if isinstance(admitted, Refused):
            await answer.whole(admitted.status, admitted.headers, admitted.body)
            return
        try:
            with hub.seat(admitted.caller):
                await _stream(hub, admitted, scope, receive, answer)
        except FullError as error:
            status = 503 if error.caller is None else 429
            await answer.problem(problem(status, str(error)), {"Retry-After": FULL_RETRY_SECONDS})


class _Answer:
    """Sends one answer. headers: those of every answer to this request."""

    def __init__(self, send: Send, headers: Mapping[str, str]) -> None:
        self.send = send
        self._headers = headers

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        await self.send({"type": "http.response.start", "status": status, "headers": _raw(headers, self._headers)})

    async def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        await self.start(status, {**headers, "Content-Length": str(len(body))})
        await self.send({"type": "http.response.body", "body": body})

    async def problem(self, told: dict[str, Any], headers: Mapping[str, str]) -> None:
        told_in_full = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store", **headers}
        await self.whole(told["status"], told_in_full, orjson.dumps(told))


async def _stream(hub: Connections, admitted: Admitted, scope: Scope, receive: Receive, answer: _Answer) -> None:
    await answer.start(200, STREAM_HEADERS)
    gone = asyncio.create_task(_gone(receive))
    try:
        await hub.serve(admitted, scope, answer.send, gone)
        with suppress(TimeoutError):
            # To one that reads nothing there is nothing to say.
            await asyncio.wait_for(answer.send({"type": "http.response.body", "body": b""}), 1.0)
    finally:
        gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _close_on_signals(hub: Connections) -> None:
    """End the streams when the process is told to end: the server waits for them, and tells them nothing.

    Python's handler runs beside the event loop's, which is the server's own.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(hub.close))


def _header(scope: Scope, wanted: bytes) -> str | None:
    found = [value for name, value in scope["headers"] if name.lower() == wanted]
    return found[-1].decode("latin-1") if found else None


def _raw(*headers: Mapping[str, str]) -> Iterable[tuple[bytes, bytes]]:
    joined: dict[str, str] = {}
    for each in headers:
        joined |= {name.lower(): value for name, value in each.items()}
    return [(name.encode(), value.encode("latin-1")) for name, value in joined.items()]

"""The ASGI application of the events process: routes requests, and begins and ends their answers.

It is plain ASGI, because Django's handler would hold a request, a response and the middleware for each of a thousand
clients that are idle most of the time. Django only authorizes a request, in a thread, before its stream begins.
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

from tidegauge.webapp.api.problems import MEDIA_TYPE, problem
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.core.cors import events_headers, preflight_headers
from tidegauge.webapp.core.logs import request_id
from tidegauge.webapp.core.pooler import PoolerError
from tidegauge.webapp.core.turns import PoolFullError
from tidegauge.webapp.events.auth import Authorized, Refused, with_token_in_header
from tidegauge.webapp.events.connections import Connections, TooManyClientsError
from tidegauge.webapp.events.threads import CHECKS

logger = logging.getLogger(__name__)

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

# Proxies must neither buffer nor cache a stream.
STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}

LIMIT_RETRY_SECONDS, SHUTDOWN_RETRY_SECONDS = "15", "2"


class EventsApplication:
    """One per process. It uses the event loop of the server's startup or, without lifespan, of the first request.

    views: Django views that are served as well, by path.
    """

    def __init__(self, views: Mapping[str, Callable[..., HttpResponse]]) -> None:
        self._views = views
        self._connections: Connections | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await asyncio.to_thread(readers.check_session, "the events process, which listens for commits,")
                except PoolerError as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                self._started()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                if self._connections is not None:
                    await self._connections.wait_closed()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _started(self) -> Connections:
        if self._connections is None:
            self._connections = Connections()
            _close_on_signals(self._connections)
        return self._connections

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        connections, scope = self._started(), with_token_in_header(scope)
        this_request = request_id(_header(scope, b"x-request-id") or "")
        bind_contextvars(request_id=this_request)
        cross_origin = events_headers(_header(scope, b"origin"))
        response = _Response(send, {"X-Request-ID": this_request, **cross_origin})
        if view := self._views.get(scope["path"]):
            answer = await connections.threads.run(CHECKS, lambda: view(ASGIRequest(dict(scope), io.BytesIO())))
            await response.send_all(answer.status_code, dict(answer.headers), answer.content)
        elif scope["method"] == "OPTIONS":
            await response.send_all(204, {"Allow": "GET, OPTIONS", **preflight_headers(cross_origin, "GET")}, b"")
        elif connections.closing:
            document = problem("shutting_down", "this process is shutting down; try again in a moment")
            await response.send_problem(document, {"Retry-After": SHUTDOWN_RETRY_SECONDS})
        else:
            await _subscribe(connections, scope, receive, response)


class _Response:
    """Sends the response to one request. headers: added to whatever is sent."""

    def __init__(self, send: Send, headers: Mapping[str, str]) -> None:
        self.send = send
        self._headers = headers

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        await self.send({"type": "http.response.start", "status": status, "headers": _raw(headers, self._headers)})

    async def send_all(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        await self.start(status, {**headers, "Content-Length": str(len(body))})
        await self.send({"type": "http.response.body", "body": body})

    async def send_problem(self, document: dict[str, Any], headers: Mapping[str, str]) -> None:
        headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store", **headers}
        await self.send_all(document["status"], headers, orjson.dumps(document))


async def _subscribe(connections: Connections, scope: Scope, receive: Receive, response: _Response) -> None:
    try:
        authorized = await connections.authorize(scope)
    except PoolFullError as error:
        await response.send_problem(problem("busy", str(error)), {"Retry-After": LIMIT_RETRY_SECONDS})
        return
    except Exception:
        logger.exception("request failed")
        await response.send_problem(problem("internal_error", "internal error; the log has the details"), {})
        return
    if isinstance(authorized, Refused):
        await response.send_all(authorized.status, authorized.headers, authorized.body)
        return
    try:
        with connections.limited(authorized.caller):
            await _stream(connections, authorized, scope, receive, response)
    except TooManyClientsError as error:
        code = "too_many_clients" if error.caller is None else "too_many_streams"
        await response.send_problem(problem(code, str(error)), {"Retry-After": LIMIT_RETRY_SECONDS})


async def _stream(
    connections: Connections, authorized: Authorized, scope: Scope, receive: Receive, response: _Response
) -> None:
    await response.start(200, STREAM_HEADERS)
    disconnected = asyncio.create_task(_disconnected(receive))
    try:
        await connections.serve(authorized, scope, _counted(authorized, response.send), disconnected)
        # With a time limit, because a client that reads nothing does not take the end of its stream either.
        with suppress(TimeoutError):
            await asyncio.wait_for(response.send({"type": "http.response.body", "body": b""}), 1.0)
    finally:
        disconnected.cancel()


def _counted(authorized: Authorized, send: Send) -> Send:
    async def counted(message: dict[str, Any]) -> None:
        await send(message)
        authorized.count_bytes(len(message.get("body", b"")))

    return counted


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _close_on_signals(connections: Connections) -> None:
    """End the streams on SIGTERM and SIGINT, because the server waits for them to end before it shuts down.

    These handlers of Python run in addition to the server's own, which belong to the event loop.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(connections.close))


def _header(scope: Scope, wanted: bytes) -> str | None:
    found = [value for name, value in scope["headers"] if name.lower() == wanted]
    return found[-1].decode("latin-1") if found else None


def _raw(*headers: Mapping[str, str]) -> Iterable[tuple[bytes, bytes]]:
    joined: dict[str, str] = {}
    for each in headers:
        joined |= {name.lower(): value for name, value in each.items()}
    return [(name.encode(), value.encode("latin-1")) for name, value in joined.items()]

"""The front of the web process: reads requests on the event loop, and runs Django's WSGI handler in pools of threads.

A request gets a thread only after it has arrived completely, so a client that sends slowly or not at all holds a socket
but no thread. A streamed answer takes a thread for each part, so a client that reads slowly holds no thread either.
Every read and write has a time limit.
"""

import asyncio
import io
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

import orjson
from django.conf import settings
from django.db import DatabaseError, close_old_connections
from django.http.response import HttpResponseBase

from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.callers import Caller, caller_of, seconds_refused
from tidegauge.webapp.accounts.concurrency import WAITS, BusyError, TooManyAtOnceError
from tidegauge.webapp.accounts.throttling import TooManyRequestsError
from tidegauge.webapp.api.problems import MEDIA_TYPE, problem
from tidegauge.webapp.catalog.waits import Wait, Waits, committed_now, of_request
from tidegauge.webapp.core import metrics, multiprocess
from tidegauge.webapp.core.contention import Contention
from tidegauge.webapp.core.cors import api_headers
from tidegauge.webapp.core.pools import API, pool_of, pools
from tidegauge.webapp.core.turns import PoolFullError
from tidegauge.webapp.serving.bodies import HeldBytes, TooManyBytesError
from tidegauge.webapp.serving.environ import Scope, environ_of
from tidegauge.webapp.serving.on_loop import Arrived, Header, LoopAnswers, raw
from tidegauge.webapp.serving.streamed import Send, StreamedAnswer

Receive = Callable[[], Awaitable[dict[str, Any]]]
Handler = Callable[[dict[str, Any], Any], HttpResponseBase]

RETRY = {"Retry-After": "1"}
# Up to this size a body is read before its API key is looked up, because that takes another turn of a thread.
SMALL_BYTES = 64 * 1024


class RefusedError(Exception):
    """The request did not arrive as required. It is answered without Django."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class DisconnectedError(Exception):
    """The client disconnected before its request was complete."""


class Front:
    """An ASGI application without lifespan around a WSGI handler, for one event loop."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._contention = Contention(multiprocess.memory("callers", Contention.SIZE))
        self._pools = pools(self._contention)
        self._held = HeldBytes()
        checks = self._pools["checks"]
        self._waits = Waits(lambda states: checks.run(partial(committed_now, states), "waits", admitted=True))
        self._on_loop = LoopAnswers(self._waits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        environ, held = environ_of(scope), 0
        caller = caller_of(environ)
        if environ["PATH_INFO"].startswith(API) and (seconds := seconds_refused(environ, caller)):
            await _refuse_wrong_key(environ, send, seconds)
            return
        try:
            caller, body = await self._body(environ, caller, receive)
            if caller.is_verified:
                self._contention.note(caller.name)
            held = len(body)
            self._held.hold(caller, held)
            await self._answer(environ, caller, body, receive, send)
        except DisconnectedError:
            pass
        except RefusedError as error:
            # Close the connection, because the rest of the request may still arrive on it.
            await _refuse(environ, send, error.code, error, {"Connection": "close"})
        except TooManyAtOnceError as error:
            await _refuse(environ, send, "too_many_at_once", error, RETRY)
        except TooManyBytesError as error:
            await _refuse(environ, send, "busy", error, RETRY | {"Connection": "close"})
        except (BusyError, PoolFullError) as error:
            await _refuse(environ, send, "busy", error, RETRY)
        finally:
            self._held.free(caller, held)

    async def _answer(self, environ: dict[str, Any], caller: Caller, body: bytes, receive: Receive, send: Send) -> None:
        """Answer on the event loop, or run the handler in a thread, twice if the request had to wait for a batch."""
        wait = Wait()
        here = await self._on_loop.answer(Arrived(environ, caller, body, wait, lambda: _disconnected(receive)))
        if here is not None:
            _send(send, *here)
            return
        # A key that this process does not know yet is checked by a thread of its call; pages have no API keys.
        may_have_key = environ["PATH_INFO"].startswith(API) and authentication.has_api_key(environ)
        is_stranger = not caller.is_verified and not may_have_key
        run = partial(self._pools[pool_of(environ, is_stranger=is_stranger)].run, client=caller.name)
        context = Context()
        context.run(of_request.set, wait)
        answer = partial(context.run, _answer, self._handler, environ, body, send)
        streamed = await run(answer)
        if streamed is None and not wait.is_wanted:
            return
        disconnected = _disconnected(receive)
        try:
            if wait.is_wanted:
                with WAITS.held(wait.client):
                    await self._waits.over(wait, disconnected)
                if disconnected.done():
                    return
                streamed = await run(answer, admitted=True)
            if streamed is not None:
                await streamed.send_to(send, disconnected, partial(run, admitted=True), context)
        finally:
            disconnected.cancel()

    async def _body(self, environ: Mapping[str, Any], caller: Caller, receive: Receive) -> tuple[Caller, bytes]:
        """Return the caller, which may be verified by then, and the body.

        Raises RefusedError if the body is too large or too slow, TooManyBytesError, DisconnectedError.
        """
        length = environ.get("CONTENT_LENGTH")
        if (length is None and "HTTP_TRANSFER_ENCODING" not in environ) or length == "0":
            return caller, b""
        if length is not None and length.isdecimal() and int(length) > settings.TIDEGAUGE_REQUEST_MAX_BYTES:
            raise _too_large()
        if not caller.is_verified and self._is_worth_verifying(environ, length):
            await self._pools["checks"].run(partial(_verify, environ), caller.name)
            caller = caller_of(environ)
        try:
            async with asyncio.timeout(settings.TIDEGAUGE_REQUEST_SECONDS):
                return caller, await self._read(caller, receive, None if length is None else int(length))
        except TimeoutError:
            seconds = settings.TIDEGAUGE_REQUEST_SECONDS
            detail = f"the body did not arrive within {seconds:g} seconds; send it faster, or less at a time"
            raise RefusedError("request_too_slow", detail) from None

    def _is_worth_verifying(self, environ: Mapping[str, Any], length: str | None) -> bool:
        """Return whether to look up the API key before the body is read: usually the view does it after."""
        is_large = length is None or not length.isdecimal() or int(length) > SMALL_BYTES
        return (is_large or self._held.strangers_hold_much) and authentication.has_api_key(environ)

    async def _read(self, caller: Caller, receive: Receive, length: int | None) -> bytes:
        parts: list[bytes] = []
        size, more = 0, True
        try:
            while more and size != length:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise DisconnectedError
                part = message.get("body", b"")
                parts.append(part)
                size += len(part)
                self._held.hold(caller, len(part))
                more = message.get("more_body", False)
                if size > settings.TIDEGAUGE_REQUEST_MAX_BYTES:
                    raise _too_large()
            return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            self._held.free(caller, size)


def _verify(environ: Mapping[str, Any]) -> None:
    close_old_connections()
    # If the database is unavailable, the view says so.
    with suppress(DatabaseError):
        authentication.verify(environ)


def _answer(handler: Handler, environ: dict[str, Any], body: bytes, send: Send) -> StreamedAnswer | None:
    """Run the handler and send its answer, in a thread, which saves two switches of threads.

    A streamed answer is returned and not sent.
    """
    started: list[Any] = []
    wait = of_request.get()
    environ |= {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
    response = handler(environ, lambda status, headers, exc_info=None: started.extend((status, headers)))
    if wait is not None and wait.is_wanted:
        return None
    status, headers = int(started[0][:3]), started[1]
    if response.streaming:
        return StreamedAnswer(_start(status, list(raw(headers))), response)
    _send(send, status, list(raw(headers)), b"".join(response))
    response.close()
    return None


def _send(send: Send, status: int, headers: list[Header], body: bytes) -> None:
    """Send a whole answer. `send` is not awaited, because granian sends at the call, and only streams need to wait."""
    send(_start(status, headers))
    send({"type": "http.response.body", "body": body})


def _start(status: int, headers: list[Header]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def _disconnected(receive: Receive) -> "asyncio.Future[None]":
    async def disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return asyncio.ensure_future(disconnected())


def _too_large() -> RefusedError:
    limit = settings.TIDEGAUGE_REQUEST_MAX_BYTES
    return RefusedError("request_too_large", f"the body is over {limit} bytes; send less at a time")


def _cross_origin(environ: Mapping[str, Any]) -> Mapping[str, str]:
    return api_headers(environ.get("HTTP_ORIGIN")) if environ["PATH_INFO"].startswith(API) else {}


async def _refuse_wrong_key(environ: Mapping[str, Any], send: Send, seconds: int) -> None:
    """Refuse what a thread would refuse, because an address may send thousands of keys that do not exist."""
    metrics.count_request("-", environ["REQUEST_METHOD"], 429, 0.0)
    error = TooManyRequestsError("this address", seconds)
    # The connection is closed, because the body has not been read.
    await _refuse(environ, send, "too_many_requests", error, {"Retry-After": str(seconds), "Connection": "close"})


async def _refuse(
    environ: Mapping[str, Any], send: Send, code: str, error: Exception, headers: Mapping[str, str]
) -> None:
    document = problem(code, str(getattr(error, "detail", error)))
    sent = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store", **headers, **_cross_origin(environ)}
    raw = [(name.lower().encode(), value.encode()) for name, value in sent.items()]
    await send({"type": "http.response.start", "status": document["status"], "headers": raw})
    await send({"type": "http.response.body", "body": orjson.dumps(document)})

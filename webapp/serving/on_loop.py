"""Answers requests on the event loop, with all that middleware does for others.

A view says that it can be answered here by being a LoopView. The middleware of the settings runs around the answer once
it is there, because nothing in it waits.
"""

import asyncio
import io
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context
from functools import lru_cache
from typing import Any, NamedTuple

import psycopg
from django.conf import settings
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.core.handlers.wsgi import WSGIRequest, get_path_info
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import ResponseHeaders
from django.urls import ResolverMatch, resolve
from django.utils.module_loading import import_string
from rest_framework.exceptions import APIException

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.reader.reader import ShownRows
from tidegauge.webapp.accounts.authentication import has_api_key
from tidegauge.webapp.accounts.callers import Caller
from tidegauge.webapp.accounts.concurrency import WAITS
from tidegauge.webapp.api.direct import DirectRequests
from tidegauge.webapp.api.on_loop import ForAThreadError, LoopView
from tidegauge.webapp.catalog.loop_connections import LoopConnections
from tidegauge.webapp.catalog.loop_stores import LoopStores
from tidegauge.webapp.catalog.loop_turns import NoConnectionError
from tidegauge.webapp.catalog.waits import POLL_SECONDS, Wait, Waits
from tidegauge.webapp.core.pools import API
from tidegauge.webapp.core.turns import PoolFullError
from tidegauge.webapp.serving import observer

# A thread says to the client what is wrong.
REFUSALS = (
    ForAThreadError, NoConnectionError, TidegaugeError, APIException, PermissionDenied, SuspiciousOperation, Http404,
    psycopg.Error,
)  # fmt: skip
# Larger bodies go to a thread, because the loop answers nobody else while it reads one.
MOST_BYTES = 32 * 1024

logger = logging.getLogger(__name__)

Disconnected = Callable[[], "asyncio.Future[None]"]
Header = tuple[bytes, bytes]

# What middleware reads of a request whose client does not take gzip. A test compares the answers with those of Django.
MIDDLEWARE_READS = ("HTTP_HOST", "HTTP_ORIGIN", "HTTP_X_FORWARDED_PROTO", "wsgi.url_scheme")
MOST_KEPT = 1_000


class Arrived(NamedTuple):
    """A request that has arrived completely. disconnected: returns what is done once its client has gone."""

    environ: dict[str, Any]
    caller: Caller
    body: bytes
    wait: Wait
    disconnected: Disconnected


class LoopAnswer(NamedTuple):
    status: int
    headers: list[Header]
    body: bytes


class LoopAnswers:
    """For one event loop."""

    def __init__(self, waits: Waits) -> None:
        self._connections, self._stores = LoopConnections(), LoopStores()
        self._waits = waits
        self._middleware = _middleware()
        self._kept: dict[tuple[Any, ...], list[Header]] = {}

    async def answer(self, arrived: Arrived) -> LoopAnswer | None:
        """Return the answer; None if a thread has to give it. Raises PoolFullError."""
        environ = arrived.environ
        is_small = len(arrived.body) <= MOST_BYTES
        if not arrived.caller.is_verified or not environ["PATH_INFO"].startswith(API) or not is_small:
            return None
        if not has_api_key(environ):
            return None  # a session, which the database has
        try:
            match = _resolved(get_path_info(environ))
            view = match.func.view_class()  # type: ignore[attr-defined]
            if not isinstance(view, LoopView):
                return None
            environ["wsgi.input"] = io.BytesIO(arrived.body)
            request, context = WSGIRequest(environ), Context()
            request.resolver_match = match
            context.run(observer.begin, request)
            database = LoopDatabase(self._connections, self._stores, self._waits, arrived)
            answer = await view.answer_on_loop(request, database, **match.kwargs)
            return context.run(self._finished, request, answer)
        except REFUSALS:
            return None
        except PoolFullError:
            raise
        except Exception:
            logger.exception("a request was left to a thread, because the event loop failed")
            return None

    async def close(self) -> None:
        await self._connections.close()
        await self._stores.close()

    def _finished(self, request: Any, response: HttpResponse) -> LoopAnswer:
        if "gzip" in request.META.get("HTTP_ACCEPT_ENCODING", ""):
            request.answer = response
            added, response = [], self._middleware(request)
        else:
            added = self._added(request, response)
            response.headers["Content-Length"] = str(len(response.content))
        observer.finish(request, response)
        return LoopAnswer(response.status_code, [*raw(response.items()), *added], response.content)

    def _added(self, request: Any, response: HttpResponse) -> list[Header]:
        """Return the headers that middleware adds. They depend on nothing but what is in the key here."""
        key = (response.status_code, "Cache-Control" in response.headers, *map(request.META.get, MIDDLEWARE_READS))
        found = self._kept.get(key)
        if found is None:
            request.answer = HttpResponse(status=response.status_code)
            request.answer.headers = ResponseHeaders(dict(response.headers))
            through = self._middleware(request)
            if through is not request.answer:
                raise ForAThreadError  # such as a redirect to HTTPS
            added = ((name, value) for name, value in through.items() if name not in response.headers)
            found = list(raw((name, value) for name, value in added if name != "Content-Length"))
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()  # because one caller may send any number of origins
            self._kept[key] = found
        return found


class LoopDatabase(NamedTuple):
    """The database as a request has it."""

    connections: LoopConnections
    stores: LoopStores
    waits: Waits
    arrived: Arrived

    async def first_row(self, statement: bytes, parameters: Sequence[Any]) -> Any:
        """Raises what `LoopConnections.first_row` does."""
        return await self.connections.first_row(self.arrived.caller.name, statement, parameters)

    async def shown_rows(self, spec: StateSpec, step: ShownRows) -> Any:
        """Raises what `LoopStores.shown_rows` does."""
        return await self.stores.shown_rows(self.arrived.caller.name, spec, step)

    async def wait_for(self, state: str, txid: int, seconds: float) -> bool:
        """Raises TooManyAtOnceError, BusyError."""
        wait = self.arrived.wait
        with WAITS.held(self.arrived.caller.name):
            if wait.is_over:
                # The batch is committed, or the time is up. A store shows it a moment after the ledger's commit.
                left = (wait.until or 0.0) - time.monotonic()
                await asyncio.sleep(min(POLL_SECONDS, max(left, 0.0)))
                return left > 0
            wait.states, wait.txid, wait.until = [state], txid, time.monotonic() + seconds
            disconnected = self.arrived.disconnected()
            try:
                await self.waits.over(wait, disconnected)
                if disconnected.done():
                    wait.until = 0.0
                return True
            finally:
                disconnected.cancel()


def raw(headers: Iterable[tuple[str, str]]) -> Iterator[Header]:
    return ((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers)


def _middleware() -> Callable[[HttpRequest], HttpResponse]:
    """Return the middleware that requests of the API pass, but for the observer, around an answer that is there."""
    classes = [import_string(path) for path in settings.MIDDLEWARE]
    handle: Any = lambda request: request.answer  # noqa: E731
    for each in reversed(classes[1 : classes.index(DirectRequests) + 1]):
        handle = each(handle)
    return handle


@lru_cache(maxsize=1_024)
def _resolved(path: str) -> ResolverMatch:
    return resolve(path)

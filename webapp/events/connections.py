"""Tracks SSE connections and the background tasks they share: one commit listener, one status poll, one membership."""

import asyncio
import io
import logging
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest

from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.webapp.accounts.callers import caller_of
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.membership import ProcessMembership
from tidegauge.webapp.events.auth import Authorized, Refused, authorize
from tidegauge.webapp.events.broker import EVERY_PIPELINE, TRANSIENT, CommitListener, CommitSignals, SharedReads
from tidegauge.webapp.events.deltas import CommitsCursor, commits_delta
from tidegauge.webapp.events.stream import CLIENTS, DROPPED, EventStream, Send
from tidegauge.webapp.events.subscriptions import CommitsSubscription, Subscription
from tidegauge.webapp.events.threads import ARRIVALS, CHECKS, READS, Threads
from tidegauge.webapp.events.turns import Turns

logger = logging.getLogger(__name__)

# How often to look for changes without a notification, such as a driver that died; once for all connected pages.
STATUS_POLL_SECONDS = 1.0

# Limited, because an unavailable database may not even answer with an error.
AUTHORIZE_TIMEOUT_SECONDS = 2.0

# How long clients with the same credentials and subscription share one authorization.
SHARED_AUTHORIZATION_SECONDS = 1.0


class TooManyClientsError(Exception):
    """A limit of clients is reached. caller: whose limit it is; None: it is the limit of the process."""

    def __init__(self, message: str, caller: str | None) -> None:
        super().__init__(message)
        self.caller = caller


class Connections:
    """The connections of this process. Create it on the event loop that serves the clients."""

    def __init__(self) -> None:
        self.closing = False
        self._signals = CommitSignals()
        self._reads: dict[Subscription, SharedReads] = {}
        self._streams: set[EventStream] = set()
        self._callers: Counter[str] = Counter()
        self._turns = Turns()
        # Request to the monotonic time when its authorization expires, and the authorization.
        self._authorizations: dict[Any, tuple[float, asyncio.Task[Authorized | Refused]]] = {}
        self.threads = Threads()
        self._member = ProcessMembership("events")
        listener = CommitListener(readers.session_parameters(), self._signals)
        background = (listener.run(), self._poll_status(), self._keep_membership())
        self._background = [asyncio.create_task(each) for each in background]

    async def authorize(self, scope: Mapping[str, Any]) -> Authorized | Refused:
        """Raises PoolFullError."""
        caller = caller_of(ASGIRequest(dict(scope), io.BytesIO()).META)
        return await self.threads.run(ARRIVALS, lambda: authorize(scope), caller.name)

    async def serve(
        self, authorized: Authorized, scope: Mapping[str, Any], send: Send, disconnected: "asyncio.Task[None]"
    ) -> None:
        """Stream until the client disconnects, loses its authorization or reads nothing, or `close` is called."""
        with self._shared_reads(authorized) as reads:
            still_authorized = partial(self._still_authorized, scope, authorized)
            turn = partial(self._turns.take, authorized.caller)
            stream = EventStream(reads, self._signals, send, authorized.last_id, still_authorized, turn)
            self._streams.add(stream)
            disconnected.add_done_callback(lambda _: stream.end())
            if self.closing:
                stream.end()
            try:
                await stream.run()
            except TimeoutError:
                DROPPED.inc()
            except TidegaugeError as error:
                # The state was dropped or has changed; the client gets the reason when it reconnects.
                logger.info("stream ended: %s", error)
            finally:
                self._streams.discard(stream)

    @contextmanager
    def limited(self, caller: str):
        """Count a client. Raises TooManyClientsError if the process or this caller already has as many as allowed."""
        limit, per_caller = settings.TIDEGAUGE_EVENTS_MAX_CLIENTS, settings.TIDEGAUGE_EVENTS_MAX_CLIENTS_EACH
        if self._callers.total() >= limit:
            raise TooManyClientsError(f"this process has {limit} clients, which is its limit; try again later", None)
        if self._callers[caller] >= per_caller:
            raise TooManyClientsError(
                f"you have {per_caller} clients, which is your limit; close one of them first", caller
            )
        self._callers[caller] += 1
        CLIENTS.inc()
        try:
            yield
        finally:
            CLIENTS.dec()
            self._callers -= Counter({caller: 1})

    def close(self) -> None:
        """End every stream and the background tasks."""
        self.closing = True
        for stream in self._streams:
            stream.end()
        for task in self._background:
            task.cancel()

    async def wait_closed(self) -> None:
        """Close, and wait until the background tasks have ended."""
        self.close()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.threads.close_connections()

    @contextmanager
    def _shared_reads(self, authorized: Authorized):
        subscription = authorized.subscription
        reads = self._reads.get(subscription)
        if reads is None:
            # Charged to the first who subscribes, because it is read once for all.
            in_thread = partial(self.threads.run, READS, caller=authorized.caller)
            reads = self._reads[subscription] = SharedReads(subscription, self._signals, in_thread)
        reads.clients += 1
        try:
            yield reads
        finally:
            reads.clients -= 1
            if not reads.clients:
                del self._reads[subscription]

    async def _still_authorized(self, scope: Mapping[str, Any], authorized: Authorized) -> bool | None:
        """Authorize again. None: not decided, because the database is unavailable."""
        request = (scope["path"], scope["query_string"], tuple(sorted(_credentials(scope))))
        until, task = self._authorizations.get(request, (0.0, None))
        if task is None or (task.done() and time.monotonic() > until):
            recheck = self.threads.run(READS, lambda: authorize(scope, recheck=True), authorized.caller)
            task = asyncio.create_task(recheck)
            until = time.monotonic() + SHARED_AUTHORIZATION_SECONDS
            self._remove_expired_authorizations()
            self._authorizations[request] = (until, task)
        await asyncio.wait({task}, timeout=AUTHORIZE_TIMEOUT_SECONDS)
        if not task.done() or task.exception() is not None:
            return None
        answer = task.result()
        if isinstance(answer, Refused):
            return None if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR else False
        return answer.subscription == authorized.subscription

    def _remove_expired_authorizations(self) -> None:
        now = time.monotonic()
        kept = {
            each: (until, task)
            for each, (until, task) in self._authorizations.items()
            if until >= now or not task.done()
        }
        self._authorizations = kept

    async def _poll_status(self) -> None:
        cursor: CommitsCursor | None = None
        while True:
            await asyncio.sleep(STATUS_POLL_SECONDS)
            # The cursor starts empty, so that the first poll signals, too: a client may have read before it.
            cursor = await self._poll_once(cursor) if self._signals.has_subscribers(EVERY_PIPELINE) else None

    async def _poll_once(self, cursor: CommitsCursor | None) -> CommitsCursor | None:
        try:
            delta = await self.threads.run(CHECKS, lambda: commits_delta(CommitsSubscription(), cursor))
        except TRANSIENT:
            return cursor
        if delta.frames:
            self._signals.status_changed()
        return delta.cursor

    async def _keep_membership(self) -> None:
        try:
            while True:
                await self.threads.run(CHECKS, self._member.heartbeat)
                await asyncio.sleep(self._member.pause_seconds)
        finally:
            await asyncio.shield(asyncio.create_task(self.threads.run(CHECKS, self._member.leave)))


def _credentials(scope: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in scope["headers"] if name in (b"authorization", b"x-api-key", b"cookie")]

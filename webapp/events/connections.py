"""The hub of one process: who listens, to what, and the little that runs for all of them together."""

import asyncio
import contextvars
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from django.conf import settings
from django.db import close_old_connections, connection, connections

from state_backends.errors import TidemarkError
from webapp.events import auth
from webapp.events.auth import Admitted, Refused
from webapp.events.broker import EVERY_PIPELINE, CommitSignals, Listener
from webapp.events.deltas import CommitsCursor, commits_delta
from webapp.events.feed import PASSING, Feed
from webapp.events.stream import CLIENTS, DROPPED, Send, Stream
from webapp.events.subscriptions import CommitsSubscription, Subscription
from webapp.states.membership import ProcessMembership

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

# Reads are short, and shared; each of these holds a connection.
READERS = 4

# What nobody announces, such as a driver that died, is looked for so often, once for all pages that are open.
UNANNOUNCED_SECONDS = 1.0

# A database may not even say that it is away.
WELCOME_WITHIN_SECONDS = 2.0

UNWELCOME = (400, 401, 403, 404, 406)


class FullError(Exception):
    """There is no room for another client. caller: of whom there are too many; None: of all."""

    def __init__(self, message: str, caller: str | None) -> None:
        super().__init__(message)
        self.caller = caller


class Connections:
    """Made on the event loop that it serves."""

    def __init__(self) -> None:
        self.closing = False
        self._tides = CommitSignals()
        self._feeds: dict[Subscription, Feed] = {}
        self._streams: set[Stream] = set()
        self._callers: Counter[str] = Counter()
        self._welcomes: dict[Any, tuple[float, asyncio.Task[Admitted | Refused]]] = {}
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="events")
        self._member = ProcessMembership("events")
        listener = Listener(_parameters(), self._tides)
        running = (listener.run(), self._watch_unannounced(), self._say_alive())
        self._running = [asyncio.create_task(each) for each in running]

    async def ask(self, scope: Mapping[str, Any]) -> Admitted | Refused:
        return await self.in_thread(lambda: auth.ask(scope))

    async def in_thread(self, work: Callable[[], Answer]) -> Answer:
        run = contextvars.copy_context().run
        return await asyncio.get_running_loop().run_in_executor(self._readers, run, _on_a_fresh_connection, work)

    async def serve(self, admitted: Admitted, scope: Mapping[str, Any], send: Send, gone: "asyncio.Task[None]") -> None:
        """Stream to a client that has a seat until it goes, is no longer welcome, reads nothing, or we close."""
        with self._fed(admitted.question) as feed:
            stream = Stream(feed, self._tides, send, admitted.last_txid, lambda: self._is_welcome(scope, admitted))
            self._streams.add(stream)
            gone.add_done_callback(lambda _: stream.end())
            if self.closing:
                stream.end()
            try:
                await stream.run()
            except TimeoutError:
                DROPPED.inc()
            except TidemarkError as error:
                # The state is gone, or no longer what was asked for; who comes again is told.
                logger.info("a stream has ended: %s", error)
            finally:
                self._streams.discard(stream)

    @contextmanager
    def seat(self, caller: str):
        """Raises FullError where there is no room for another client in all, or of this caller."""
        most, each = settings.TIDEMARK_EVENTS_MAX_CLIENTS, settings.TIDEMARK_EVENTS_MAX_CLIENTS_EACH
        if self._callers.total() >= most:
            raise FullError(f"{most} clients listen already, and there is room for no more; try again later", None)
        if self._callers[caller] >= each:
            raise FullError(f"{each} clients of yours listen already; close one of them first", caller)
        self._callers[caller] += 1
        CLIENTS.inc()
        try:
            yield
        finally:
            CLIENTS.dec()
            self._callers -= Counter({caller: 1})

    def close(self) -> None:
        """End every stream, and what runs for them."""
        self.closing = True
        for stream in self._streams:
            stream.end()
        for task in self._running:
            task.cancel()

    async def closed(self) -> None:
        """Wait for the end of what `close` has told to end."""
        self.close()
        await asyncio.gather(*self._running, return_exceptions=True)
        await asyncio.gather(*(self.in_thread(connections.close_all) for _ in range(READERS)), return_exceptions=True)
        self._readers.shutdown(wait=False)

    @contextmanager
    def _fed(self, question: Subscription):
        feed = self._feeds.get(question)
        if feed is None:
            feed = self._feeds[question] = Feed(question, self._tides, self.in_thread)
        feed.clients += 1
        try:
            yield feed
        finally:
            feed.clients -= 1
            if not feed.clients:
                del self._feeds[question]

    async def _is_welcome(self, scope: Mapping[str, Any], admitted: Admitted) -> bool:
        """Ask the door again, once per heartbeat for all clients with the same right and question."""
        credentials = (scope["path"], scope["query_string"], tuple(sorted(_credentials(scope))))
        until, asking = self._welcomes.get(credentials, (0.0, None))
        if asking is None or time.monotonic() > until:
            asking = asyncio.create_task(self.in_thread(lambda: auth.ask(scope, again=True)))
            until = time.monotonic() + settings.TIDEMARK_EVENTS_HEARTBEAT_SECONDS / 2
            self._forget_welcomes()
            self._welcomes[credentials] = (until, asking)
        await asyncio.wait({asking}, timeout=WELCOME_WITHIN_SECONDS)
        # A database that is away turns nobody out, nor does it keep the line from being warmed.
        if not asking.done() or asking.exception() is not None:
            return True
        answer = asking.result()
        if isinstance(answer, Refused):
            return answer.status not in UNWELCOME
        return answer.question == admitted.question

    def _forget_welcomes(self) -> None:
        now = time.monotonic()
        self._welcomes = {key: kept for key, kept in self._welcomes.items() if kept[0] >= now}

    async def _watch_unannounced(self) -> None:
        stand: CommitsCursor | None = None
        while True:
            await asyncio.sleep(UNANNOUNCED_SECONDS)
            # The first look tells those who have looked before it to look again.
            stand = await self._unannounced(stand) if self._tides.is_followed(EVERY_PIPELINE) else None

    async def _unannounced(self, stand: CommitsCursor | None) -> CommitsCursor | None:
        try:
            step = await self.in_thread(lambda: commits_delta(CommitsSubscription(), stand))
        except PASSING:
            return stand
        if step.frames:
            self._tides.heard_of_all()
        return step.stand

    async def _say_alive(self) -> None:
        try:
            while True:
                await self.in_thread(self._member.heartbeat)
                await asyncio.sleep(self._member.pause_seconds)
        finally:
            await asyncio.shield(asyncio.create_task(self.in_thread(self._member.leave)))


def _parameters() -> dict[str, Any]:
    """Return what psycopg connects with; Django's cursors and type adapters are for its ORM."""
    parameters = connection.get_connection_params()
    return {name: value for name, value in parameters.items() if name not in ("context", "cursor_factory")}


def _credentials(scope: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in scope["headers"] if name in (b"authorization", b"x-api-key", b"cookie")]


def _on_a_fresh_connection(work: Callable[[], Answer]) -> Answer:
    # As Django does at the beginning of a request: one that has died is not asked again.
    close_old_connections()
    return work()

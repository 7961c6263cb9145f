"""What the push counts of itself, among what every serving process counts."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from prometheus_client import Counter, Gauge

from webapp.core.metrics import REGISTRY
from webapp.events import deltas
from webapp.events.broker import CommitSignals
from webapp.events.deltas import Delta
from webapp.events.feed import Feed

CLIENTS = Gauge(
    "tidemark_sse_clients", "Clients that listen for events now", multiprocess_mode="livesum", registry=REGISTRY
)
EVENTS = Counter("tidemark_sse_events", "Events sent to clients, by what they are", ["event"], registry=REGISTRY)
DROPPED = Counter("tidemark_sse_dropped", "Clients dropped because they read nothing for too long", registry=REGISTRY)


# One client's stream: says where it stands, follows the feed, keeps the line warm, and notices when nobody reads.
#
# A client is its stand, not a queue: what it has not read yet is not kept for it but read when it gets there, from
# the changelog. So a slow one costs as much as a quick one, and one that takes nothing for too long is dropped; it
# loses nothing, as it names its last event when it comes again.


Send = Callable[[dict[str, Any]], Awaitable[None]]

# Clients that lost the same server do not all come again at the same moment.
RETRY_MS, RETRY_SPREAD_MS = 1_000, 2_000

# No look can be as old as that.
NEVER = -1


class Stream:
    """send: ASGI's. still_welcome: asked at every heartbeat; False ends the stream."""

    def __init__(
        self,
        feed: Feed,
        tides: CommitSignals,
        send: Send,
        last_txid: int | None,
        still_welcome: Callable[[], Awaitable[bool]],
    ) -> None:
        self._feed = feed
        self._tides = tides
        self._send = send
        self._last_txid = last_txid
        self._still_welcome = still_welcome
        self._stand: Any = None
        self._told_txid = last_txid
        self._looked = NEVER
        self._ended = False
        self._poked = asyncio.get_running_loop().create_future()

    def end(self) -> None:
        """Say goodbye at the next moment."""
        self._ended = True
        self.poke()

    def poke(self, *_: Any) -> None:
        if not self._poked.done():
            self._poked.set_result(None)

    async def run(self) -> None:
        """Stream until it has ended. Raises TimeoutError where the client reads nothing."""
        self._tides.follow(self._feed.pipeline, self.poke)
        try:
            await self._say(deltas.retry(RETRY_MS + secrets.randbelow(RETRY_SPREAD_MS)))
            await self._follow()
        finally:
            self._tides.leave(self._feed.pipeline, self.poke)

    async def _follow(self) -> None:
        reading: asyncio.Task[Delta] | None = None
        beat_at = time.monotonic() + settings.TIDEMARK_EVENTS_HEARTBEAT_SECONDS
        while not self._ended:
            if reading is None and self._looked != self._tides.count(self._feed.pipeline):
                reading = self._look()
            if reading is not None and reading.done():
                step, reading = reading.result(), None
                await self._tell(step)
                continue
            if time.monotonic() >= beat_at:
                await self._beat()
                beat_at = time.monotonic() + settings.TIDEMARK_EVENTS_HEARTBEAT_SECONDS
            await self._rest(beat_at - time.monotonic())

    def _look(self) -> "asyncio.Task[Delta]":
        # Counted first, read second: a commit that comes in between makes the counts differ, and is looked for.
        self._looked = self._tides.count(self._feed.pipeline)
        reading = self._feed.first(self._last_txid) if self._stand is None else self._feed.after(self._stand)
        reading.add_done_callback(self.poke)
        return reading

    async def _tell(self, step: Delta) -> None:
        for told in step.frames:
            await self._say(told.body)
            EVENTS.labels(told.event).inc()
        self._stand = step.stand
        if step.frames:
            self._told_txid = getattr(step.stand, "txid", None)
        if step.more:
            self._looked = NEVER

    async def _beat(self) -> None:
        if not await self._still_welcome():
            self._ended = True
            return
        txid: int | None = getattr(self._stand, "txid", self._told_txid)
        # Batches that changed nothing for this client need not be caught up on, either.
        moved = b"" if txid is None or txid == self._told_txid else deltas.standing(txid)
        self._told_txid = txid
        await self._say(deltas.HEARTBEAT + moved)

    async def _say(self, body: bytes) -> None:
        message = {"type": "http.response.body", "body": body, "more_body": True}
        async with asyncio.timeout(settings.TIDEMARK_EVENTS_SLOW_SECONDS):
            await self._send(message)

    async def _rest(self, seconds: float) -> None:
        alarm = asyncio.get_running_loop().call_later(max(0.0, seconds), self.poke)
        try:
            await self._poked
        finally:
            alarm.cancel()
            self._poked = asyncio.get_running_loop().create_future()

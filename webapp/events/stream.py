"""The stream of one client: sends deltas from its cursor on and heartbeats, and detects a client that does not read.

Each client is a cursor; nothing is queued per client. Batches that it has not received are read from the changelog when
the client gets to them, so a slow client costs as much as a fast one. A client that reads nothing for too long is
disconnected, but loses nothing, because it resumes from its last event id.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from prometheus_client import Counter, Gauge

from tidegauge.webapp.core.metrics import REGISTRY
from tidegauge.webapp.events import deltas
from tidegauge.webapp.events.broker import CommitSignals, SharedReads
from tidegauge.webapp.events.deltas import Delta, EventId

CLIENTS = Gauge("tidegauge_sse_clients", "Clients connected now", multiprocess_mode="livesum", registry=REGISTRY)
EVENTS = Counter("tidegauge_sse_events", "Events sent to clients, by event type", ["event"], registry=REGISTRY)
DROPPED = Counter(
    "tidegauge_sse_dropped", "Clients disconnected because they read nothing for too long", registry=REGISTRY
)

# Random, so that the clients of a server that has stopped do not all reconnect at once.
RETRY_MS, RETRY_SPREAD_MS = 1_000, 2_000

# Pause between two attempts to authorize a client while the database is unavailable.
AUTHORIZE_AGAIN_SECONDS = 2.0

# A signal count that never occurs: read at once.
NO_COUNT = -1

Send = Callable[[dict[str, Any]], Awaitable[None]]


class EventStream:
    """send: ASGI's. still_authorized: asked at every heartbeat; False ends the stream, None holds events back.

    turn: returns when it is this client's turn to be sent something.

    While the database is unavailable, the client stays connected and gets heartbeats but no events, so that a key that
    is revoked meanwhile gets none.
    """

    def __init__(
        self,
        reads: SharedReads,
        signals: CommitSignals,
        send: Send,
        last_id: EventId | None,
        still_authorized: Callable[[], Awaitable[bool | None]],
        turn: Callable[[], Awaitable[None]],
    ) -> None:
        self._reads = reads
        self._signals = signals
        self._send = send
        self._last_id = last_id
        self._still_authorized = still_authorized
        self._turn = turn
        self._is_authorized = True
        self._cursor: Any = None
        self._sent_id = last_id
        self._count = NO_COUNT
        self._ended = False
        self._woken = asyncio.get_running_loop().create_future()

    def end(self) -> None:
        self._ended = True
        self.wake()

    def wake(self, *_: Any) -> None:
        if not self._woken.done():
            self._woken.set_result(None)

    async def run(self) -> None:
        """Stream until `end` is called. Raises TimeoutError if the client reads nothing."""
        self._signals.subscribe(self._reads.pipeline, self.wake)
        try:
            await self._write(deltas.retry(RETRY_MS + secrets.randbelow(RETRY_SPREAD_MS)))
            await self._follow()
        finally:
            self._signals.unsubscribe(self._reads.pipeline, self.wake)

    async def _follow(self) -> None:
        reading: asyncio.Task[Delta] | None = None
        beat_at = time.monotonic() + settings.TIDEGAUGE_EVENTS_HEARTBEAT_SECONDS
        while not self._ended:
            if reading is None and self._count != self._signals.count(self._reads.pipeline):
                reading = self._read()
            if reading is not None and reading.done() and self._is_authorized:
                delta, reading = reading.result(), None
                if delta.frames:
                    await self._turn()
                await self._send_delta(delta)
                continue
            if time.monotonic() >= beat_at:
                await self._beat()
                beat_at = time.monotonic() + self._pause_seconds
            await self._wait(beat_at - time.monotonic())

    def _read(self) -> "asyncio.Task[Delta]":
        # Count first, then read, because a commit in between then makes the counts differ, so the loop reads again.
        self._count = self._signals.count(self._reads.pipeline)
        reading = self._reads.first(self._last_id) if self._cursor is None else self._reads.after(self._cursor)
        reading.add_done_callback(self.wake)
        return reading

    async def _send_delta(self, delta: Delta) -> None:
        for frame in delta.frames:
            await self._write(frame.body)
            EVENTS.labels(frame.event).inc()
        self._cursor = delta.cursor
        if delta.frames:
            self._sent_id = getattr(delta.cursor, "event_id", None)
        if delta.more:
            self._count = NO_COUNT

    @property
    def _pause_seconds(self) -> float:
        usual: float = settings.TIDEGAUGE_EVENTS_HEARTBEAT_SECONDS
        return usual if self._is_authorized else min(usual, AUTHORIZE_AGAIN_SECONDS)

    async def _beat(self) -> None:
        answer = await self._still_authorized()
        if answer is False:
            self._ended = True
            return
        self._is_authorized = answer is True
        reached: EventId | None = getattr(self._cursor, "event_id", self._sent_id)
        # Advance the client's last id, so that batches without a change for it are not read again when it resumes.
        advance = b"" if reached is None or reached == self._sent_id else deltas.last_id(reached)
        self._sent_id = reached
        await self._write(deltas.HEARTBEAT + advance)

    async def _write(self, body: bytes) -> None:
        message = {"type": "http.response.body", "body": body, "more_body": True}
        async with asyncio.timeout(settings.TIDEGAUGE_EVENTS_SLOW_SECONDS):
            await self._send(message)

    async def _wait(self, seconds: float) -> None:
        alarm = asyncio.get_running_loop().call_later(max(0.0, seconds), self.wake)
        try:
            await self._woken
        finally:
            alarm.cancel()
            self._woken = asyncio.get_running_loop().create_future()

"""Turns of clients for the event loop's connections to one server, and pauses while it does not answer.

In a pause there are no turns, and threads answer: they find out what is wrong, and tell the client.
"""

import asyncio
import time
from functools import partial

from tidegauge.webapp.core.turns import Turns

PAUSE_SECONDS = 1.0
# While there are turns to wait for, one ends within this time, or else none is waited for.
STUCK_SECONDS = 0.25


class NoConnectionError(Exception):
    """No connection can be had: none could be opened a moment ago, or a pooler is between here and the server."""


class LoopTurns:
    """For one event loop. most: how many turns there are at once."""

    def __init__(self, most: int) -> None:
        self._turns = Turns("lookups", most)
        self._none_until = 0.0
        self._waiting: set[asyncio.Future[None]] = set()
        self._last_end = 0.0
        self._watch: asyncio.TimerHandle | None = None

    async def begin(self, client: str) -> None:
        """Return at the client's turn, which lasts until `end`. Raises NoConnectionError, PoolFullError."""
        if time.monotonic() < self._none_until:
            raise NoConnectionError
        if self._turns.begin_now(client):
            return  # as nearly always, so without a future
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.wait(client, partial(self._begin, client, begun))
        self._waiting.add(begun)
        if self._watch is None:
            self._watch = begun.get_loop().call_later(STUCK_SECONDS, self._check)
        try:
            await begun
        finally:
            self._waiting.discard(begun)

    def end(self, client: str) -> None:
        self._last_end = time.monotonic()
        self._turns.end(client)

    def pause(self, seconds: float = PAUSE_SECONDS) -> None:
        self._none_until = time.monotonic() + seconds

    def _begin(self, client: str, begun: asyncio.Future[None]) -> None:
        if begun.done():
            # Nobody waits for it any more. Later, because the turn counts only once this has returned.
            begun.get_loop().call_soon(self._turns.end, client)
        else:
            begun.set_result(None)

    def _check(self) -> None:
        """Leave what waits to threads if all connections are stuck."""
        self._watch = None
        if not self._waiting:
            return
        if time.monotonic() - self._last_end > STUCK_SECONDS:
            self.pause()
            for begun in self._waiting:
                if not begun.done():
                    begun.set_exception(NoConnectionError())
        else:
            self._watch = asyncio.get_running_loop().call_later(STUCK_SECONDS, self._check)

"""An answer that is sent in parts, as fast as its client reads, within time limits."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

from django.conf import settings
from django.http.response import HttpResponseBase

logger = logging.getLogger(__name__)

Send = Callable[[dict[str, Any]], Awaitable[None]]
Run = Callable[[Callable[[], Any]], Awaitable[Any]]

# One part of a streamed answer: as many bytes as one turn of a thread collects.
PART_BYTES = 64 * 1024


class StreamedAnswer:
    """An answer whose parts are made and sent one by one. start: its first message."""

    def __init__(self, start: dict[str, Any], response: HttpResponseBase) -> None:
        self._start = start
        self._response = response

    async def send_to(self, send: Send, disconnected: "asyncio.Future[None]", run: Run, context: Context) -> None:
        try:
            await send(self._start)
            await self._stream(send, disconnected, run, context, iter(self._response))
        finally:
            await run(partial(context.run, self._response.close))

    async def _stream(
        self, send: Send, disconnected: "asyncio.Future[None]", run: Run, context: Context, parts: Iterator[bytes]
    ) -> None:
        # Only a complete answer gets its last message. Without it the server aborts the connection, so that the client
        # notices that the answer is incomplete.
        pace = Pace()
        while not disconnected.done():
            part = await run(partial(context.run, _next_part, parts))
            if not part:
                with suppress(Exception):
                    await send({"type": "http.response.body", "body": b""})
                return
            try:
                async with asyncio.timeout(pace.seconds_left):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            except TimeoutError:
                logger.warning("a streamed answer was ended: %s", pace)
                return
            pace.sent(len(part))


class Pace:
    """Limits the time in which a client reads a stream: each pause, the average rate, and the whole stream.

    For pauses and rate only the time that the client takes counts, not the time until there is a part to send.
    """

    def __init__(self) -> None:
        self._bytes, self._reading = 0, 0.0
        self._began = self._ends = time.monotonic()
        self._ends += settings.TIDEGAUGE_STREAM_MAX_SECONDS

    @property
    def seconds_left(self) -> float:
        self._asked = time.monotonic()
        idle = settings.TIDEGAUGE_STREAM_IDLE_MS / 1000
        earned = idle + self._bytes / settings.TIDEGAUGE_STREAM_MIN_BYTES_PER_SECOND - self._reading
        return max(0.0, min(idle, earned, self._ends - self._asked))

    def sent(self, size: int) -> None:
        self._bytes += size
        self._reading += time.monotonic() - self._asked

    def __str__(self) -> str:
        return f"{self._bytes} bytes were read in {time.monotonic() - self._began:.0f} s"


def _next_part(parts: Iterator[bytes]) -> bytes:
    """Return the next part of a stream, of PART_BYTES or somewhat more; empty at the end."""
    collected, size = [], 0
    for part in parts:
        collected.append(part)
        size += len(part)
        if size >= PART_BYTES:
            break
    return b"".join(collected)

"""Performs the steps of calls with httpx in an event loop of asyncio."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import IO, Any, TypeVar

import httpx

from tidegauge.client import exports
from tidegauge.client.calls import Failure, Opened, Pause, Renew, Send, Steps, clock
from tidegauge.client.connection import BROKEN_OFF, Connection, failure, opened, response_of, unsent
from tidegauge.client.errors import Response
from tidegauge.client.events import Event, Feed
from tidegauge.client.exports import Export
from tidegauge.client.tokens import Renewal

Answered = TypeVar("Answered")


class AsyncTransport:
    def __init__(self, connection: Connection, http: Mapping[str, Any]) -> None:
        self._connection = connection
        self._http = httpx.AsyncClient(**http)
        self._renewing = asyncio.Lock()

    async def close(self) -> None:
        await self._http.aclose()

    async def run(self, steps: Steps[Answered]) -> Answered:
        outcome = None
        try:
            while True:
                outcome = await self._performed(steps.send(outcome))
        except StopIteration as end:
            answer: Answered = end.value
            return answer

    async def follow(self, feed: Feed) -> AsyncIterator[Event]:
        while True:
            async with aclosing((await self.run(feed.connect())).stream) as stream:
                parts = stream.aiter_bytes()
                while (content := await _next(parts)) is not None:
                    for event in await self.run(feed.received(content)):
                        yield event

    async def export(self, steps: Steps[Opened]) -> Export:
        """Download an export to a temporary file, because Arrow reads files and does not support event loops."""
        answer, file = await self.run(steps), exports.download()
        await _write(answer, file)
        file.seek(0)
        return Export(answer.headers, file)

    async def export_to(self, steps: Steps[Opened], target: str | os.PathLike[str]) -> int:
        answer = await self.run(steps)
        with exports.whole_file(target) as file:
            await _write(answer, file)
        return exports.batch_of(answer)

    async def _performed(self, step: Send | Pause | Renew) -> Response | Opened | Failure | None:
        match step:
            case Send():
                return await self._send(step)
            case Pause():
                await asyncio.sleep(step.seconds)
            case Renew():
                await self._renew(step.token)
        return None

    async def _renew(self, token: Renewal) -> None:
        async with self._renewing:
            # Checked under the lock, because another call may have renewed the token while this one waited.
            if not token.is_due:
                return
            asked_at = clock()
            try:
                token.take(await token.make(), asked_at)
            except Exception as error:
                token.failed(error)

    async def _send(self, send: Send) -> Response | Opened | Failure:
        try:
            async with asyncio.timeout(send.seconds):
                request = self._http.build_request(**self._connection.arguments(send))
                answer = await self._http.send(request, stream=send.silence is not None)
                is_stream = answer.is_success and send.silence is not None
                if is_stream and send.request.expects(answer.headers):
                    return opened(answer)
                async with aclosing(answer):
                    return response_of(answer, b"" if is_stream else await answer.aread())
        except (TimeoutError, httpx.RequestError) as error:
            return failure(error)
        except httpx.InvalidURL as error:
            raise unsent(send, error) from error


async def _write(answer: Opened, file: IO[bytes]) -> None:
    async with aclosing(answer.stream) as stream:
        with exports.naming_the_break():
            async for part in stream.aiter_bytes():
                file.write(part)


async def _next(parts: AsyncIterator[bytes]) -> bytes | None:
    """Return the next piece of a stream; None at its end, whether it was complete or broke off."""
    try:
        return await anext(parts, None)
    except BROKEN_OFF:
        return None

"""Performs the steps of calls with httpx, blocking. `async_transport` does the same in an event loop."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, TypeVar

import httpx

from tidegauge.client import exports
from tidegauge.client.calls import Failure, Opened, Pause, Renew, Send, Steps, clock
from tidegauge.client.connection import BROKEN_OFF, Connection, failure, opened, response_of, unsent
from tidegauge.client.errors import Response
from tidegauge.client.events import Event, Feed
from tidegauge.client.exports import Export
from tidegauge.client.pool import Pool
from tidegauge.client.tokens import Renewal

Answered = TypeVar("Answered")


class Transport:
    def __init__(self, connection: Connection, http: Mapping[str, Any]) -> None:
        self._connection = connection
        self._pool = Pool(http)
        self._renewing = threading.Lock()

    def close(self) -> None:
        self._pool.close()

    def run(self, steps: Steps[Answered]) -> Answered:
        outcome = None
        try:
            while True:
                outcome = self._performed(steps.send(outcome))
        except StopIteration as end:
            answer: Answered = end.value
            return answer

    def follow(self, feed: Feed) -> Iterator[Event]:
        while True:
            with closing(self.run(feed.connect()).stream) as stream:
                parts = stream.iter_bytes()
                while (content := _next(parts)) is not None:
                    yield from self.run(feed.received(content))

    def export(self, steps: Steps[Opened]) -> Export:
        answer = self.run(steps)
        return Export(answer.headers, exports.as_file(answer.stream))

    def export_to(self, steps: Steps[Opened], target: str | os.PathLike[str]) -> int:
        answer = self.run(steps)
        with closing(answer.stream) as stream, exports.whole_file(target) as file, exports.naming_the_break():
            for part in stream.iter_bytes():
                file.write(part)
        return exports.batch_of(answer)

    def _performed(self, step: Send | Pause | Renew) -> Response | Opened | Failure | None:
        match step:
            case Send():
                return self._send(step)
            case Pause():
                time.sleep(step.seconds)
            case Renew():
                self._renew(step.token)
        return None

    def _renew(self, token: Renewal) -> None:
        with self._renewing:
            # Checked under the lock, because another thread may have renewed the token while this one waited.
            if not token.is_due:
                return
            asked_at = clock()
            try:
                token.take(token.make(), asked_at)
            except Exception as error:
                token.failed(error)

    def _send(self, send: Send) -> Response | Opened | Failure:
        try:
            return self._read(send) if send.silence is None else self._opened(send)
        except httpx.RequestError as error:
            return failure(error)
        except httpx.InvalidURL as error:
            raise unsent(send, error) from error

    def _read(self, send: Send) -> Response:
        ends, content = clock() + send.seconds, bytearray()
        with closing(self._pool.send(**self._connection.arguments(send))) as answer:
            for part in answer.iter_bytes():
                content += part
                if clock() >= ends:
                    raise httpx.ReadTimeout("the answer did not end in time")
            return response_of(answer, bytes(content))

    def _opened(self, send: Send) -> Response | Opened:
        answer = self._pool.send(**self._connection.arguments(send))
        if answer.is_success and send.request.expects(answer.headers):
            return opened(answer)
        with closing(answer):
            return response_of(answer, b"" if answer.is_success else answer.read())


def _next(parts: Iterator[bytes]) -> bytes | None:
    """Return the next piece of a stream; None at its end, whether it was complete or broke off."""
    try:
        return next(parts, None)
    except BROKEN_OFF:
        return None

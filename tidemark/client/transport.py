"""Performs the steps of calls with httpx, blocking. `async_transport` does the same in an event loop."""

import os
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TypeVar

import httpx

from tidemark.client import exports
from tidemark.client.calls import Failure, Opened, Pause, Send, Steps, clock
from tidemark.client.connection import Connection, failure, http_options, opened, response_of
from tidemark.client.errors import Response
from tidemark.client.events import Event, Feed
from tidemark.client.exports import Export

Answered = TypeVar("Answered")


class Transport:
    def __init__(self, connection: Connection, connections: int, verify: ssl.SSLContext | bool) -> None:
        self._connection = connection
        self._http = httpx.Client(**http_options(connections, verify))

    def close(self) -> None:
        self._http.close()

    def run(self, steps: Steps[Answered]) -> Answered:
        outcome = None
        try:
            while True:
                step = steps.send(outcome)
                outcome = self._send(step) if isinstance(step, Send) else None
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
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

    def _send(self, send: Send) -> Response | Opened | Failure:
        try:
            return self._read(send) if send.silence is None else self._opened(send)
        except httpx.TransportError as error:
            return failure(error)

    def _read(self, send: Send) -> Response:
        ends, content = clock() + send.seconds, bytearray()
        with self._http.stream(**self._connection.arguments(send)) as answer:
            for part in answer.iter_bytes():
                content += part
                if clock() >= ends:
                    raise httpx.ReadTimeout("the answer did not end in time")
            return response_of(answer, bytes(content))

    def _opened(self, send: Send) -> Response | Opened:
        answer = self._http.send(self._http.build_request(**self._connection.arguments(send)), stream=True)
        if answer.is_success:
            return opened(answer)
        with closing(answer):
            return response_of(answer, answer.read())


def _next(parts: Iterator[bytes]) -> bytes | None:
    """Return the next piece of a stream, None at its end, however it ended."""
    try:
        return next(parts, None)
    except (httpx.TransportError, httpx.StreamError):
        return None

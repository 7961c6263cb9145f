"""Sends requests both ways that a web process has: to its event loop, and to Django's handler in a thread."""

import asyncio
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
import psycopg
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse

from tests.webapp.api.checked_client import CheckedClient
from tidegauge.webapp.accounts.callers import caller_of
from tidegauge.webapp.catalog.waits import COMMITTED, Committed, Wait, Waits
from tidegauge.webapp.serving.environ import environ_of
from tidegauge.webapp.serving.on_loop import Arrived, LoopAnswer, LoopAnswers

STATE = "/api/v1/states/flights_by_carrier"
LOOKUP = f"{STATE}/lookup"
ASKED = {"keys": [["JFK", "C01"], ["JFK", "none"], ["JFK", "C01"]]}
JSON = "application/json"
# They differ from request to request.
OWN_HEADERS = {"X-Request-ID", "RateLimit"}


class Given(NamedTuple):
    """An answer as a client sees it, without what differs from request to request."""

    status: int
    headers: dict[str, str]
    body: bytes


class Requests:
    """Sends a request to the event loop and to Django's handler. key: sent with each."""

    def __init__(self, key: str, conn: psycopg.Connection) -> None:
        self.key, self._conn = key, conn
        self.runner = asyncio.Runner()
        self.answers = self.runner.run(self._made())
        self.handler = WSGIHandler()

    async def _made(self) -> LoopAnswers:
        async def read(states: Sequence[str]) -> Committed:
            return dict(self._conn.execute(COMMITTED, [list(states)]).fetchall())

        return LoopAnswers(Waits(read))

    def on_loop(self, path: str = LOOKUP, body: Any = ASKED, **headers: str) -> Given | None:
        environ, data = self.environ(path, body, **headers)
        return self.answered_on_loop(environ, data)

    def answered_on_loop(self, environ: dict[str, Any], data: bytes) -> Given | None:
        found = self.runner.run(self.answer(environ, data))
        if found is None:
            return None
        return _given(found.status, {name.decode(): value.decode() for name, value in found.headers}, found.body)

    async def answer(self, environ: dict[str, Any], data: bytes) -> LoopAnswer | None:
        connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(60):  # so that a test of what hangs can fail
            return await self.answers.answer(Arrived(environ, caller_of(environ), data, Wait(), lambda: connected))

    def in_thread(self, path: str = LOOKUP, body: Any = ASKED, **headers: str) -> Given:
        return self.answered_in_thread(*self.environ(path, body, **headers))

    def answered_in_thread(self, environ: dict[str, Any], data: bytes) -> Given:
        started: list[Any] = []
        environ |= {"wsgi.input": io.BytesIO(data)}
        response = self.handler(environ, lambda status, headers: started.extend((int(status[:3]), dict(headers))))
        body = b"".join(response)
        response.close()
        return _given(*started, body)

    def environ(self, path: str, body: Any, method: str = "", **headers: str) -> tuple[dict[str, Any], bytes]:
        data = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        path, _, query = path.partition("?")
        sent = {"Host": "localhost", "Authorization": f"Bearer {self.key}"}
        if body is not None:
            sent |= {"Content-Type": JSON, "Content-Length": str(len(data))}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        scope = {
            "method": method or ("GET" if body is None else "POST"),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "http_version": "1.1",
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 50_000),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items() if value],
        }
        return environ_of(scope), data

    def close(self) -> None:
        self.runner.run(self.answers.close())
        self.runner.close()


def _given(status: int, headers: dict[str, str], body: bytes) -> Given:
    return Given(status, {name: value for name, value in headers.items() if name not in OWN_HEADERS}, body)


class BothWaysClient(CheckedClient):
    """A client whose lookups go both ways, and fail unless the answers agree.

    The event loop leaves to a thread what is refused.
    """

    def __init__(self, key: str, requests: Requests) -> None:
        super().__init__(key)
        self.requests = requests

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> HttpResponse:
        response = super().ask(method, path, body, **options)
        if path.partition("?")[0].endswith(("/lookup", "/keys")):
            headers = {name.removeprefix("HTTP_"): value for name, value in options.items()}
            here = self.requests.on_loop(f"/api/v1{path}", body, **headers)
            there = _given(response.status_code, dict(response.headers), response.content)
            assert here == (there if there.status in (200, 304) else None)
        return response

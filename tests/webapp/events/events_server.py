"""A real events process on loopback, and a client that reads its events."""

import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.webapp.events.described import check_event
from tests.webapp.web_server import Server, running
from tidegauge.webapp.serving import process_commands

WITHIN_SECONDS = 20.0


@dataclass(frozen=True)
class Event:
    event: str
    id: int | None
    data: Any


@contextmanager
def events_server(folder: Path, **settings: object) -> Iterator[Server]:
    """Run an events process. settings: more environment variables."""
    with running(Server("events", process_commands.EVENTS, folder, settings)) as server:
        yield server


class Listener:
    """One client: a socket, and the events received on it."""

    def __init__(
        self, server: Server, path: str, headers: Mapping[str, str], *, buffer_bytes: int | None = None
    ) -> None:
        self._path = path
        self._socket = socket.socket()
        if buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self._socket.connect(("127.0.0.1", server.port))
        lines = [f"GET {urllib.parse.quote(path, safe='/?=&,%')} HTTP/1.1"]
        all_headers = {"Host": f"127.0.0.1:{server.port}"} | dict(headers)
        lines += [f"{name}: {value}" for name, value in all_headers.items()]
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self._rest = b""
        self._body = b""
        self._status = 0
        self.headers: dict[str, str] = {}
        self.comments = 0
        self.last_id: int | None = None  # its txid
        self.last_event_id = ""
        self.retry_ms: int | None = None

    @property
    def status(self) -> int:
        if not self._status:
            self._read_head(time.monotonic() + WITHIN_SECONDS)
        return self._status

    def next(self, within: float = WITHIN_SECONDS) -> Event:
        """Return the next event, which is as /api/schema says. Raises TimeoutError, and EOFError at the end."""
        assert self.status == 200, (self.status, self.rest(1.0))
        deadline = time.monotonic() + within
        while True:
            while b"\n\n" not in self._body:
                self._read_chunk(deadline)
            block, _, self._body = self._body.partition(b"\n\n")
            event = self._parsed(block.decode())
            if event is not None:
                check_event(self._path, event.event, event.data)
                return event

    def until(self, name: str, within: float = WITHIN_SECONDS) -> Event:
        while (event := self.next(within)).event != name:
            pass
        return event

    def no_more(self, within: float) -> bool:
        """Return whether only heartbeats are received for so many seconds."""
        try:
            self.next(within)
        except TimeoutError:
            return True
        return False

    def rest(self, within: float = WITHIN_SECONDS) -> bytes:
        """Return the rest of a response that ends, such as a problem."""
        deadline = time.monotonic() + within
        if self.headers.get("transfer-encoding") != "chunked":
            while len(self._rest) < int(self.headers.get("content-length", 0)):
                self._receive(deadline)
            return self._rest
        try:
            while True:
                self._read_chunk(deadline)
        except (EOFError, TimeoutError):
            return self._body

    def problem(self) -> dict[str, Any]:
        assert self.status >= 400
        assert self.headers["content-type"] == "application/problem+json"
        return json.loads(self.rest())

    def close(self) -> None:
        self._socket.close()

    def _parsed(self, block: str) -> Event | None:
        name, number, data = "message", None, []
        for line in block.split("\n"):
            field, _, value = line.partition(": ")
            match field:
                case "event":
                    name = value
                case "id":
                    self.last_event_id = value
                    number = self.last_id = int(value.partition("-")[0])
                case "data":
                    data.append(value)
                case "retry":
                    self.retry_ms = int(value)
                case "":
                    self.comments += 1
        return Event(name, number, json.loads("\n".join(data))) if data else None

    def _read_head(self, deadline: float) -> None:
        while b"\r\n\r\n" not in self._rest:
            self._receive(deadline)
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self._status = int(first.split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    def _read_chunk(self, deadline: float) -> None:
        while b"\r\n" not in self._rest:
            self._receive(deadline)
        size, _, rest = self._rest.partition(b"\r\n")
        length = int(size, 16)
        while len(rest) < length + 2:
            self._rest = size + b"\r\n" + rest
            self._receive(deadline)
            _, _, rest = self._rest.partition(b"\r\n")
        self._body += rest[:length]
        self._rest = rest[length + 2 :]
        if not length:
            raise EOFError("the stream has ended")

    def _receive(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("nothing was received")
        self._socket.settimeout(left)
        received = self._socket.recv(1 << 16)
        if not received:
            raise EOFError("the connection was closed")
        self._rest += received

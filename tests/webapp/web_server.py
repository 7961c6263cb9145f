"""A real web or events process on loopback over the test's database, and sockets to it."""

import os
import socket
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from django.db import connection

from pipelines.embedded.data_dir import free_port
from webapp.core import serving
from webapp.states.management.child_process import Child

STARTED_WITHIN_SECONDS = 60.0
READ_BYTES = 65_536


@dataclass(frozen=True)
class Server:
    port: int
    process: Child

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def database_url() -> str:
    parameters = connection.get_connection_params()
    quoted = {
        name: urllib.parse.quote(str(parameters.get(name) or ""), safe="") for name in ("user", "password", "dbname")
    }
    host = urllib.parse.urlencode({"host": parameters["host"], "port": parameters.get("port") or 5432})
    return f"postgresql://{quoted['user']}:{quoted['password']}@/{quoted['dbname']}?{host}"


@contextmanager
def web_server(
    folder: Path, options: tuple[str, ...] = (), *, port: int | None = None, **settings: object
) -> Iterator[Server]:
    """Run the web process with one worker. options: of granian. settings: more environment variables."""
    with served("web", [*serving.WEB, *options], folder, port, settings) as server:
        yield server


@contextmanager
def served(
    name: str, options: Sequence[str], folder: Path, port: int | None, settings: Mapping[str, object]
) -> Iterator[Server]:
    """Run granian over the test's database until the end of the block. Raises RuntimeError if the process ends."""
    port = port or free_port()
    environ = {"DATABASE_URL": database_url(), "TIDEMARK_HOME": str(folder), "LOG_FORMAT": "text"}
    environ |= {setting: str(value) for setting, value in settings.items()}
    command = [sys.executable, "-m", "granian", "--host", "127.0.0.1", "--port", str(port), *options]
    with patch.dict(os.environ, environ):
        process = Child(name, command, folder / f"{name}-{port}.log")
    server = Server(port, process)
    try:
        eventually(lambda: _answers(server), STARTED_WITHIN_SECONDS)
        yield server
    finally:
        process.stop()


def eventually(holds: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.05)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def asked(port: int, path: str, key: str = "", **headers: str) -> socket.socket:
    """Send a GET that ends its connection; return the socket."""
    client = connected(port)
    client.sendall(request("GET", path, Authorization=f"Bearer {key}", Connection="close", **headers))
    return client


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Return an encoded request; `_` in a header's name becomes `-`."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def all_of(client: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    parts = []
    while part := client.recv(READ_BYTES):
        parts.append(part)
    return b"".join(parts)


def one_of(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Read one answer with a Content-Length of a connection that stays open. Returns status, headers, body."""
    read = b""
    while b"\r\n\r\n" not in read:
        read += _some(client)
    head, _, body = read.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += _some(client)
    return int(first.split(" ")[1]), headers, body


def _some(client: socket.socket) -> bytes:
    part = client.recv(READ_BYTES)
    assert part, "the server closed the connection"
    return part


def _answers(server: Server) -> bool:
    if server.process.exit_code() is not None:
        raise RuntimeError(f"the {server.process.name} process has ended:\n{server.process.last_lines()}")
    try:
        with asked(server.port, "/healthz") as client:
            return client.recv(1_000).startswith(b"HTTP/1.1 ")  # without a database it is a 503
    except ConnectionError:
        return False

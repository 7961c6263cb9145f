"""A real web or events process on loopback over the test's database, and sockets to it."""

import socket
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from django.db import connection

from tests.harness.waiting import eventually
from tidegauge.pipelines.embedded.data_dir import free_port
from tidegauge.webapp.commands.management.child_process import Child
from tidegauge.webapp.serving import process_commands

STARTED_WITHIN_SECONDS = 60.0
READ_BYTES = 65_536


class Server:
    """A granian on loopback over the test's database; it may be started again, on the same port.

    name: of its log and its database sessions. options: of granian, the application last. settings: more environment
    variables.
    """

    def __init__(self, name: str, options: Sequence[str], folder: Path, settings: Mapping[str, object]) -> None:
        self.port = free_port()
        self._name = f"{name}-{self.port}"
        self._command = process_commands.web(self.port, options=options)
        self._log = folder / f"{self._name}.log"
        self._environ = {"TIDEGAUGE_HOME": str(folder), "LOG_FORMAT": "text", "PGAPPNAME": self._name}
        self._environ |= {"DJANGO_SETTINGS_MODULE": "tests.webapp.server_settings"}
        self._environ |= {setting: str(value) for setting, value in settings.items()}
        self.process: Child

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def session_name(self) -> str:
        """The application_name of its sessions."""
        return self._name

    @property
    def is_running(self) -> bool:
        return hasattr(self, "process") and self.process.exit_code() is None

    def start(self) -> None:
        """Return once it answers. Raises RuntimeError if the process ends."""
        environ = {"DATABASE_URL": database_url()} | self._environ
        self.process = Child(self._name, self._command, self._log, environ=environ)
        try:
            eventually(lambda: _answers(self), STARTED_WITHIN_SECONDS)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self.is_running:
            self.process.stop()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it until the end of the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()


def database_url() -> str:
    parameters = connection.get_connection_params()
    quoted = {
        name: urllib.parse.quote(str(parameters.get(name) or ""), safe="") for name in ("user", "password", "dbname")
    }
    host = urllib.parse.urlencode({"host": parameters["host"], "port": parameters.get("port") or 5432})
    return f"postgresql://{quoted['user']}:{quoted['password']}@/{quoted['dbname']}?{host}"


@contextmanager
def web_server(folder: Path, options: tuple[str, ...] = (), **settings: object) -> Iterator[Server]:
    """Run a web process with one worker. options: of granian, the application last. settings: environment variables."""
    with running(Server("web", [*process_commands.WEB, *options], folder, settings)) as server:
        yield server


@contextmanager
def running(server: Server) -> Iterator[Server]:
    try:
        server.start()
        yield server
    finally:
        server.stop()


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
        raise RuntimeError(f"{server.process.name} has ended:\n{server.process.last_lines()}")
    try:
        with asked(server.port, "/healthz") as client:
            return client.recv(1_000).startswith(b"HTTP/1.1 ")  # without a database it is a 503
    except ConnectionError:
        return False

"""A server on loopback that answers with given bytes, one answer per request, and keeps what it was sent."""

import gzip
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from tests.webapp.client.listening import Listening


def answer(body: bytes = b"{}", status: str = "200 OK", **headers: str) -> bytes:
    """Return an encoded answer; `_` in a header's name becomes `-`."""
    headers = {"Content_Type": "application/json", "Content_Length": str(len(body)), **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines]).encode() + b"\r\n\r\n" + body


STATES = answer(b'{"states": []}')
BROKEN_GZIP = answer(gzip.compress(b'{"states": []}')[:10] + b"\xff" * 20, Content_Encoding="gzip")


class ScriptedServer(Listening):
    """answers: the last one is given for all further requests. requests: as received. most_at_once: of connections
    that were open.
    """

    def __init__(self, answers: Sequence[bytes], tls: ssl.SSLContext | None) -> None:
        self.requests: list[bytes] = []
        self.most_at_once = 0
        self._open: list[socket.socket] = []
        self._answers = list(answers)
        self._tls = tls
        self._lock = threading.Lock()
        super().__init__("http" if tls is None else "https")

    def _serve(self, client: socket.socket) -> None:
        received = b""
        with suppress(OSError), self._secured(client) as client, self._counted(client):
            while part := client.recv(65_536):
                received += part
                while b"\r\n\r\n" in received:
                    request, _, received = received.partition(b"\r\n\r\n")
                    client.sendall(self._next(request))

    @contextmanager
    def _counted(self, client: socket.socket) -> Iterator[None]:
        with self._lock:
            self._open = [each for each in self._open if not _is_ended(each)] + [client]
            self.most_at_once = max(self.most_at_once, len(self._open))
        try:
            yield
        finally:
            with self._lock:
                self._open = [each for each in self._open if each is not client]

    def _secured(self, client: socket.socket) -> socket.socket:
        return client if self._tls is None else self._tls.wrap_socket(client, server_side=True)

    def _next(self, request: bytes) -> bytes:
        with self._lock:
            self.requests.append(request)
            return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def _is_ended(client: socket.socket) -> bool:
    """Return whether the client has closed a connection, which its thread may not have read yet."""
    if isinstance(client, ssl.SSLSocket):
        return False
    with suppress(BlockingIOError):
        return client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    return False


@contextmanager
def scripted_server(*answers: bytes, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    """For requests without a body."""
    server = ScriptedServer(answers, tls)
    try:
        yield server
    finally:
        server.close()

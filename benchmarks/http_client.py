"""An HTTP client that is not the bottleneck: a few persistent connections, each sending its next request immediately.

It uses plain sockets, because Python's HTTP clients take about as long for a request as the server does.
"""

import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

END_OF_HEADERS = b"\r\n\r\n"
READ_BYTES = 256 * 1024


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """One persistent connection, with one request at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""
        self.sent_at = 0.0

    def send(self, request: bytes) -> None:
        self._read = b""
        self.sent_at = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> bytes | None:
        """Read once; return the response if it is complete, else None. Raises ConnectionError."""
        more = self.socket.recv(READ_BYTES)
        if not more:
            raise ConnectionError("the server closed the connection")
        self._read += more
        head, end, body = self._read.partition(END_OF_HEADERS)
        return self._read if end and _is_complete(head, body) else None


def request_once(port: int, request: bytes) -> Response:
    """Send one request on its own connection."""
    connection = Connection(port)
    connection.send(request)
    while (read := connection.receive()) is None:
        pass
    connection.socket.close()
    head, _, body = read.partition(END_OF_HEADERS)
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    return Response(int(first.split(" ")[1]), headers, body)


def request_all(port: int, requests: Sequence[bytes], count: int, status: int, connections: int) -> int:
    """Send `count` requests, using `requests` in turn; return the count. Raises RuntimeError for another status."""
    return len(durations(port, requests, count, status, connections))


def durations(port: int, requests: Sequence[bytes], count: int, status: int, connections: int) -> list[float]:
    """Send `count` requests as `request_all` does; return how many seconds each answer took."""
    expected = b"HTTP/1.1 %d " % status
    turn, taken = cycle(requests), []
    with selectors.DefaultSelector() as selector:
        for _ in range(min(connections, count)):
            connection = Connection(port)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send(next(turn))
        sent = min(connections, count)
        while len(taken) < count:
            for key, _ in selector.select():
                response = key.data.receive()
                if response is None:
                    continue
                if not response.startswith(expected):
                    raise RuntimeError(f"expected status {status}, got {response[:200]!r}")
                taken.append(time.perf_counter() - key.data.sent_at)
                if sent < count:
                    key.data.send(next(turn))
                    sent += 1
        for key in list(selector.get_map().values()):
            key.data.socket.close()
    return taken


def get(path: str, key: str = "") -> bytes:
    """Return an encoded request. key: an API key; empty for none."""
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{authorization}\r\n".encode()


def post(path: str, body: bytes, **headers: str) -> bytes:
    """Return an encoded request; `_` in a header's name becomes `-`."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + END_OF_HEADERS + body


def _is_complete(head: bytes, body: bytes) -> bool:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line[15:])
        if line == b"transfer-encoding: chunked":
            return body.endswith(b"0" + END_OF_HEADERS)
    return True

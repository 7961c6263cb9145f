"""A client that is not the bottleneck: a few kept connections, each asking again as soon as it has its answer.

Sockets and no library, as an HTTP client of Python takes about as long for a request as the server does.
"""

import selectors
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

END_OF_HEADERS = b"\r\n\r\n"
READ_BYTES = 256 * 1024


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """One kept connection. ask() sends a request, take() reads until its answer is whole."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""

    def ask(self, request: bytes) -> None:
        self._read = b""
        self.socket.sendall(request)

    def take(self) -> bytes | None:
        """Return the whole answer as it came in, None while there is more to come. Raises ConnectionError."""
        more = self.socket.recv(READ_BYTES)
        if not more:
            raise ConnectionError("the server closed the connection")
        self._read += more
        head, end, body = self._read.partition(END_OF_HEADERS)
        return self._read if end and _is_whole(head, body) else None


def once(port: int, request: bytes) -> Answer:
    """Ask on a connection of its own."""
    connection = Connection(port)
    connection.ask(request)
    while (read := connection.take()) is None:
        pass
    connection.socket.close()
    head, _, body = read.partition(END_OF_HEADERS)
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    return Answer(int(first.split(" ")[1]), headers, body)


def ask_all(port: int, requests: Sequence[bytes], count: int, status: int, connections: int) -> int:
    """Ask so many times, the requests in turn, and return the number. Raises RuntimeError for another status."""
    expected = b"HTTP/1.1 %d " % status
    turn = cycle(requests)
    with selectors.DefaultSelector() as selector:
        for _ in range(min(connections, count)):
            connection = Connection(port)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.ask(next(turn))
        asked, answered = min(connections, count), 0
        while answered < count:
            for key, _ in selector.select():
                answer = key.data.take()
                if answer is None:
                    continue
                if not answer.startswith(expected):
                    raise RuntimeError(f"expected status {status}, got {answer[:200]!r}")
                answered += 1
                if asked < count:
                    key.data.ask(next(turn))
                    asked += 1
        for key in list(selector.get_map().values()):
            key.data.socket.close()
    return answered


def post(path: str, body: bytes, **headers: str) -> bytes:
    """Return a request as it goes over the wire; `_` in a header's name stands for `-`."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + END_OF_HEADERS + body


def _is_whole(head: bytes, body: bytes) -> bool:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line[15:])
        if line == b"transfer-encoding: chunked":
            return body.endswith(b"0" + END_OF_HEADERS)
    return True

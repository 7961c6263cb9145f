"""A receiver of webhooks on loopback: a real HTTP server that keeps what it gets and answers what the test says."""

import json
import ssl
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: str

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> str:
        return json.loads(self.body)["type"]

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.body)["data"]

    def verified(self, secret: str) -> Any:
        """Return the document. Raises WebhookVerificationError."""
        return Webhook(secret).verify(self.body, self.headers)


@dataclass
class Receiver:
    """answers: the next statuses; 200 after them. headers: of each answer. hold: answers nothing until it is set."""

    port: int = 0
    answers: deque[int] = field(default_factory=deque)
    headers: dict[str, str] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?a=1"

    @property
    def events(self) -> list[str]:
        return [each.event for each in self.received]


@contextmanager
def receiver(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    found = Receiver()
    found.hold.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.received.append(Received(self.path, headers, body))
            found.hold.wait()
            self.send_response(found.answers.popleft() if found.answers else 200)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    found.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()

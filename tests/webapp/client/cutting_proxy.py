"""A relay on loopback that resets a connection amid an answer."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.webapp.client.listening import Listening

RESET = struct.pack("ii", 1, 0)  # closing such a socket sends a reset


class CuttingProxy(Listening):
    """Relays to a port. cut_after: bytes of answers, after which the connection is reset; None: never.

    times: how many connections are reset. cuts: how many have been.
    """

    def __init__(self, target: int, cut_after: int | None = None, times: int = 1) -> None:
        self.target = target
        self.cut_after = cut_after
        self.left = times
        self.cuts = 0
        super().__init__()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            server = socket.create_connection(("127.0.0.1", self.target))
            threading.Thread(target=self._relay, args=(client, server, False), daemon=True).start()
            self._relay(server, client, True)

    def _relay(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        sent = 0
        with suppress(OSError):
            while content := source.recv(4_096):
                if is_answer and self.left and self.cut_after is not None and sent + len(content) > self.cut_after:
                    target.sendall(content[: self.cut_after - sent])
                    self.left, self.cuts = self.left - 1, self.cuts + 1
                    target.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    break
                target.sendall(content)
                sent += len(content)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def cutting_proxy(target: int, cut_after: int | None = None, times: int = 1) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(target, cut_after, times)
    try:
        yield proxy
    finally:
        proxy.close()

"""Proxy: a TCP relay on loopback whose connections can be cut or black-holed, and whose target can change.

Every process of the soak reaches PostgreSQL and Redis through one, so a failover is a change of the target.
"""

import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tidegauge.pipelines.embedded.data_dir import LOOPBACK

CHUNK_BYTES = 65_536
POLL_SECONDS = 0.05
# Closing such a socket sends a reset instead of an orderly end.
RESET = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class Pair:
    """The two sockets of one connection, and what was read of each and not sent to the other yet."""

    client: socket.socket
    server: socket.socket
    unsent: dict[socket.socket, bytes] = field(default_factory=dict)

    def other(self, one: socket.socket) -> socket.socket:
        return self.server if one is self.client else self.client

    def close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.close()


class Proxy:
    """Relays connections to `target`, a port on loopback; None refuses them. Runs in a thread until `close`."""

    def __init__(self, target: int | None) -> None:
        self.target = target
        self._listener = socket.create_server((LOOPBACK, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._pairs: set[Pair] = set()
        self._lock = threading.Lock()
        self._frozen: set[Pair] = set()
        self._freezes_all = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"proxy {self.port}", daemon=True)
        self._thread.start()

    def cut(self) -> int:
        """Reset all connections; return how many there were. New ones are relayed as before."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
            self._frozen.clear()
            for pair in pairs:
                pair.close()
        return len(pairs)

    @contextmanager
    def black_hole(self) -> Iterator[None]:
        """Hold back everything in both directions within the block, without an end; connections stay open."""
        with self._lock:
            self._freezes_all = True
        try:
            yield
        finally:
            with self._lock:
                self._freezes_all = False

    def freeze_present(self) -> None:
        """Black-hole the connections of now for good; new ones are relayed."""
        with self._lock:
            self._frozen |= self._pairs

    def close(self) -> None:
        self._closing = True
        self._thread.join()
        self._listener.close()
        self.cut()

    def _run(self) -> None:
        self._listener.setblocking(False)
        while not self._closing:
            with self._lock:
                pairs = set() if self._freezes_all else self._pairs - self._frozen
            with selectors.DefaultSelector() as selector:
                selector.register(self._listener, selectors.EVENT_READ)
                self._register(selector, pairs)
                ready = selector.select(POLL_SECONDS)
            for key, events in ready:
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._relay(key.data, key.fileobj, events)

    def _register(self, selector: selectors.BaseSelector, pairs: set[Pair]) -> None:
        for pair in pairs:
            for end in (pair.client, pair.server):
                # Nothing more is read of an end as long as the other has not taken what came before.
                reads = 0 if pair.unsent.get(pair.other(end)) else selectors.EVENT_READ
                writes = selectors.EVENT_WRITE if pair.unsent.get(end) else 0
                if reads | writes:
                    with suppress(ValueError, OSError, KeyError):  # cut a moment ago
                        selector.register(end, reads | writes, pair)

    def _accept(self) -> None:
        with suppress(OSError):
            client, _ = self._listener.accept()
            try:
                if self.target is None:
                    raise ConnectionRefusedError
                server = socket.create_connection((LOOPBACK, self.target), timeout=5)
            except OSError:
                client.close()
                return
            for end in (client, server):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.add(Pair(client, server))

    def _relay(self, pair: Pair, end: socket.socket, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                pair.unsent[end] = pair.unsent[end][end.send(pair.unsent[end]) :]
            if events & selectors.EVENT_READ:
                read = end.recv(CHUNK_BYTES)
                if not read:
                    raise ConnectionAbortedError
                other = pair.other(end)
                with suppress(BlockingIOError):
                    read = read[other.send(read) :]
                pair.unsent[other] = read
        except BlockingIOError:
            return
        except OSError:
            with self._lock:
                self._pairs.discard(pair)
                self._frozen.discard(pair)
                pair.close()

"""What the servers of these tests have in common: a port of loopback, and a thread that accepts until it is closed."""

import socket
import threading
from contextlib import suppress


class Listening:
    """scheme: of `url`. `_serve` handles a client in a thread of its own."""

    def __init__(self, scheme: str = "http") -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # Wakes the thread that accepts.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        raise NotImplementedError

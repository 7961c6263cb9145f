"""A network between two processes of this machine: a relay that hands each byte on a fixed time after it arrived.

It stands in for `tc netem`, which needs root and a kernel module. It runs as a process of its own, because its
threads would compete with those that are measured.
"""

import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

READ_BYTES = 1 << 18


@contextmanager
def delayed(url: str, round_trip_ms: float) -> Iterator[str]:
    """Yield a URL of the same server whose answers come `round_trip_ms` later, half of it in each direction."""
    server = urlsplit(url)
    command = [sys.executable, "-m", "benchmarks.relay", server.hostname or "", str(server.port), str(round_trip_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            credentials, _, _ = server.netloc.rpartition("@")
            address = f"127.0.0.1:{int(process.stdout.readline())}"
            yield urlunsplit(server._replace(netloc=f"{credentials}@{address}" if credentials else address))
        finally:
            process.terminate()


def serve(host: str, port: int, round_trip_ms: float) -> None:
    """Relay connections until the process is terminated. Prints its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            client, _ = listener.accept()
            server = socket.create_connection((host, port))
            for one, other in ((client, server), (server, client)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _in_threads(one, other, round_trip_ms / 2000)


def _in_threads(source: socket.socket, target: socket.socket, seconds: float) -> None:
    under_way: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def read() -> None:
        data = b"-"
        while data:
            with suppress(OSError):
                data = source.recv(READ_BYTES)
            under_way.put((time.perf_counter() + seconds, data))

    def write() -> None:
        with suppress(OSError):
            while True:
                due, data = under_way.get()
                time.sleep(max(due - time.perf_counter(), 0))
                if not data:
                    return target.shutdown(socket.SHUT_WR)
                target.sendall(data)

    for work in (read, write):
        threading.Thread(target=work, daemon=True).start()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))

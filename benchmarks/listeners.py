"""The push under its crowd: what a thousand idle listeners cost, and how long a commit takes to reach them all.

A real events process over an empty database; its listeners are sockets in this process, which read nothing until a
batch is committed. Resident memory is the worker's, which holds the clients; the server's own parent adds little.
"""

import os
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import psutil

from benchmarks.cases import Case
from benchmarks.servers import database
from pipelines.embedded.data_dir import LOOPBACK, REPOSITORY, free_port
from state_backends import BatchLedger, Catalog, Count, StateSpec
from webapp.states.management.child_process import Child

LISTENERS = 1_000
BATCHES = 20
WITHIN_SECONDS = 60.0

VIEWS = StateSpec("bench_views", key={"page": "text"}, measures={"views": Count()}, changelog=True)


def run() -> Iterator[Case]:
    with database() as conn, tempfile.TemporaryDirectory() as home:
        catalog = Catalog(conn)
        catalog.register_pipeline("bench_views", spout="opaque")
        ledger = BatchLedger(conn, "bench_views")
        ledger.acquire()
        catalog.register_states("bench_views", [VIEWS], {VIEWS.name: "exactly once"})
        ledger.bind("checkpoint")
        ledger.commit(ledger.begin(0))
        with _events_process(conn.info.dsn, conn.info.password, Path(home)) as (port, key, process):
            yield from _measured(port, key, process, lambda batch_id: ledger.commit(ledger.begin(batch_id)))


def _measured(port: int, key: str, process: Child, commit) -> Iterator[Case]:
    worker = _worker(process)
    empty = worker.memory_info().rss / 1e6
    with ExitStack() as stack:
        crowd = [stack.enter_context(_listener(port, key)) for _ in range(LISTENERS)]
        _until_all_have(crowd, b"event: ready")
        time.sleep(2.0)
        idle = worker.memory_info().rss / 1e6
        yield Case("events_process_empty", empty, "MB")
        yield Case(f"events_process_{LISTENERS}_idle_listeners", idle, "MB")
        yield Case("events_parent_process", psutil.Process(process.pid).memory_info().rss / 1e6, "MB")
        seconds = []
        for batch_id in range(1, BATCHES + 1):
            started = time.perf_counter()
            commit(batch_id)
            _until_all_have(crowd, b"id: %d\n" % (batch_id + 1))
            seconds.append(time.perf_counter() - started)
        yield Case(f"commit_to_the_last_of_{LISTENERS}_listeners", 1_000 * sorted(seconds)[len(seconds) // 2], "ms")
        yield Case("events_process_after_batches", worker.memory_info().rss / 1e6, "MB")


@contextmanager
def _events_process(dsn: str, password: str, home: Path) -> Iterator[tuple[int, str, Child]]:
    environ = {"DATABASE_URL": f"{dsn} password={password}" if password else dsn, "TIDEMARK_HOME": str(home)}
    port = free_port()
    serve = [sys.executable, "-m", "granian", "--interface", "asgi", "--host", LOOPBACK, "--port", str(port)]
    with patch.dict(os.environ, environ | {"PYTHONPATH": str(REPOSITORY)}):
        manage = [sys.executable, str(REPOSITORY / "manage.py")]
        subprocess.run([*manage, "migrate", "--verbosity", "0"], check=True)
        made = subprocess.run([*manage, "create_api_key", "benchmark"], check=True, capture_output=True, text=True)
        room = ["--http", "1", "--no-ws", "--backlog", "2048", "--backpressure", "8192"]
        process = Child("events", [*serve, *room, "webapp.asgi:application"], home / "events.log")
    try:
        _wait_for(port, process)
        yield port, made.stdout.strip(), process
    finally:
        process.stop()


def _wait_for(port: int, process: Child) -> None:
    deadline = time.monotonic() + WITHIN_SECONDS
    while time.monotonic() < deadline and process.exit_code() is None:
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the events process does not answer; the end of {process.log}:\n{process.last_words()}")


def _worker(process: Child) -> psutil.Process:
    return max(psutil.Process(process.pid).children(), key=lambda child: child.memory_info().rss)


@contextmanager
def _listener(port: int, key: str) -> Iterator[socket.socket]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with socket.create_connection((LOOPBACK, port), timeout=WITHIN_SECONDS) as client:
        client.sendall(
            f"GET /events/states/{VIEWS.name} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\n"
            f"Authorization: Bearer {key}\r\n\r\n".encode()
        )
        client.setblocking(False)
        yield client


def _until_all_have(crowd: list[socket.socket], wanted: bytes) -> None:
    """Read until each has been sent `wanted`. Raises RuntimeError where one is not in time."""
    deadline = time.monotonic() + WITHIN_SECONDS
    seen = dict.fromkeys(crowd, b"")
    with selectors.DefaultSelector() as selector:
        for client in crowd:
            selector.register(client, selectors.EVENT_READ)
        while seen:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise RuntimeError(f"{len(seen)} of {len(crowd)} listeners have not been told {wanted!r}")
            for selected, _ in ready:
                client = selected.fileobj
                seen[client] += client.recv(1 << 16)
                if wanted in seen[client]:
                    selector.unregister(client)
                    del seen[client]

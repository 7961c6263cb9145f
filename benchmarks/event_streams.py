"""events: what a thousand idle clients of event streams cost, and how long a commit takes to reach them all.

It uses a real events process on an empty database. The clients are sockets in this process, which read nothing until a
batch is committed. The memory is the resident memory of the worker, which holds the clients; the server's parent
process adds little. Each round has a new process, database and clients, and its time from commit to the last client is
the median of 20 commits.
"""

import os
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import cast
from unittest.mock import patch

import psutil

from benchmarks.cases import Case, median_case
from benchmarks.servers import database
from tidegauge.pipelines.embedded.data_dir import LOOPBACK, REPOSITORY, free_port
from tidegauge.state_backends import BatchLedger, Catalog, Count, StateSpec
from tidegauge.webapp.commands.management.child_process import Child
from tidegauge.webapp.serving import process_commands

SEEDS = "none: nothing is chosen at random"

LISTENERS = 1_000
ROUNDS = 5
BATCHES = 20
WITHIN_SECONDS = 60.0

Figure = tuple[str, float, str]  # name, value, unit
VIEWS = StateSpec("bench_views", key={"page": "text"}, measures={"views": Count()}, changelog=True)


def run(listeners: int = LISTENERS, rounds: int = ROUNDS) -> Iterator[Case]:
    measured: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for name, value, unit in _round(listeners):
            measured.setdefault((name, unit), []).append(value)
    for (name, unit), values in measured.items():
        yield median_case(name, values, unit)


def _round(listeners: int) -> Iterator[Figure]:
    with database() as conn, tempfile.TemporaryDirectory() as folder:
        catalog = Catalog(conn)
        catalog.register_pipeline("bench_views", spout="opaque")
        ledger = BatchLedger(conn, "bench_views")
        ledger.acquire()
        catalog.register_states("bench_views", [VIEWS], {VIEWS.name: "exactly once"})
        ledger.bind("checkpoint")
        _commit(ledger, 0)
        with _events_process(conn.info.dsn, conn.info.password, Path(folder)) as (port, key, process):
            yield from _measured(port, key, process, listeners, partial(_commit, ledger))


def _commit(ledger: BatchLedger, batch_id: int) -> None:
    batch = ledger.begin(batch_id)
    assert batch is not None
    ledger.commit(batch)


def _measured(port: int, key: str, process: Child, listeners: int, commit: Callable[[int], None]) -> Iterator[Figure]:
    worker = _worker(process)
    empty = worker.memory_info().rss / 1e6
    with ExitStack() as stack:
        clients = [stack.enter_context(_client(port, key)) for _ in range(listeners)]
        _until_all_have(clients, b"event: ready")
        time.sleep(2.0)
        idle = worker.memory_info().rss / 1e6
        yield "events_process_empty", empty, "MB"
        yield f"events_process_{listeners}_idle_listeners", idle, "MB"
        yield "events_parent_process", psutil.Process(process.pid).memory_info().rss / 1e6, "MB"
        seconds = []
        for batch_id in range(1, BATCHES + 1):
            started = time.perf_counter()
            commit(batch_id)
            _until_all_have(clients, b"id: %d-" % (batch_id + 1))
            seconds.append(time.perf_counter() - started)
        yield f"commit_to_the_last_of_{listeners}_listeners", 1_000 * statistics.median(seconds), "ms"
        yield "events_process_after_batches", worker.memory_info().rss / 1e6, "MB"


@contextmanager
def _events_process(dsn: str, password: str, folder: Path) -> Iterator[tuple[int, str, Child]]:
    environ = {"DATABASE_URL": f"{dsn} password={password}" if password else dsn, "TIDEGAUGE_HOME": str(folder)}
    environ["TIDEGAUGE_EVENTS_MAX_CLIENTS_EACH"] = "4000"
    port = free_port()
    command = process_commands.events(port)
    with patch.dict(os.environ, environ | {"PYTHONPATH": str(REPOSITORY)}):
        manage = [sys.executable, str(REPOSITORY / "manage.py")]
        subprocess.run([*manage, "migrate", "--verbosity", "0"], check=True)
        key = subprocess.run([*manage, "create_api_key", "benchmark"], check=True, capture_output=True, text=True)
        process = Child("events", command, folder / "events.log")
    try:
        _wait_for(port, process)
        yield port, key.stdout.strip(), process
    finally:
        process.stop()


def _wait_for(port: int, process: Child) -> None:
    deadline = time.monotonic() + WITHIN_SECONDS
    while time.monotonic() < deadline and process.exit_code() is None:
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the events process does not answer; the end of {process.log}:\n{process.last_lines()}")


def _worker(process: Child) -> psutil.Process:
    return max(psutil.Process(process.pid).children(), key=lambda child: child.memory_info().rss)


@contextmanager
def _client(port: int, key: str) -> Iterator[socket.socket]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with socket.create_connection((LOOPBACK, port), timeout=WITHIN_SECONDS) as client:
        client.sendall(
            f"GET /events/states/{VIEWS.name} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\n"
            f"Authorization: Bearer {key}\r\n\r\n".encode()
        )
        client.setblocking(False)
        yield client


def _until_all_have(clients: list[socket.socket], wanted: bytes) -> None:
    """Read until each client has received `wanted`. Raises RuntimeError after WITHIN_SECONDS."""
    deadline = time.monotonic() + WITHIN_SECONDS
    seen = dict.fromkeys(clients, b"")
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
        while seen:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise RuntimeError(f"{len(seen)} of {len(clients)} clients have not received {wanted!r}")
            for selected, _ in ready:
                client = cast(socket.socket, selected.fileobj)
                seen[client] += client.recv(1 << 16)
                if wanted in seen[client]:
                    selector.unregister(client)
                    del seen[client]

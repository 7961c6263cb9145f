"""memory: the memory of each process, at rest and under load.

A web server with one worker, an events server, a Celery worker with its schedule, and the flights driver run as in the
Procfile, on an empty database. At rest: after some batches and requests, while no input arrives. Under load: a file of
flights arrives every half second, two clients look up keys, and compactions are requested. A figure is the proportional
set size (PSS) of the largest process of its kind, in MB of 1,000,000 bytes: a page that several processes share counts
for each of them in equal parts. `private` is the memory that is not shared (USS); the rest of a PostgreSQL backend is
mostly shared buffers. Each figure is the median of samples a second apart. Java's heap grows up to its limit, 1 GB by
default, so it is larger in a longer run.
"""

import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import psutil
import psycopg

from benchmarks.cases import Case, median_case
from benchmarks.http_client import post, request_all, request_once
from benchmarks.input_files import flight
from benchmarks.live import Live, live_flights
from benchmarks.servers import database, database_url, redis_client
from tidegauge.pipelines.embedded.data_dir import REPOSITORY, free_port
from tidegauge.webapp.commands.management.child_process import Child
from tidegauge.webapp.serving import process_commands

SEEDS = "the flights of file n: n, from 0"

EVENTS = 10_000  # of a file and batch
WARM_UP = 3  # files
SAMPLES = 9  # a second apart
LOADED_SECONDS = 15.0  # before the first sample under load
PAUSE_SECONDS = 0.5  # between two files
WITHIN_SECONDS = 120.0
KEY = ["ATL", "AA"]


class Memory(NamedTuple):
    """The memory of one process, in bytes. private: the part that no other process shares."""

    proportional: int
    private: int


Figures = dict[str, Memory]


def run(events: int = EVENTS, rounds: int = SAMPLES) -> Iterator[Case]:
    """Yield the cases. events: per file and batch. rounds: the number of samples."""
    with database() as conn, redis_client(), tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as folder:
        url, root = database_url(conn), Path(folder)
        with live_flights(url, root) as live, _other_processes(url, root) as others:
            children = [live.web, live.pipeline, *others]
            files = Files(live.folder, events)
            for number in range(1, WARM_UP + 1):
                files.add()
                _wait_for(conn, live, number * events)
            _look_up(live, 50)
            _compact(live)
            time.sleep(5.0)
            yield from _sampled("at_rest", conn, children, rounds)
            with (
                _repeated(files.add, PAUSE_SECONDS),
                _repeated(lambda: _look_up(live, 100), 0.0),
                _repeated(lambda: _compact(live), 2.0),
            ):
                time.sleep(LOADED_SECONDS)
                yield from _sampled("under_load", conn, children, rounds)
            live.check()


class Files:
    """The pipeline's input: numbered files of flights."""

    def __init__(self, folder: Path, events: int) -> None:
        self._folder, self._events, self._next = folder, events, 0

    def add(self) -> None:
        chance = random.Random(self._next)
        written = self._folder.parent / f"{self._next:06}.jsonl"
        written.write_text("".join(json.dumps(flight(chance)) + "\n" for _ in range(self._events)))
        written.replace(self._folder / written.name)
        self._next += 1


@contextmanager
def _other_processes(url: str, root: Path) -> Iterator[list[Child]]:
    """Run an events server and a Celery worker beside the web server and the driver."""
    worker = process_commands.worker(concurrency=2, schedule=True, name="benchmark@%h")
    environ = {"DATABASE_URL": url, "TIDEGAUGE_HOME": str(root), "PYTHONPATH": str(REPOSITORY)}
    with patch.dict(os.environ, environ), ExitStack() as stack:
        children = [
            Child("events", process_commands.events(free_port()), root / "events.log"),
            Child("worker", worker, root / "worker.log"),
        ]
        for child in children:
            stack.callback(child.stop)
        yield children


def _sampled(when: str, conn: psycopg.Connection, children: list[Child], samples: int) -> Iterator[Case]:
    taken: dict[str, list[Memory]] = {}
    for _ in range(samples):
        for kind, memory in _measured(conn, children).items():
            taken.setdefault(kind, []).append(memory)
        time.sleep(1.0)
    for kind, memories in taken.items():
        yield median_case(f"{kind}_{when}", [each.proportional / 1e6 for each in memories], "MB")
        yield median_case(f"{kind}_{when}_private", [each.private / 1e6 for each in memories], "MB")


def _measured(conn: psycopg.Connection, children: list[Child]) -> Figures:
    figures: Figures = {}
    for child in children:
        parent = psutil.Process(child.pid)
        for process in [parent, *parent.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                _keep_largest(figures, _kind(child.name, parent, process), process)
    for pid, name in conn.execute(BACKENDS).fetchall():
        with suppress(psutil.NoSuchProcess):
            _keep_largest(figures, f"postgres_of_{name}", psutil.Process(pid))
    return figures


# The connections of this database, by what opened them. A task's name has state and txid after the pipeline's name.
BACKENDS = """
    SELECT pid, CASE WHEN application_name ~ '^tidegauge flights \\w+ \\d+$' THEN 'task'
                     WHEN application_name LIKE 'tidegauge flights%' THEN 'driver' ELSE 'web_and_worker' END
    FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND backend_type = 'client backend'
"""


def _keep_largest(figures: Figures, kind: str, process: psutil.Process) -> None:
    memory = process.memory_full_info()
    figures[kind] = max(figures.get(kind, Memory(0, 0)), Memory(memory.pss, memory.uss))


def _kind(child: str, parent: psutil.Process, process: psutil.Process) -> str:
    """Return the kind of a process; a driver's are Python, Java, and the Python workers of Spark."""
    if process == parent:
        return f"{child}_python" if child == "pipeline" else f"{child}_parent"
    if child != "pipeline":
        return f"{child}_child"
    return "pipeline_java" if process.name() == "java" else "pipeline_python_worker"


def _wait_for(conn: psycopg.Connection, live: Live, events: int) -> None:
    deadline = time.monotonic() + WITHIN_SECONDS
    while time.monotonic() < deadline:
        live.check()
        row = conn.execute("SELECT sum(rows_in) FROM tidegauge.batch WHERE committed_at IS NOT NULL").fetchone()
        if row and (row[0] or 0) >= events:
            return
        time.sleep(0.2)
    raise TimeoutError(f"{events} events were not committed within {WITHIN_SECONDS} s")


def _look_up(live: Live, count: int) -> None:
    request = post(
        "/api/v1/states/flights_by_carrier/lookup",
        json.dumps({"keys": [KEY] * 100}).encode(),
        Authorization=f"Bearer {live.api_key}",
    )
    request_all(live.port, [request], count, 200, connections=2)


def _compact(live: Live) -> None:
    path = "/api/v1/states/flights_by_carrier/compaction"
    response = request_once(live.port, post(path, b"{}", Authorization=f"Bearer {live.api_key}"))
    if response.status not in (200, 201, 202, 409):
        raise RuntimeError(f"{path} answered {response.status}: {response.body[:200]!r}")


@contextmanager
def _repeated(do: Callable[[], None], pause: float) -> Iterator[None]:
    """Repeat something in a thread while the block runs. An error ends it, and is raised after the block."""
    done, errors = threading.Event(), list[BaseException]()

    def repeat() -> None:
        try:
            while not done.wait(pause):
                do()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    for error in errors:
        raise error

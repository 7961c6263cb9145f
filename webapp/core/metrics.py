"""What a serving process counts: requests, and of lookups the keys and where the time went.

An observation costs one to three microseconds, in memory that the processes of a service share (see sharing.py). Label
values are bounded: routes by urls.py, states by the catalog, for nothing is noted of a state before it has answered.
"""

import logging
import os
import shutil
import socket
import time
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

# When a counter began is in `up` already, and would be half of all that is scraped.
disable_created_metrics()

# Of all that serving processes count.
REGISTRY = CollectorRegistry()

LOOKUP_SECONDS = Histogram(
    "tidemark_lookup_seconds",
    "Time of answered lookups by phase: authenticate, parse, query, render",
    ["state", "phase"],
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1, 5),
    registry=REGISTRY,
)
LOOKUP_KEYS = Histogram(
    "tidemark_lookup_keys",
    "Keys per answered lookup",
    ["state"],
    buckets=(1, 10, 50, 100, 250, 500, 1000),
    registry=REGISTRY,
)
REQUESTS = Counter(
    "tidemark_http_requests",
    "Requests by the name of their route, or - where nothing answers to the address",
    ["route", "method", "status"],
    registry=REGISTRY,
)
REQUEST_SECONDS = Histogram(
    "tidemark_http_request_seconds",
    "Time from a request's arrival in this process to its answer, of a stream to its end",
    ["route"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30),
    registry=REGISTRY,
)
RATE_LIMITED = Counter(
    "tidemark_rate_limited_requests",
    "Requests refused because somebody asked too often",
    ["route"],
    registry=REGISTRY,
)
EXPORT_ROWS = Counter("tidemark_export_rows", "Rows sent by streamed answers", ["state"], registry=REGISTRY)

# In place of a state's name where one request asks several.
SEVERAL = "*"

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Watch:
    """The clock of one request, from its arrival. The middleware starts it as `request.watch` and reads it off."""

    __slots__ = ("_began", "_last", "_phases", "keys", "state")

    def __init__(self) -> None:
        self._began = self._last = time.perf_counter()
        self._phases: list[tuple[str, float]] = []
        self.state = ""
        self.keys = 0

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self._phases.append((phase, now - self._last))
        self._last = now

    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def note_lookup(self) -> None:
        """Count what was looked up; the rest of the time was the answer's rendering."""
        self.lap("render")
        for phase, seconds in self._phases:
            _lookup_seconds(self.state, phase).observe(seconds)
        _lookup_keys(self.state).observe(self.keys)


def phase_ended(request: Any, phase: str) -> None:
    """Say that a lookup's phase (authenticate, parse, query) ends here; what follows belongs to the next one."""
    watch = getattr(request, "watch", None)
    if watch is not None:
        watch.lap(phase)


def looked_up(request: Any, state: str, keys: int) -> None:
    """Say that a state has answered so many keys, at the end of the phase `query`. May be called for several states."""
    watch = getattr(request, "watch", None)
    if watch is not None:
        watch.state = state if watch.state in ("", state) else SEVERAL
        watch.keys += keys


def exported(state: str, rows: int) -> None:
    """Say that so many rows of a state went out in a stream."""
    EXPORT_ROWS.labels(state).inc(rows)


def answered(route: str, method: str, status: int, seconds: float) -> None:
    """Say that a request has its answer."""
    _requests(route, method if method in METHODS else "other", status).inc()
    _request_seconds(route).observe(seconds)
    if status == 429:
        RATE_LIMITED.labels(route).inc()


# `labels` checks and converts its words anew each time, which takes as long as the observation.
@cache
def _lookup_seconds(state: str, phase: str) -> Histogram:
    return LOOKUP_SECONDS.labels(state, phase)


@cache
def _lookup_keys(state: str) -> Histogram:
    return LOOKUP_KEYS.labels(state)


@cache
def _requests(route: str, method: str, status: int) -> Counter:
    return REQUESTS.labels(route, method, status)


@cache
def _request_seconds(route: str) -> Histogram:
    return REQUEST_SECONDS.labels(route)


# One folder of counters for all processes of a service, so that whichever is scraped answers for all of them.
#
# prometheus_client keeps a process's figures in a file of PROMETHEUS_MULTIPROC_DIR, and looks for that name once,
# when it is imported. So `share` comes first in wsgi.py and asgi.py. A folder belongs to one start of a service,
# known by the process that started the workers: a new start counts from zero, and a worker that dies takes nothing
# back.


logger = logging.getLogger(__name__)

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def share(service: str, data_dir: Path) -> None:
    """Count together with the siblings of this process. A folder that the environment names is taken as it is.

    Where none can be made, each process counts for itself.
    """
    if VARIABLE in os.environ:
        return
    try:
        os.environ[VARIABLE] = str(_folder(data_dir / "metrics" / service))
    except (OSError, psutil.Error) as error:
        logger.warning("each process counts for itself: %s", error)


def forget_the_dead() -> None:
    """Drop what only living processes have, such as open connections, of those that are gone."""
    for path in Path(os.environ[VARIABLE]).glob("gauge_live*.db"):
        if not psutil.pid_exists(int(path.stem.rpartition("_")[2])):
            path.unlink(missing_ok=True)


def _folder(service: Path) -> Path:
    # Several hosts may share a data folder, and know nothing of each other's processes.
    here = service / socket.gethostname()
    folder = here / _mark(os.getppid())
    folder.mkdir(parents=True, exist_ok=True)
    for other in here.glob("[0-9]*-*"):
        if other.name != _mark(int(other.name.partition("-")[0])):
            shutil.rmtree(other, ignore_errors=True)
    return folder


def _mark(pid: int) -> str:
    """Return a process's number and the time of its start, for numbers come again; empty where there is none."""
    try:
        return f"{pid}-{psutil.Process(pid).create_time():.2f}"
    except psutil.NoSuchProcess:
        return ""


# The figures of a service in Prometheus's text format, those of its sibling processes included.


def render(*more: Collector) -> tuple[bytes, str]:
    """Return what this service has counted, and what `more` collects, with its content type."""
    registry = CollectorRegistry()
    if VARIABLE in os.environ:
        forget_the_dead()
        MultiProcessCollector(registry)
    else:
        registry.register(REGISTRY)
    for collector in more:
        registry.register(collector)
    return generate_latest(registry), CONTENT_TYPE_LATEST

"""Counts requests, lookups and exported rows of a web process, and renders them in Prometheus's text format.

An observation takes one to three microseconds, in memory that the processes of a service share (see multiprocess.py).
Label values are bounded: routes by urls.py, states by the catalog, because a state is counted only once it answered.
"""

import os
import time
from functools import cache
from typing import Any

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

from tidegauge.webapp.core import multiprocess

# The `_created` series would double the size of a scrape, and `up` already shows a restart.
disable_created_metrics()

REGISTRY = CollectorRegistry()

LOOKUP_SECONDS = Histogram(
    "tidegauge_lookup_seconds",
    "Time of answered lookups by phase: authenticate, parse, query, render",
    ["state", "phase"],
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1, 5),
    registry=REGISTRY,
)
LOOKUP_KEYS = Histogram(
    "tidegauge_lookup_keys",
    "Keys per answered lookup",
    ["state"],
    buckets=(1, 10, 50, 100, 250, 500, 1000),
    registry=REGISTRY,
)
REQUESTS = Counter(
    "tidegauge_http_requests",
    "Requests by the name of their route, or - if no route matches",
    ["route", "method", "status"],
    registry=REGISTRY,
)
REQUEST_SECONDS = Histogram(
    "tidegauge_http_request_seconds",
    "Time from a request's arrival in this process to its answer, or to the end of a stream",
    ["route"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30),
    registry=REGISTRY,
)
RATE_LIMITED = Counter(
    "tidegauge_rate_limited_requests",
    "Requests refused by a rate limit",
    ["route"],
    registry=REGISTRY,
)
REPLICA_READS = Counter("tidegauge_replica_reads", "Requests that a replica answered", ["replica"], registry=REGISTRY)
EXPORT_ROWS = Counter("tidegauge_export_rows", "Rows sent by streamed answers", ["state"], registry=REGISTRY)

# The label `state` of a lookup in several states.
SEVERAL = "*"

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Watch:
    """Measures one request from its arrival. The middleware sets it as `request.watch` and reads it at the end."""

    __slots__ = ("_began", "_last", "_phases", "keys", "keys_of", "state")

    def __init__(self) -> None:
        self._began = self._last = time.perf_counter()
        self._phases: list[tuple[str, float]] = []
        self.state = ""
        self.keys = 0
        self.keys_of: dict[str, int] = {}

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self._phases.append((phase, now - self._last))
        self._last = now

    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def count_lookup(self) -> None:
        """Count a lookup; the time since the last phase counts as rendering."""
        self.lap("render")
        for phase, seconds in self._phases:
            _lookup_seconds(self.state, phase).observe(seconds)
        _lookup_keys(self.state).observe(self.keys)


def phase_ended(request: Any, phase: str) -> None:
    """End a phase of a lookup (authenticate, parse, query); the time from here on belongs to the next one."""
    watch = getattr(request, "watch", None)
    if watch is not None:
        watch.lap(phase)


def looked_up(request: Any, state: str, keys: int) -> None:
    """Add the keys that a state has answered. Called after the phase `query`, once for each state of the request."""
    watch = getattr(request, "watch", None)
    if watch is not None:
        watch.state = state if watch.state in ("", state) else SEVERAL
        watch.keys += keys
        watch.keys_of[state] = watch.keys_of.get(state, 0) + keys


def exported(state: str, rows: int) -> None:
    """Count rows of a state that were sent in a stream."""
    EXPORT_ROWS.labels(state).inc(rows)


def replica_read(name: str) -> None:
    """Count a request that a replica answered."""
    _replica_reads(name).inc()


def count_request(route: str, method: str, status: int, seconds: float) -> None:
    _requests(route, method if method in METHODS else "other", status).inc()
    _request_seconds(route).observe(seconds)
    if status == 429:
        RATE_LIMITED.labels(route).inc()


# `labels` checks and converts its arguments on each call, which takes as long as the observation.
@cache
def _lookup_seconds(state: str, phase: str) -> Histogram:
    return LOOKUP_SECONDS.labels(state, phase)


@cache
def _lookup_keys(state: str) -> Histogram:
    return LOOKUP_KEYS.labels(state)


@cache
def _replica_reads(name: str) -> Counter:
    return REPLICA_READS.labels(name)


@cache
def _requests(route: str, method: str, status: int) -> Counter:
    return REQUESTS.labels(route, method, status)


@cache
def _request_seconds(route: str) -> Histogram:
    return REQUEST_SECONDS.labels(route)


def render(*more: Collector) -> tuple[bytes, str]:
    """Return the metrics of this service and of the collectors `more`, as text with its content type."""
    registry = CollectorRegistry()
    if multiprocess.VARIABLE in os.environ:
        multiprocess.remove_ended_processes()
        MultiProcessCollector(registry)
    else:
        registry.register(REGISTRY)
    for collector in more:
        registry.register(collector)
    return generate_latest(registry), CONTENT_TYPE_LATEST

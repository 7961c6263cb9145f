"""Limits how many exports, waits and searches run at once in one process, per client and in total.

A rate limit counts how often a client asks; this one limits what its requests hold: snapshots, connections, memory.
With TIDEGAUGE_SHARED_LIMITS the limit per client applies to all processes together (see leases.py), which costs exports
and searches two calls of Redis. A wait holds no thread or connection, so waits are limited only per process.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.conf import settings
from rest_framework.exceptions import APIException, Throttled

from tidegauge.webapp.accounts import leases
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.throttling import client_network

RETRY_SECONDS = 1


class TooManyAtOnceError(Throttled):
    """One client has reached its limit of running work."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(detail=f"you have {limit} {what} running, which is your limit; wait until one of them ends")
        self.wait = RETRY_SECONDS


class BusyError(APIException):
    """All clients together have reached the limit of running work. wait: seconds, for Retry-After."""

    status_code = 503
    wait = RETRY_SECONDS

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"this process has {limit} {what} running, which is its limit; try again shortly")


class Concurrency:
    """Counts one kind of work. what: its name in the plural; its settings are TIDEGAUGE_<WHAT> and .._EACH.

    may_share: whether it may also be counted in Redis. That blocks the calling thread for a moment.
    """

    def __init__(self, what: str, *, may_share: bool = False) -> None:
        self._what = what
        self._may_share = may_share
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def held(self, client: str) -> Iterator[None]:
        """Count one for the client until the block ends. Raises TooManyAtOnceError, BusyError."""
        self._take(client)
        try:
            with self._shared(client):
                yield
        finally:
            with self._lock:
                self._held[client] -= 1
                if not self._held[client]:
                    del self._held[client]

    @contextmanager
    def _shared(self, client: str) -> Iterator[None]:
        if not (self._may_share and settings.TIDEGAUGE_SHARED_LIMITS):
            yield
            return
        each = getattr(settings, f"TIDEGAUGE_{self._what.upper()}_EACH")
        with ExitStack() as lease:
            try:
                lease.enter_context(leases.held(self._what, client, each))
            except leases.FullError:
                raise TooManyAtOnceError(self._what, each) from None
            yield

    def _take(self, client: str) -> None:
        setting = f"TIDEGAUGE_{self._what.upper()}"
        most, each = getattr(settings, setting), getattr(settings, f"{setting}_EACH")
        with self._lock:
            if self._held[client] >= each:
                raise TooManyAtOnceError(self._what, each)
            if self._held.total() >= most:
                raise BusyError(self._what, most)
            self._held[client] += 1


EXPORTS, SEARCHES = Concurrency("exports", may_share=True), Concurrency("searches", may_share=True)
WAITS = Concurrency("waits")


def client_of(request: Any) -> str:
    """Return the client that a request is counted for: its API key, else its user, else its address."""
    key, user = getattr(request, "auth", None), getattr(request, "user", None)
    if isinstance(key, ApiKey):
        return f"key {key.pk}"
    if user is not None and user.is_authenticated:
        return f"user {user.pk}"
    return f"address {client_network(request)}"

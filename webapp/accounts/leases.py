"""Leases in Redis: how much a client has under way in all processes together.

A lease ends when its work does, or LEASE_SECONDS after its process died: a thread renews those of a living one. If
Redis is unavailable, nothing is refused here, and the limits of each process hold alone.
"""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tidegauge.webapp.accounts.rate_limits import run

LEASE_SECONDS = 6
RENEW_SECONDS = 2.0

# A client's leases of one kind are a sorted set, by the time when each ends, by the clock of Redis.
NOW = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
"""
UNLESS_FULL = """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
"""
HOLD = """
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""
TAKE = NOW + UNLESS_FULL + HOLD
# Also of leases that Redis has lost.
RENEW = NOW + HOLD
END = "return redis.call('ZREM', KEYS[1], ARGV[1])"


class FullError(Exception):
    """The client has as many leases as it may."""


@contextmanager
def held(what: str, client: str, most: int) -> Iterator[None]:
    """Hold a lease for the client until the block ends. what: its kind. Raises FullError."""
    key, lease = f"tidegauge:held:{what}:{client}", secrets.token_hex(8)
    if run(TAKE, [key], [lease, LEASE_SECONDS * 1000, most]) == 0:
        raise FullError
    _renewals.add(key, lease)
    try:
        yield
    finally:
        _renewals.end(key, lease)


class _Renewals:
    """The leases of this process, and the thread that renews them, from the first one on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, str] = {}
        self._thread: threading.Thread | None = None

    def add(self, key: str, lease: str) -> None:
        with self._lock:
            self._keys[lease] = key
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
                self._thread.start()

    def end(self, key: str, lease: str) -> None:
        with self._lock:  # so that it is not renewed afterwards
            del self._keys[lease]
            run(END, [key], [lease])

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(RENEW_SECONDS):
            for lease in list(self._keys):
                self._renew(lease)

    def _renew(self, lease: str) -> None:
        with self._lock:
            if lease in self._keys:
                run(RENEW, [self._keys[lease]], [lease, LEASE_SECONDS * 1000])


_renewals = _Renewals()

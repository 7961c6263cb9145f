"""Leases in Redis: count how much work a client has running in all processes together.

A lease ends with its work. A thread renews the leases of its process, so that those of a process that died end after
LEASE_SECONDS. If Redis is unavailable, nothing is refused here, and only the limits of each process apply.
"""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tidegauge.webapp.accounts.rate_limits import run

LEASE_SECONDS = 6
RENEW_SECONDS = 2.0

# A client's leases of one kind are a sorted set. A lease's score is the time of its end, by the clock of Redis, because
# the clocks of processes may differ.
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
# Without UNLESS_FULL, so that leases that Redis has lost, such as in a restart, come back.
RENEW = NOW + HOLD
END = "return redis.call('ZREM', KEYS[1], ARGV[1])"


class FullError(Exception):
    """The client has reached its limit of leases."""


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
    """The leases of this process, and the thread that renews them, which starts with the first lease."""

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
        with self._lock:  # held for the call, so that the thread cannot renew the lease after its end
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

"""Rate limits, exact over all processes and threads: Redis counts, in one round trip.

`taking` and `taking_batched` are work in steps (see steps.py), so that a thread and the event loop count alike.

The algorithm is GCRA, a token bucket that is stored as one time: a bucket of `burst` requests that refills at `rate`
requests per minute. In any t seconds no more than burst + rate * t / 60 requests are allowed. If Redis is unavailable,
rate limiting fails open, because serving answers matters more than limiting them; the log reports it once a minute.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

import redis
import redis.asyncio
from django.conf import settings
from redis.asyncio.retry import Retry as RetryOnLoop
from redis.backoff import NoBackoff
from redis.retry import Retry

from tidegauge.state_backends import steps

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# The longest time that a request waits for Redis. After a failure, requests do not ask Redis for RETRY_SECONDS.
TIMEOUT_SECONDS = 0.25
TIMEOUTS: dict[str, Any] = {"socket_timeout": TIMEOUT_SECONDS, "socket_connect_timeout": TIMEOUT_SECONDS}
RETRY_SECONDS = 1.0
LOG_EVERY_SECONDS = 60.0

# Token batches: see take_batched.
BATCH_SECONDS = 0.02
MAX_BATCH = 64  # larger ones save nothing measurable
MAX_BUCKETS = 10_000

# The stored time is when the bucket will be full again, in microseconds by the clock of Redis. Lua prints numbers of
# that size in full only with an explicit format.
TAKE = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local interval, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local full_at = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local early = full_at + math.max(cost, 1) * interval - burst * interval - now
if early > 0 then
  return {0, 0, early, full_at - now}
end
full_at = full_at + cost * interval
if cost > 0 then
  redis.call('SET', KEYS[1], string.format('%.0f', full_at), 'PX', math.ceil((full_at - now) / 1000))
end
return {1, math.floor((burst * interval - full_at + now) / interval), 0, full_at - now}
"""


class Verdict(NamedTuple):
    """limit: the size of the bucket in requests. remaining: how many are left now.

    wait_seconds: until the next request is allowed; 0: now. reset_seconds: until the bucket is full. window_seconds: in
    which an empty bucket fills. All rounded up.
    """

    is_allowed: bool
    limit: int
    remaining: int
    wait_seconds: int
    reset_seconds: int
    window_seconds: int

    @property
    def headers(self) -> dict[str, str]:
        """As draft-ietf-httpapi-ratelimit-headers-10 has them: quota and window, then what remains and until when."""
        return {
            "RateLimit-Policy": f'"requests";q={self.limit};w={self.window_seconds}',
            "RateLimit": f'"requests";r={self.remaining};t={self.reset_seconds}',
        }


class Asked(NamedTuple):
    """A Lua script that Redis is to run."""

    script: str
    keys: Sequence[str]
    arguments: Sequence[str | int]


# The answer to a step is None if Redis is unavailable.
Taking = steps.Steps[Asked, Result]


def in_thread(taking: Taking[Result]) -> Result:
    return steps.run(taking, lambda asked: run(*asked))


async def on_loop(taking: Taking[Result]) -> Result:
    return await steps.run_on_loop(taking, lambda asked: _run_on_loop(*asked))


def take(name: str, rate: int, burst: int | None = None, *, cost: int = 1) -> Verdict | None:
    """Do in a thread what `taking` says."""
    return in_thread(taking(name, rate, burst, cost=cost))


def taking(name: str, rate: int, burst: int | None = None, *, cost: int = 1) -> Taking[Verdict | None]:
    """Take `cost` requests from the bucket `name`; a cost of 0 only checks whether one is left.

    rate: requests per minute, 0 for no limit. burst: the bucket's size in requests, None for one minute's requests.
    Returns None if there is no limit: no rate, or Redis is unavailable.
    """
    if rate == 0:
        return None
    size = burst or rate
    # Each rate has its own bucket, because a time that was stored at another rate would be wrong by their ratio.
    answer = yield Asked(TAKE, [f"tidegauge:rate:{name}:{rate}:{size}"], [_interval(rate), size, cost])
    if answer is None:
        return None
    is_allowed, remaining, wait, reset = answer
    window = _seconds(size * _interval(rate))
    return Verdict(bool(is_allowed), size, remaining, _seconds(wait), _seconds(reset), window)


def run(script: str, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
    """Return what a Lua script answers; None if Redis is unavailable."""
    if _outage.is_on():
        return None
    try:
        return _script(settings.REDIS_URL, script)(keys=keys, args=arguments)
    except (redis.RedisError, ValueError) as error:
        _outage.begin(error)
        return None


def is_available() -> bool:
    """Return whether Redis answers. During an outage it is asked only once in RETRY_SECONDS."""
    return run("return 1", [], []) is not None


async def _run_on_loop(script: str, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
    """Return what `run` does."""
    if _outage.is_on():
        return None
    try:
        found = _script_on_loop(asyncio.get_running_loop(), settings.REDIS_URL, script)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await found(keys=keys, args=arguments)
    except (redis.RedisError, ValueError, TimeoutError) as error:
        _outage.begin(error)
        return None


def reset() -> None:
    """Drop the connections to Redis, and the record of an outage."""
    for kept in (_script, _client, _script_on_loop, _client_on_loop):
        kept.cache_clear()
    _outage.end()


@cache
def _client(url: str) -> redis.Redis:
    """Return this process's connections."""
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **TIMEOUTS)


@cache
def _script(url: str, script: str) -> Any:
    return _client(url).register_script(script)


# A connection belongs to the loop that has opened it. A process has one loop.
@lru_cache(maxsize=1)
def _client_on_loop(loop: asyncio.AbstractEventLoop, url: str) -> redis.asyncio.Redis:
    # The caller limits the whole call, because redis-py makes a task for a limit of its own.
    unlimited: dict[str, Any] = dict.fromkeys(TIMEOUTS)
    return redis.asyncio.Redis.from_url(url, retry=RetryOnLoop(NoBackoff(), 0), **unlimited)


@lru_cache(maxsize=4)
def _script_on_loop(loop: asyncio.AbstractEventLoop, url: str, script: str) -> Any:
    return _client_on_loop(loop, url).register_script(script)


def _interval(rate: int) -> int:
    """Return the microseconds per request, rounded up so that the rate is never exceeded."""
    return math.ceil(60_000_000 / rate)


def _seconds(microseconds: int) -> int:
    return math.ceil(microseconds / 1_000_000)


class _Outage:
    """Whether Redis is unavailable, and when to ask it and to log that again (on the monotonic clock)."""

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        self._retry_at = self._log_at = 0.0

    def is_on(self) -> bool:
        return time.monotonic() < self._retry_at

    def begin(self, error: Exception) -> None:
        now = time.monotonic()
        self._retry_at = now + RETRY_SECONDS
        if now >= self._log_at:
            self._log_at = now + LOG_EVERY_SECONDS
            # Only the type, because the message about an invalid URL may quote its password, and a timeout has none.
            reason = error if isinstance(error, redis.RedisError) else type(error).__name__
            logger.warning("redis is unavailable, so requests are not rate limited: %s", reason)


_outage = _Outage()


@dataclass
class _TokenBatch:
    """latest: Redis's answer. until: its end, on the monotonic clock. left: `remaining` after each of its requests."""

    latest: Verdict
    until: float
    left: deque[int]


_batches: dict[tuple[str, int, int | None], _TokenBatch] = {}


def take_batched(name: str, rate: int, burst: int | None = None) -> Verdict | None:
    """Do in a thread what `taking_batched` says."""
    return in_thread(taking_batched(name, rate, burst))


def taking_batched(name: str, rate: int, burst: int | None = None) -> Taking[Verdict | None]:
    """Take one request as `taking` does, from the batch that this process holds, or else from the bucket.

    A busy client's requests are taken from Redis in token batches, so that most cost no round trip. A batch is what the
    bucket regains in 20 ms, and it is valid for 20 ms, so in any t seconds no more than
    burst + rate * (t + 0.02) / 60 requests are allowed, over all processes. Rates below 6,000 per minute, and buckets
    that are less than half full, are counted one by one.
    """
    size = min(MAX_BATCH, int(rate * BATCH_SECONDS / 60))
    if size < 2:
        return (yield from taking(name, rate, burst))
    batch = _batches.get((name, rate, burst))
    if batch is not None and batch.left and time.monotonic() < batch.until:
        try:
            return batch.latest._replace(remaining=batch.left.pop())
        except IndexError:
            pass  # another thread took the last one
    return (yield from _fetching(name, rate, burst, size if batch is not None and _has_plenty(batch.latest) else 1))


def _has_plenty(verdict: Verdict) -> bool:
    return verdict.is_allowed and verdict.remaining > max(verdict.limit / 2, MAX_BATCH)


def _fetching(name: str, rate: int, burst: int | None, cost: int) -> Taking[Verdict | None]:
    # Read the clock before asking Redis, so that the batch does not outlive its 20 ms.
    until = time.monotonic() + BATCH_SECONDS
    verdict = yield from taking(name, rate, burst, cost=cost)
    if verdict is not None and not verdict.is_allowed and cost > 1:
        verdict, cost = (yield from taking(name, rate, burst)), 1
    if verdict is None:
        return None
    if len(_batches) >= MAX_BUCKETS:
        _batches.clear()
    remaining = verdict.remaining + cost - 1
    _batches[name, rate, burst] = _TokenBatch(verdict, until, deque(range(verdict.remaining, remaining)))
    return verdict._replace(remaining=remaining) if cost > 1 else verdict

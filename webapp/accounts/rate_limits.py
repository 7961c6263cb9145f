"""How often somebody may ask: exact over all processes and threads, for Redis counts, in one round trip.

The arithmetic is GCRA, a token bucket that is stored as one time: a bucket of `burst` requests that fills up again at
`rate` requests a minute. In any t seconds no more than burst + rate * t / 60 come through. While Redis is away all of
them do, for answers matter more than their number; the log says so once a minute.
"""

import logging
import math
import time
from collections import deque
from dataclasses import dataclass, replace
from functools import cache

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

logger = logging.getLogger(__name__)

# A request waits for this long at most, and after a failure the next ones do not wait at all for a while.
TIMEOUT_SECONDS = 0.25
AWAY_SECONDS = 1.0
SAY_SO_EVERY_SECONDS = 60.0

# The stored time is when the bucket will be full again, in microseconds by the clock of Redis. Lua writes numbers of
# that size in full only if it is told to.
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


@dataclass(frozen=True)
class Verdict:
    """limit: how many may come at once; remaining: of those, now. wait_seconds: until the next may come; 0: at once.

    reset_seconds: until all of them may. Both are rounded up.
    """

    is_allowed: bool
    limit: int
    remaining: int
    wait_seconds: int
    reset_seconds: int

    @property
    def headers(self) -> dict[str, str]:
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset_seconds),
        }


def take(name: str, rate: int, burst: int | None = None, *, cost: int = 1) -> Verdict | None:
    """Take `cost` requests out of the bucket called `name`; a cost of 0 only looks whether there is one left.

    rate: requests a minute, 0 for no limit. burst: the bucket's size, None for a minute's worth.
    Returns None where nothing limits the request: no rate, or no Redis.
    """
    if rate == 0 or _outage.is_on():
        return None
    size = burst or rate
    try:
        # Another rate is another bucket: what is left of an old one would be wrong by their ratio.
        answer = _script(settings.REDIS_URL)(
            keys=[f"tidemark:rate:{name}:{rate}:{size}"], args=[_interval(rate), size, cost]
        )
    except (redis.RedisError, ValueError) as error:
        _outage.begin(error)
        return None
    is_allowed, remaining, wait, reset = answer
    return Verdict(bool(is_allowed), size, remaining, _seconds(wait), _seconds(reset))


def forget() -> None:
    """Forget the connections to Redis, and that it did not answer."""
    _script.cache_clear()
    _outage.end()


@cache
def _script(url: str):
    """Return TAKE, ready to be called over this process's connections."""
    client = redis.Redis.from_url(
        url,
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    return client.register_script(TAKE)


def _interval(rate: int) -> int:
    """Microseconds per request, rounded up: rather a little slower than promised than faster."""
    return math.ceil(60_000_000 / rate)


def _seconds(microseconds: int) -> int:
    return math.ceil(microseconds / 1_000_000)


class _Outage:
    """Redis is away: since when it need not be asked again, and when that was last logged."""

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        self._ask_again_at = self._say_again_at = 0.0

    def is_on(self) -> bool:
        return time.monotonic() < self._ask_again_at

    def begin(self, error: Exception) -> None:
        now = time.monotonic()
        self._ask_again_at = now + AWAY_SECONDS
        if now >= self._say_again_at:
            self._say_again_at = now + SAY_SO_EVERY_SECONDS
            # Its words alone: the cause of a bad URL may quote a piece of it, and so of the password.
            reason = type(error).__name__ if isinstance(error, ValueError) else error
            logger.warning("no rate limits while redis does not answer, all requests are let through: %s", reason)


_outage = _Outage()


# Handfuls: what a busy caller may ask is fetched from Redis several requests at a time, so that most cost nothing.
#
# A handful is what the bucket gains back in 20 ms, and is good for as long. So in any t seconds no more than burst +
# rate * (t + 0.02) / 60 come through, over however many processes; rates below 6,000 a minute, and buckets that are
# less than half full, are counted one by one.


HELD_SECONDS = 0.02
MOST = 64  # beyond that nothing is gained
MOST_BUCKETS = 10_000


@dataclass
class _TokenBatch:
    """last: what Redis said. until: on the monotonic clock. left: how many remain behind each request that is held."""

    last: Verdict
    until: float
    left: deque[int]


_held: dict[tuple[str, int, int | None], _TokenBatch] = {}


def take_batched(name: str, rate: int, burst: int | None = None) -> Verdict | None:
    """Take one request as limits.take does, from those that this process holds or from the bucket."""
    handful = min(MOST, int(rate * HELD_SECONDS / 60))
    if handful < 2:
        return take(name, rate, burst)
    held = _held.get((name, rate, burst))
    if held is not None and held.left and time.monotonic() < held.until:
        try:
            return replace(held.last, remaining=held.left.pop())
        except IndexError:
            pass  # another thread was faster
    return _fetch(name, rate, burst, handful if held is not None and _has_plenty(held.last) else 1)


def _has_plenty(verdict: Verdict) -> bool:
    return verdict.is_allowed and verdict.remaining > max(verdict.limit / 2, MOST)


def _fetch(name: str, rate: int, burst: int | None, cost: int) -> Verdict | None:
    # The clock first: what Redis gave is not older than we think.
    until = time.monotonic() + HELD_SECONDS
    verdict = take(name, rate, burst, cost=cost)
    if verdict is not None and not verdict.is_allowed and cost > 1:
        verdict, cost = take(name, rate, burst), 1
    if verdict is None:
        return None
    if len(_held) >= MOST_BUCKETS:
        _held.clear()
    behind = verdict.remaining + cost - 1
    _held[name, rate, burst] = _TokenBatch(verdict, until, deque(range(verdict.remaining, behind)))
    return replace(verdict, remaining=behind) if cost > 1 else verdict

"""Handfuls: what a busy caller may ask is fetched from Redis several requests at a time, so that most cost nothing.

A handful is what the bucket gains back in 20 ms, and is good for as long. So in any t seconds no more than
burst + rate * (t + 0.02) / 60 come through, over however many processes; rates below 6,000 a minute, and buckets
that are less than half full, are counted one by one.
"""

import time
from collections import deque
from dataclasses import dataclass, replace

from webapp.api_keys.limits import Verdict, take

HELD_SECONDS = 0.02
MOST = 64  # beyond that nothing is gained
MOST_BUCKETS = 10_000


@dataclass
class _Handful:
    """last: what Redis said. until: on the monotonic clock. left: how many remain behind each request that is held."""

    last: Verdict
    until: float
    left: deque[int]


_held: dict[tuple[str, int, int | None], _Handful] = {}


def take_by_handful(name: str, rate: int, burst: int | None = None) -> Verdict | None:
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
    _held[name, rate, burst] = _Handful(verdict, until, deque(range(verdict.remaining, behind)))
    return replace(verdict, remaining=behind) if cost > 1 else verdict

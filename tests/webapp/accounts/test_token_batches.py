import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from uuid import uuid4

import pytest

from webapp.accounts import rate_limits
from webapp.accounts.rate_limits import HELD_SECONDS, take_batched

A_SECOND = 60


@pytest.fixture(autouse=True)
def no_outage():
    """No outage of Redis is remembered from another test, or for the next."""
    rate_limits.forget()
    yield
    rate_limits.forget()


@pytest.fixture
def bucket() -> str:
    return f"test:{uuid4().hex}"


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """What each round trip to Redis asked for."""
    costs = []

    def noted(name, rate, burst=None, *, cost=1):
        costs.append(cost)
        return rate_limits.take(name, rate, burst, cost=cost)

    monkeypatch.setattr(rate_limits, "take", noted)
    return costs


def test_a_busy_caller_with_plenty_left_asks_redis_once_in_a_handful(bucket, asked, monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 1.0)

    left = [take_batched(bucket, 1_000 * A_SECOND).remaining for _ in range(41)]

    assert asked == [1, 20, 20]
    # The bucket fills up again while it is asked.
    assert all(-1 <= one - other < 20 for one, other in pairwise(left))


def test_what_is_held_is_dropped_after_20_ms(bucket, asked, monkeypatch):
    for seconds in (1.0, 1.0, 1.0 + HELD_SECONDS):
        monkeypatch.setattr(time, "monotonic", lambda now=seconds: now)
        take_batched(bucket, 1_000 * A_SECOND)

    assert asked == [1, 20, 20]


def test_a_low_rate_is_counted_one_by_one(bucket, asked):
    got = sum(take_batched(bucket, 10 * A_SECOND, 5).is_allowed for _ in range(6))

    assert (got, asked) == (5, [1] * 6)


def test_below_half_a_bucket_is_counted_one_by_one(bucket, asked):
    rate_limits.take(bucket, 100 * A_SECOND, cost=3_100)

    for _ in range(3):
        take_batched(bucket, 100 * A_SECOND)

    assert asked == [1] * 3


def test_threads_together_get_no_more_than_burst_and_what_refills(bucket):
    rate, burst = 1_000 * A_SECOND, 300
    begun = time.monotonic()

    with ThreadPoolExecutor(16) as threads:
        got = sum(threads.map(lambda _: take_batched(bucket, rate, burst).is_allowed, range(4_000)))

    assert burst <= got <= burst + 1_000 * (time.monotonic() - begun + HELD_SECONDS) + 1


def test_a_caller_that_has_used_everything_up_is_refused(bucket):
    answers = [take_batched(bucket, 200 * A_SECOND, 150) for _ in range(2_000)]

    refused = next(answer for answer in answers if not answer.is_allowed)
    assert (refused.remaining, refused.wait_seconds) == (0, 1)


def test_without_redis_nothing_limits(bucket, settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"

    assert take_batched(bucket, 1_000 * A_SECOND) is None

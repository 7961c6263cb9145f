import logging
import multiprocessing
import socket
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from uuid import uuid4

import pytest
import redis
from django.conf import settings
from django.test import override_settings

from tidegauge.webapp.accounts import rate_limits
from tidegauge.webapp.accounts.rate_limits import BATCH_SECONDS, take, take_batched, taking

pytestmark = pytest.mark.usefixtures("own_connections")
A_SECOND = 60


@pytest.fixture
def bucket() -> str:
    return f"test:{uuid4().hex}"


@pytest.fixture
def client():
    """An open connection, because one bucket expires after 10 ms."""
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.ping()
        yield client


@pytest.fixture
def no_redis():
    """An address without a server."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        with override_settings(REDIS_URL=f"redis://127.0.0.1:{free.getsockname()[1]}/0"):
            yield


@pytest.fixture
def hanging_redis():
    """A server that accepts connections and never answers."""
    with (
        closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as server,
        override_settings(REDIS_URL=f"redis://127.0.0.1:{server.getsockname()[1]}/0"),
    ):
        yield


def allowed(bucket, times, rate, burst=None):
    return sum(take(bucket, rate, burst).is_allowed for _ in range(times))


def test_a_full_bucket_allows_the_requests_of_one_minute(bucket):
    assert [take(bucket, rate=3).is_allowed for _ in range(5)] == [True, True, True, False, False]


def test_a_burst_is_how_many_are_allowed_at_once(bucket):
    assert allowed(bucket, 20, rate=60, burst=5) == 5


def test_a_verdict_has_what_is_left_and_when_more_will_be(bucket):
    first, second, third = [take(bucket, rate=6, burst=2) for _ in range(3)]

    assert (first.limit, first.remaining, first.wait_seconds, first.reset_seconds) == (2, 1, 0, 10)
    assert (second.remaining, second.wait_seconds, second.reset_seconds) == (0, 0, 20)
    assert (third.is_allowed, third.remaining, third.wait_seconds, third.reset_seconds) == (False, 0, 10, 20)


def test_after_the_wait_a_request_is_allowed(bucket):
    assert allowed(bucket, 3, rate=60, burst=2) == 2
    refused = take(bucket, rate=60, burst=2)

    time.sleep(refused.wait_seconds)

    assert refused.wait_seconds == 1
    assert take(bucket, rate=60, burst=2).is_allowed


def test_a_cost_of_0_takes_nothing(bucket):
    verdicts = [take(bucket, rate=1, cost=0).is_allowed for _ in range(3)]

    assert verdicts == [True] * 3
    assert [take(bucket, rate=1).is_allowed, take(bucket, rate=1, cost=0).is_allowed] == [True, False]


def test_buckets_are_independent(bucket):
    assert allowed(f"{bucket}:a", 2, rate=1) == allowed(f"{bucket}:b", 2, rate=1) == 1


def test_a_changed_rate_starts_with_a_full_bucket(bucket):
    allowed(bucket, 2, rate=1)

    assert allowed(bucket, 5, rate=4) == 4


def test_a_rate_of_0_is_no_limit(bucket):
    assert take(bucket, rate=0) is None


def test_a_bucket_expires_when_it_is_full(bucket, client):
    take(bucket, rate=6_000, burst=1)

    assert 0 < client.pttl(f"tidegauge:rate:{bucket}:6000:1") <= 10


def test_the_stored_time_is_exact_to_the_microsecond(bucket, client):
    take(bucket, rate=6)

    stored = client.get(f"tidegauge:rate:{bucket}:6:6")

    assert stored.isdigit()
    assert len(stored) == 16


def test_threads_share_a_limit(bucket):
    with ThreadPoolExecutor(16) as threads:
        got = sum(threads.map(lambda _: allowed(bucket, 50, rate=1, burst=100), range(16)))

    assert got == 100


def _hammer(bucket: str, times: int) -> tuple[int, float, float]:
    rate_limits.reset()
    begun = time.time()
    return allowed(bucket, times, rate=6_000, burst=50), begun, time.time()


def test_processes_share_a_limit_while_the_bucket_refills(bucket):
    # Not Pool, because it stops its processes by SIGTERM, which processes of the tests catch: one may wait forever.
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("fork")) as processes:
        rounds = list(processes.map(_hammer, [bucket] * 6, [400] * 6))

    counts, begun, ended = zip(*rounds, strict=True)
    # 6,000 per minute are 100 per second.
    assert 50 <= sum(counts) <= 50 + 100 * (max(ended) - min(begun)) + 1


def test_without_redis_every_request_is_allowed(bucket, no_redis):
    assert [take(bucket, rate=1) for _ in range(3)] == [None] * 3


def test_an_outage_of_redis_is_logged_once_a_minute(bucket, no_redis, caplog, monkeypatch):
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING, rate_limits.__name__):
        for seconds in (0, 30, 61):
            monkeypatch.setattr(time, "monotonic", lambda now=begun + seconds: now)
            take(bucket, rate=1)

    assert len(caplog.records) == 2
    assert "redis is unavailable, so requests are not rate limited" in caplog.text


def test_only_one_request_waits_for_a_redis_that_hangs(bucket, hanging_redis):
    begun = time.monotonic()

    assert [take(bucket, rate=1) for _ in range(20)] == [None] * 20

    assert time.monotonic() - begun < 0.9


def test_limits_are_enforced_again_when_redis_is_back(bucket, monkeypatch):
    with override_settings(REDIS_URL="redis://127.0.0.1:1/0"):
        assert take(bucket, rate=1) is None
    assert take(bucket, rate=1) is None
    later = time.monotonic() + rate_limits.RETRY_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)

    assert [take(bucket, rate=1).is_allowed for _ in range(2)] == [True, False]


@override_settings(REDIS_URL="redis://:hunter2@no port")
def test_an_invalid_url_is_not_logged(bucket, caplog):
    assert take(bucket, rate=1) is None
    assert "hunter2" not in caplog.text


@pytest.fixture
def costs(monkeypatch) -> list[int]:
    """The requests that each round trip to Redis took."""
    recorded = []

    def record(name, rate, burst=None, *, cost=1):
        recorded.append(cost)
        return taking(name, rate, burst, cost=cost)

    monkeypatch.setattr(rate_limits, "taking", record)
    return recorded


def test_a_busy_client_with_plenty_left_asks_redis_once_per_batch(bucket, costs, monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 1.0)

    begun = time.perf_counter()

    left = [take_batched(bucket, 1_000 * A_SECOND).remaining for _ in range(41)]

    assert costs == [1, 20, 20]
    # The bucket refills between the round trips, by the clock of Redis.
    refilled = 1_000 * (time.perf_counter() - begun)
    assert all(-1 - refilled <= one - other < 20 for one, other in pairwise(left))


def test_a_batch_expires_after_20_ms(bucket, costs, monkeypatch):
    for seconds in (1.0, 1.0, 1.0 + BATCH_SECONDS):
        monkeypatch.setattr(time, "monotonic", lambda now=seconds: now)
        take_batched(bucket, 1_000 * A_SECOND)

    assert costs == [1, 20, 20]


def test_a_low_rate_is_counted_one_by_one(bucket, costs):
    got = sum(take_batched(bucket, 10 * A_SECOND, 5).is_allowed for _ in range(6))

    assert (got, costs) == (5, [1] * 6)


def test_below_half_a_bucket_is_counted_one_by_one(bucket, costs):
    take(bucket, 100 * A_SECOND, cost=3_100)

    for _ in range(3):
        take_batched(bucket, 100 * A_SECOND)

    assert costs == [3_100, 1, 1, 1]


def test_threads_share_a_limit_with_batches(bucket):
    rate, burst = 1_000 * A_SECOND, 300
    begun = time.monotonic()

    with ThreadPoolExecutor(16) as threads:
        got = sum(threads.map(lambda _: take_batched(bucket, rate, burst).is_allowed, range(4_000)))

    assert burst <= got <= burst + 1_000 * (time.monotonic() - begun + BATCH_SECONDS) + 1


def test_a_client_with_an_empty_bucket_is_refused(bucket):
    answers = [take_batched(bucket, 200 * A_SECOND, 150) for _ in range(2_000)]

    refused = next(answer for answer in answers if not answer.is_allowed)
    assert (refused.remaining, refused.wait_seconds) == (0, 1)


def test_without_redis_batches_have_no_limit(bucket, settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"

    assert take_batched(bucket, 1_000 * A_SECOND) is None

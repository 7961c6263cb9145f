import logging
import multiprocessing
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from uuid import uuid4

import pytest
import redis
from django.conf import settings
from django.test import override_settings

from webapp.accounts import rate_limits
from webapp.accounts.rate_limits import take


@pytest.fixture(autouse=True)
def own_connections():
    """No outage is remembered from another test, and no connection."""
    rate_limits.forget()
    yield
    rate_limits.forget()


@pytest.fixture
def bucket() -> str:
    return f"test:{uuid4().hex}"


@pytest.fixture
def client():
    """An open connection: one bucket is forgotten after 10 ms."""
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.ping()
        yield client


@pytest.fixture
def no_redis():
    """An address where nobody listens."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        with override_settings(REDIS_URL=f"redis://127.0.0.1:{free.getsockname()[1]}/0"):
            yield


@pytest.fixture
def mute_redis():
    """A server that takes connections and never answers."""
    with (
        closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as server,
        override_settings(REDIS_URL=f"redis://127.0.0.1:{server.getsockname()[1]}/0"),
    ):
        yield


def allowed(bucket, times, rate, burst=None):
    return sum(take(bucket, rate, burst).is_allowed for _ in range(times))


def test_a_full_bucket_lets_a_minutes_worth_through_and_no_more(bucket):
    assert [take(bucket, rate=3).is_allowed for _ in range(5)] == [True, True, True, False, False]


def test_a_burst_is_how_many_come_through_at_once(bucket):
    assert allowed(bucket, 20, rate=60, burst=5) == 5


def test_an_answer_says_what_is_left_and_when_more_will_be(bucket):
    first, second, third = [take(bucket, rate=6, burst=2) for _ in range(3)]

    assert (first.limit, first.remaining, first.wait_seconds, first.reset_seconds) == (2, 1, 0, 10)
    assert (second.remaining, second.wait_seconds, second.reset_seconds) == (0, 0, 20)
    assert (third.is_allowed, third.remaining, third.wait_seconds, third.reset_seconds) == (False, 0, 10, 20)


def test_the_wait_that_is_named_is_long_enough(bucket):
    assert allowed(bucket, 3, rate=60, burst=2) == 2
    refused = take(bucket, rate=60, burst=2)

    time.sleep(refused.wait_seconds)

    assert refused.wait_seconds == 1
    assert take(bucket, rate=60, burst=2).is_allowed


def test_to_look_takes_nothing(bucket):
    looks = [take(bucket, rate=1, cost=0).is_allowed for _ in range(3)]

    assert looks == [True] * 3
    assert [take(bucket, rate=1).is_allowed, take(bucket, rate=1, cost=0).is_allowed] == [True, False]


def test_buckets_are_apart(bucket):
    assert allowed(f"{bucket}:a", 2, rate=1) == allowed(f"{bucket}:b", 2, rate=1) == 1


def test_a_changed_rate_begins_with_a_full_bucket(bucket):
    allowed(bucket, 2, rate=1)

    assert allowed(bucket, 5, rate=4) == 4


def test_a_rate_of_nothing_is_no_limit(bucket):
    assert take(bucket, rate=0) is None


def test_a_bucket_is_forgotten_when_it_is_full_again(bucket, client):
    take(bucket, rate=6_000, burst=1)

    assert 0 < client.pttl(f"tidemark:rate:{bucket}:6000:1") <= 10


def test_the_stored_time_is_exact_to_the_microsecond(bucket, client):
    take(bucket, rate=6)

    stored = client.get(f"tidemark:rate:{bucket}:6:6")

    assert stored.isdigit()
    assert len(stored) == 16


def test_threads_together_get_no_more_than_is_allowed(bucket):
    with ThreadPoolExecutor(16) as threads:
        got = sum(threads.map(lambda _: allowed(bucket, 50, rate=1, burst=100), range(16)))

    assert got == 100


def _hammer(bucket: str, times: int) -> tuple[int, float, float]:
    rate_limits.forget()
    begun = time.time()
    return allowed(bucket, times, rate=6_000, burst=50), begun, time.time()


def test_processes_together_get_no_more_than_is_allowed_while_the_bucket_fills_up(bucket):
    with multiprocessing.get_context("fork").Pool(3) as processes:
        rounds = processes.starmap(_hammer, [(bucket, 400)] * 6, chunksize=1)

    counts, begun, ended = zip(*rounds, strict=True)
    # 6,000 a minute are 100 a second.
    assert 50 <= sum(counts) <= 50 + 100 * (max(ended) - min(begun)) + 1


def test_without_redis_every_request_comes_through(bucket, no_redis):
    assert [take(bucket, rate=1) for _ in range(3)] == [None] * 3


def test_without_redis_the_log_says_so_once_a_minute(bucket, no_redis, caplog, monkeypatch):
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING, rate_limits.__name__):
        for seconds in (0, 30, 61):
            monkeypatch.setattr(time, "monotonic", lambda now=begun + seconds: now)
            take(bucket, rate=1)

    assert len(caplog.records) == 2
    assert "all requests are let through" in caplog.text


def test_a_redis_that_hangs_is_waited_for_once(bucket, mute_redis):
    begun = time.monotonic()

    assert [take(bucket, rate=1) for _ in range(20)] == [None] * 20

    assert time.monotonic() - begun < 0.9


def test_limits_are_back_with_redis(bucket, monkeypatch):
    with override_settings(REDIS_URL="redis://127.0.0.1:1/0"):
        assert take(bucket, rate=1) is None
    assert take(bucket, rate=1) is None
    later = time.monotonic() + rate_limits.AWAY_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)

    assert [take(bucket, rate=1).is_allowed for _ in range(2)] == [True, False]


@override_settings(REDIS_URL="redis://:hunter2@no port")
def test_a_url_that_is_none_is_not_logged(bucket, caplog):
    assert take(bucket, rate=1) is None
    assert "hunter2" not in caplog.text

"""Redis without the keys of some states, which earlier tests may have left there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import redis


@contextmanager
def redis_without(*states: str) -> Iterator[redis.Redis]:
    """Yield a client, once the states' keys are deleted."""
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        forget(client, *states)
        yield client


def forget(client: redis.Redis, *states: str) -> None:
    """Delete all keys of states, on one node or spread over buckets."""
    for state in states:
        for tag in (state, f"{state}.*"):
            for key in client.scan_iter(f"tidegauge:{{{tag}}}:*", count=1000):
                client.unlink(key)

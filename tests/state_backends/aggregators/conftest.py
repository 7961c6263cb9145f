"""A connection to Redis, for what Lua folds."""

import os

import pytest
import redis


@pytest.fixture(scope="module")
def client():
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        yield client

import os
from collections.abc import Iterator

import pytest
import redis


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        yield client

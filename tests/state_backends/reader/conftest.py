"""Both readers over the same rows: a state in a table and its twin in Redis."""

import os
import uuid
from dataclasses import replace

import pytest
import redis

from tests.state_backends.reader.table_and_redis import TableAndRedisFeed


@pytest.fixture(scope="module")
def client():
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        yield client


@pytest.fixture
def twins(conn, client, fresh):
    """Opens a feed of a new pipeline over a state and its twin."""

    def twins(spec, **declared):
        named = fresh(replace(spec, **declared))
        return TableAndRedisFeed(
            conn, client, replace(named, name=f"{named.name}_{uuid.uuid4().hex[:6]}"), pipeline=f"p{uuid.uuid4()}"
        )

    return twins

import os
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
import redis
from psycopg import sql

from tests.pipelines.sources.table_feed import Feed
from tidegauge.pipelines.embedded.temporary import temporary_database
from tidegauge.pipelines.sources.postgres import reader as postgres_reader


@pytest.fixture(scope="session")
def shared_database() -> Iterator[str]:
    """A database where commits wait for the disk: a change cannot be decoded before it is there."""
    with temporary_database(os.environ["DATABASE_URL"]) as url:
        with psycopg.connect(url, autocommit=True) as conn:
            name = sql.Identifier(conn.info.dbname)
            conn.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = on").format(name))
        yield url


@pytest.fixture
def feed(database_url, monkeypatch):
    """The table `public.t` and its source, which polls at every call; slot and table are dropped at the end."""
    monkeypatch.setattr(postgres_reader, "REST_FACTOR", 0)
    with psycopg.connect(database_url, autocommit=True) as conn:
        feed = Feed(conn, database_url)
        yield feed
        feed.source.drop()
        conn.execute("DROP TABLE IF EXISTS public.t")


@pytest.fixture
def client():
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        yield client


@pytest.fixture
def stream(client):
    name = f"test:{uuid4().hex[:12]}"
    yield name
    client.delete(name)


@pytest.fixture
def add(client, stream):
    """Put entries into the stream, one for each delay, and return their ids."""

    def add(*delays, origin="JFK", to=stream):
        return [client.xadd(to, {"origin": origin, "delay": delay}).decode() for delay in delays]

    return add

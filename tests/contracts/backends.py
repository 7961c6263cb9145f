"""The backing maps that contract tests run on; stores, and wrappers over them."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import psycopg
import pytest
import redis as redis_py

from tidegauge.state_backends import Changelog, MemoryBackingMap, PostgresBackingMap, StateSpec
from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.backends.redis.keys import Buckets
from tidegauge.state_backends.backends.redis.rows import RedisBackingMap
from tidegauge.state_backends.backends.wrappers import CachedMap, LoggedMap
from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.protocols import IBackingMap
from tidegauge.state_backends.spec.table import StateTable

NewBacking = Callable[[StateSpec], IBackingMap]


def memory(conn: psycopg.Connection | None) -> NewBacking:
    return MemoryBackingMap


def postgres(conn: psycopg.Connection) -> NewBacking:
    def new_backing(spec: StateSpec) -> IBackingMap:
        tables.create(conn, StateTable(spec))
        return PostgresBackingMap(conn, spec)

    return new_backing


@cache
def redis_client() -> redis_py.Redis:
    return redis_py.Redis.from_url(os.environ["REDIS_URL"])


def redis(conn: psycopg.Connection | None) -> NewBacking:
    return lambda spec: RedisBackingMap(redis_client(), emptied(redis_client(), spec))


def redis_spread(conn: psycopg.Connection | None) -> NewBacking:
    return lambda spec: RedisBackingMap(redis_client(), emptied(redis_client(), spread(spec)))


def spread(spec: StateSpec, buckets: int = 8) -> StateSpec:
    """Return the spec of a state in Redis that is spread over buckets; one without a key cannot be."""
    return replace(spec, backend="redis", partitions=buckets) if spec.key else spec


def emptied(client: redis_py.Redis, spec: StateSpec) -> StateSpec:
    """Return the spec, with its data deleted from the server: REDIS_URL may have rows of an earlier run."""
    for names in Buckets(spec).names:
        rows = names.rows(client.zrange(names.keys, 0, -1))
        written = [names.written(int(txid)) for txid in client.zrange(names.batches, 0, -1)]
        client.unlink(names.guard, names.keys, names.timers, names.batches, *rows, *written)
    return spec


def cached(make: Callable[[psycopg.Connection], NewBacking]) -> Callable[[psycopg.Connection], NewBacking]:
    # Few keys, so that tests evict rows, too.
    return lambda conn: lambda spec: CachedMap(make(conn)(spec), cache_keys=3)


def logged(make: Callable[[psycopg.Connection], NewBacking]) -> Callable[[psycopg.Connection], NewBacking]:
    def over(conn: psycopg.Connection) -> NewBacking:
        def new_backing(spec: StateSpec) -> IBackingMap:
            if spec.kind == "non_transactional":
                refuse_without_txids(conn, make(conn)(spec))
            keeping = replace(spec, changelog=True)
            inner = make(conn)(keeping)
            if make is not postgres:  # the changelog is always in PostgreSQL
                tables.create(conn, StateTable(keeping))
            return LoggedMap(inner, Changelog(conn, keeping))

        return new_backing

    return over


def refuse_without_txids(conn: psycopg.Connection, inner: IBackingMap) -> None:
    with pytest.raises(SpecError, match="a changelog needs txids; choose kind opaque or transactional"):
        LoggedMap(inner, Changelog(conn, StateSpec("other", value="jsonb", changelog=True)))
    pytest.skip("a changelog needs txids: refused, as was just asserted")


# A store is one line here.
STORES: dict[str, Callable[[psycopg.Connection], NewBacking]] = {
    "memory": memory,
    "postgres": postgres,
    "redis": redis,
    "redis_spread": redis_spread,
}

# Wrappers over memory, which is quick, and over a store.
BACKENDS = STORES | {
    "cached_memory": cached(memory),
    "cached_postgres": cached(postgres),
    "logged_memory": logged(memory),
    "logged_postgres": logged(postgres),
}

# Those that need no connection to PostgreSQL.
APART = {"memory", "cached_memory", "redis", "redis_spread"}

"""bulk: a million keys through multi_put and multi_get in one call each, and the memory it takes besides the rows."""

import resource
from collections.abc import Iterable, Iterator
from time import perf_counter

from benchmarks.cases import Case
from benchmarks.servers import database, redis_client
from state_backends import MemoryBackingMap, PostgresBackingMap, RedisBackingMap, StateSpec, Versioned
from state_backends.backends.postgres import tables
from state_backends.protocols import IBackingMap
from state_backends.table import StateTable

VIEWS = StateSpec("bench_views", key={"page": "text"}, value="jsonb")
KEYS = 1_000_000


def run() -> Iterable[Case]:
    keys = [(f"page-{number:07}",) for number in range(KEYS)]
    rows = [Versioned(number, 1) for number in range(KEYS)]
    # The peak never falls, so the backend that takes the least memory comes first.
    with database() as conn:
        tables.create(conn, StateTable(VIEWS))
        yield from _backend("postgres", PostgresBackingMap(conn, VIEWS), keys, rows)
    with redis_client() as client:
        yield from _backend("redis", RedisBackingMap(client, VIEWS), keys, rows)
    yield from _backend("memory", MemoryBackingMap(VIEWS), keys, rows)


def _backend(name: str, backing: IBackingMap, keys: list[tuple[str]], rows: list[Versioned]) -> Iterator[Case]:
    before = _peak_megabytes()
    started = perf_counter()
    backing.multi_put(keys, rows)
    put, extra = perf_counter(), _peak_megabytes() - before
    found = backing.multi_get(keys)
    got = perf_counter()
    assert found == rows
    yield Case(f"{name}_multi_put", KEYS / (put - started), "keys/s")
    yield Case(f"{name}_multi_get", KEYS / (got - put), "keys/s")
    yield Case(f"{name}_put_memory_beside_the_rows", extra, "MB")


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

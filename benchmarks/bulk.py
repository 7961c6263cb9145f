"""bulk: 250,000 keys through multi_put and multi_get in one call each, and the memory that they take besides the rows.

Each round runs each backend in a new process, so that the memory peak is only the backend's.
"""

import multiprocessing
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter

from benchmarks.cases import Case, median_case
from benchmarks.servers import database, redis_client
from tidegauge.state_backends import MemoryBackingMap, PostgresBackingMap, RedisBackingMap, StateSpec, Versioned
from tidegauge.state_backends.protocols import IBackingMap

SEEDS = "none: the keys are numbered"

VIEWS = StateSpec("bench_views", key={"page": "text"}, value="jsonb")
KEYS = 250_000
ROUNDS = 5

UNITS = {"multi_put": "keys/s", "multi_get": "keys/s", "put_memory_beside_the_rows": "MB"}


def run(keys: int = KEYS, rounds: int = ROUNDS) -> Iterator[Case]:
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in BACKENDS}
    with database(), redis_client():  # so that the servers run before the processes start
        for _ in range(rounds):
            for name, of_rounds in measured.items():
                with multiprocessing.get_context("spawn").Pool(1) as process:
                    of_rounds.append(process.apply(put_and_get, (name, keys)))
    for name, of_rounds in measured.items():
        for figure, unit in UNITS.items():
            yield median_case(f"{name}_{figure}", [each[figure] for each in of_rounds], unit)


def put_and_get(name: str, count: int) -> dict[str, float]:
    """Return the figures of one backend."""
    keys = [(f"page-{number:07}",) for number in range(count)]
    rows = [Versioned(number, 1) for number in range(count)]
    with BACKENDS[name]() as backing:
        before = _peak_megabytes()
        started = perf_counter()
        backing.multi_put(keys, rows)
        put, extra = perf_counter(), _peak_megabytes() - before
        found = backing.multi_get(keys)
        got = perf_counter()
    assert found == rows
    return {
        "multi_put": count / (put - started),
        "multi_get": count / (got - put),
        "put_memory_beside_the_rows": extra,
    }


@contextmanager
def _postgres() -> Iterator[IBackingMap]:
    with database() as conn:
        yield PostgresBackingMap(conn, VIEWS, create=True)


@contextmanager
def _redis() -> Iterator[IBackingMap]:
    with redis_client() as client:
        yield RedisBackingMap(client, VIEWS)


BACKENDS: dict[str, Callable[[], AbstractContextManager[IBackingMap]]] = {
    "postgres": _postgres,
    "redis": _redis,
    "memory": lambda: nullcontext(MemoryBackingMap(VIEWS)),
}


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

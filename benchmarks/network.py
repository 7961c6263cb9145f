"""network: how many round trips to the database a merge, a batch and a lookup wait for.

Each runs through a relay that adds no delay, or 1, 2.5 or 25 ms to a round trip (see benchmarks/relay.py): a merge of
10,000 keys between a task and PostgreSQL; a trigger of one state with 20 events between PostgreSQL and the driver with
its tasks; a lookup of 100 keys, one at a time, between the web process and PostgreSQL and Redis. `round_trips` is what
25 ms add, divided by 25 ms, because what shorter ones add is lost in the noise.
"""

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from time import perf_counter

import psycopg
from pyspark.sql import SparkSession

from benchmarks.batch_times import WHOLE, batch_times
from benchmarks.cases import Case, median_case
from benchmarks.http_client import durations, post
from benchmarks.input_files import lay_out_flights
from benchmarks.merge import merge
from benchmarks.relay import delayed
from benchmarks.rows import SALES, batch
from benchmarks.servers import database, database_url, redis_client
from benchmarks.web import (
    BODIES,
    LOOKUP,
    fill,
    lookup_body,
    migrate_and_make_key,
    served_by_granian,
    web_environ,
)  # fmt: skip
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.jobs.flights import flights
from tidegauge.pipelines.spark.session import start_session
from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.spec.table import StateTable

UNEQUAL = {"without_delay": "The same through a relay that adds no delay."}
SEEDS = "the keys of merge and lookup n: n, from 0; the flights of file n: n, from 0"

# In ms of a round trip. PLAIN and COUNTING are compared to count round trips.
NETWORKS = {"without_delay": 0.0, "1_ms": 1.0, "2_5_ms": 2.5, "25_ms": 25.0}
PLAIN, COUNTING = "without_delay", "25_ms"
ROUNDS = 5
MERGED_KEYS, MERGES = 10_000, 12
EVENTS, TRIGGERS, WARM_UP = 20, 16, 4
LOOKUPS = 200

Measure = Callable[[float], list[float]]  # takes the ms of a round trip; returns times in ms


def run(rounds: int = ROUNDS) -> Iterator[Case]:
    for name, measuring in {"merge": _merges, "trigger": _triggers, "lookup": _lookups}.items():
        with measuring() as measure:
            yield from _cases(name, [{network: measure(ms) for network, ms in NETWORKS.items()} for _ in range(rounds)])


def _cases(name: str, rounds: list[dict[str, list[float]]]) -> Iterator[Case]:
    by_network = {network: [statistics.median(times[network]) for times in rounds] for network in NETWORKS}
    plain, slowest = by_network[PLAIN], by_network[COUNTING]
    for network, times in by_network.items():
        yield median_case(f"{name}_{network}", times, "ms", {} if times is plain else {PLAIN: plain})
    added = [slow - quick for slow, quick in zip(slowest, plain, strict=True)]
    yield median_case(f"{name}_round_trips", [ms / NETWORKS[COUNTING] for ms in added], "round trips")


@contextmanager
def _merges() -> Iterator[Measure]:
    with database() as conn:
        tables.create(conn, StateTable(SALES))
        txids = count(1)

        def measure(round_trip_ms: float) -> list[float]:
            with delayed(database_url(conn), round_trip_ms) as url, connect(url, "benchmark") as far:
                return [_timed(far, number, next(txids)) for number in range(MERGES + WARM_UP)][WARM_UP:]

        yield measure


def _timed(conn: psycopg.Connection, number: int, txid: int) -> float:
    rows, started = batch(number).slice(0, MERGED_KEYS), perf_counter()
    merge(conn, SALES, rows, txid)
    return 1000 * (perf_counter() - started)


@contextmanager
def _triggers() -> Iterator[Measure]:
    spark = start_session("benchmark")
    try:
        with tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as folder:
            lay_out_flights(Path(folder), EVENTS, TRIGGERS + WARM_UP)
            yield lambda round_trip_ms: _of_a_pipeline(spark, Path(folder), round_trip_ms)
    finally:
        spark.stop()


def _of_a_pipeline(spark: SparkSession, folder: Path, round_trip_ms: float) -> list[float]:
    with (
        database() as conn,
        delayed(database_url(conn), round_trip_ms) as url,
        tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as checkpoint,
        batch_times(spark) as measured,
    ):
        pipeline = Pipeline("bench_network", flights(folder).feeds[:1])
        Driver(pipeline, spark, url, RunOptions(Path(checkpoint), once=True)).run()
    return [each[WHOLE] for each in measured.batches[WARM_UP:]]


@contextmanager
def _lookups() -> Iterator[Measure]:
    with database() as conn, redis_client():
        fill(conn)
        environ = web_environ(conn)
        key = migrate_and_make_key(environ)
        bodies = [post(LOOKUP, lookup_body(seed), Authorization=f"Bearer {key}") for seed in range(BODIES)]

        def measure(round_trip_ms: float) -> list[float]:
            with ExitStack() as network:
                far = {
                    name: network.enter_context(delayed(environ.get(name) or os.environ[name], round_trip_ms))
                    for name in ("DATABASE_URL", "REDIS_URL")
                }
                port = network.enter_context(served_by_granian(environ | far))
                durations(port, bodies, LOOKUPS, 200, connections=1)
                return [1000 * each for each in durations(port, bodies, LOOKUPS, 200, connections=1)]

        yield measure

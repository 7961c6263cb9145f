"""states: a small and a large batch of a pipeline with 1, 10 and 100 states, and the connections and locks it needs.

There is a driver for each number of states, each in a separate process on all cores of this machine. In each round
every driver in turn gets the same files of flights, one file per batch, while the others are idle. The states differ in
key and measure: each of ten keys with each of ten measures. A figure is the time of a trigger, with Spark's
bookkeeping. Connections and locks are the largest numbers seen in a sample every 20 ms; the server has the default
limits for both.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.cases import Case, median_case
from benchmarks.drivers import Drivers, running
from benchmarks.servers import database_url
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.jobs.flights import FLIGHT
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, Max, Mean, Min, StateSpec, Sum
from tidegauge.state_backends.protocols import Aggregator

UNEQUAL = {
    "states_1_*": "One state groups each batch once. A hundred states group it a hundred times, write about a hundred "
    "times as many keys, and are fed in several jobs, because at most 32 states are written at once."
}
SEEDS = "the flights of file n of a round: n, from 0"

STATES = (1, 10, 100)
SIZES = (20, 100_000)  # events of a batch
FILES = 2  # of each pipeline and round
WARM_UP = 2  # rounds at each size, because the first batch of a new size is still planned for the previous size
ROUNDS = 5
SAMPLE_SECONDS = 0.02

KEYS = [
    ("origin",), ("dest",), ("carrier",), ("tailnum",), ("flight",),
    ("origin", "dest"), ("origin", "carrier"), ("dest", "carrier"), ("carrier", "flight"),
    ("origin", "dest", "carrier"),
]  # fmt: skip
DOUBLE = "double precision"
MEASURES: list[Aggregator] = [
    Count(), Sum("distance", type="bigint"), Sum("dep_delay", DOUBLE), Sum("arr_delay", DOUBLE),
    Mean("dep_delay"), Mean("arr_delay"),
    Min("dep_delay"), Max("dep_delay"), Min("arr_delay"), Max("arr_delay"),
]  # fmt: skip

# The connections of a pipeline, and the most locks of one of them. Locks by `fastpath` are left out, because they take
# no place in the table of locks, which max_locks_per_transaction limits.
HELD = """
    SELECT count(*), coalesce(max(locks), 0)::int FROM (
        SELECT (SELECT count(*) FROM pg_locks l WHERE l.pid = a.pid AND NOT l.fastpath) AS locks
        FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.application_name ~ ('^tidegauge ' || %s || '( |$)')
    ) held
"""


def run(events: int = 0, rounds: int = ROUNDS) -> Iterator[Case]:
    """Yield the cases. events: the size of a batch, to measure only that size."""
    names = [f"states_{count}" for count in STATES]
    with running(names, "benchmarks.many_states") as drivers:
        for size in (events,) if events else SIZES:
            yield from _size(drivers, names, size, rounds)


def pipeline(name: str, folder: Path) -> Pipeline:
    """Return the pipeline with as many states as its name says."""
    count = int(name.removeprefix("states_"))
    departures = Stream.read(JsonFiles(folder, schema=FLIGHT, files_per_batch=1))
    groups = [departures.group_by(*KEYS[number % len(KEYS)]) for number in range(count)]
    return Pipeline(name, [group.persistent_aggregate(spec(name, number)) for number, group in enumerate(groups)])


def spec(pipeline: str, number: int) -> StateSpec:
    key = {name: "integer" if name == "flight" else "text" for name in KEYS[number % len(KEYS)]}
    return StateSpec(f"{pipeline}_{number}", key=key, measures={"m": MEASURES[number // len(KEYS)]})


def _size(drivers: Drivers, names: list[str], size: int, rounds: int) -> Iterator[Case]:
    triggers: dict[str, list[float]] = {name: [] for name in names}
    held = dict.fromkeys(names, (0, 0))
    for _ in range(WARM_UP):
        for name in names:
            drivers.feed([name], size, FILES)
    for _ in range(rounds):
        for name in names:
            with _sampled(database_url(drivers.conn), name, held):
                triggers[name].append(drivers.feed([name], size, FILES)[1])
    reference = names[0]
    for name in names:
        references = {} if name == reference else {f"{reference}_{size}": triggers[reference]}
        yield median_case(f"{name}_{size}", triggers[name], "ms", references)
        connections, locks = held[name]
        yield Case(f"{name}_{size}_connections", connections, "connections")
        yield Case(f"{name}_{size}_locks_of_a_connection", locks, "locks")


@contextmanager
def _sampled(url: str, pipeline: str, held: dict[str, tuple[int, int]]) -> Iterator[None]:
    """Record the largest numbers of connections and locks of a pipeline while the block runs."""
    done = threading.Event()

    def sample() -> None:
        with psycopg.connect(url, autocommit=True) as conn:
            while not done.wait(SAMPLE_SECONDS):
                row = conn.execute(HELD, [pipeline]).fetchone()
                assert row is not None
                connections, locks = held[pipeline]
                held[pipeline] = (max(connections, row[0]), max(locks, row[1]))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()

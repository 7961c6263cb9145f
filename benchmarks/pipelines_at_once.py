"""pipelines: 1, 2, 4 and 8 pipelines at the same time on one PostgreSQL server and one machine.

Each pipeline has its own driver process, as users run it, with its own Java and Python workers, on all cores of this
machine. Each has its own state, ledger row and checkpoint; the database is shared. All drivers run throughout. In each
round the first 1, 2, .. of them get the same number of files of flights at the same time, one file per batch. A rate
counts all events until the last batch is committed; a time is that of a single trigger. `without_spark` uses the same
number of processes, each of which begins, merges and commits batches of prepared partial aggregates in a loop. It shows
what ledger and server can do when Spark needs no processor.
"""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing.pool import Pool
from pathlib import Path

import psycopg

from benchmarks.cases import Case, compared, median_case
from benchmarks.drivers import running
from benchmarks.rows import KEYS, SALES, batch
from benchmarks.servers import database, database_url
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.jobs.flights import BY_CARRIER, FLIGHT
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import BatchLedger, Catalog, PostgresBackingMap
from tidegauge.state_backends.ledger.batch import lock_fence

UNEQUAL = {
    "*1_pipeline*": "One pipeline has the whole machine. Several pipelines share its cores with each other and with "
    "PostgreSQL. When all cores are busy, the sum of the rates cannot grow, and each batch waits."
}
SEEDS = "the flights of file n of a round: n, from 0; the keys of batch n of a merge: n modulo 4"

AT_ONCE = (1, 2, 4, 8)
EVENTS = 10_000  # of a file and batch
FILES, MERGES = 4, 4  # of each pipeline and round
WARM_UP, ROUNDS = 3, 5


def run(events: int = EVENTS, rounds: int = ROUNDS) -> Iterator[Case]:
    """Yield the cases. events: per file and batch."""
    yield from _with_drivers(events, rounds)
    yield from _without_spark(rounds)


def pipeline(name: str, folder: Path) -> Pipeline:
    flights = Stream.read(JsonFiles(folder, schema=FLIGHT, files_per_batch=1))
    counted = flights.group_by("origin", "carrier").persistent_aggregate(replace(BY_CARRIER, name=f"{name}_state"))
    return Pipeline(name, [counted])


def _with_drivers(events: int, rounds: int) -> Iterator[Case]:
    rates: dict[str, list[float]] = {_label(pipelines): [] for pipelines in AT_ONCE}
    triggers: dict[str, list[float]] = {_label(pipelines): [] for pipelines in AT_ONCE}
    names = [f"bench_{number}" for number in range(max(AT_ONCE))]
    with running(names, "benchmarks.pipelines_at_once") as drivers:
        for _ in range(WARM_UP):
            drivers.feed(names, events, FILES)
        for _ in range(rounds):
            for pipelines in AT_ONCE:
                seconds, trigger = drivers.feed(names[:pipelines], events, FILES)
                rates[_label(pipelines)].append(pipelines * FILES * events / seconds)
                triggers[_label(pipelines)].append(trigger)
    reference = _label(1)
    yield from compared(rates, "events/s", [reference])
    for label, taken in triggers.items():
        references = {} if label == reference else {f"{reference}_trigger": triggers[reference]}
        yield median_case(f"{label}_trigger", taken, "ms", references)


def _label(pipelines: int) -> str:
    return f"{pipelines}_pipeline{'s' if pipelines > 1 else ''}"


def _without_spark(rounds: int) -> Iterator[Case]:
    rates: dict[str, list[float]] = {f"without_spark_{_label(pipelines)}": [] for pipelines in AT_ONCE}
    with database() as conn, ExitStack() as stack:
        spawn, url = multiprocessing.get_context("spawn"), database_url(conn)
        writers = [stack.enter_context(spawn.Pool(1, _acquire, (url, number))) for number in range(max(AT_ONCE))]
        _merge_at_once(writers)
        for _ in range(rounds):
            for pipelines, measured in zip(AT_ONCE, rates.values(), strict=True):
                measured.append(_merge_at_once(writers[:pipelines]))
    yield from compared(rates, "keys/s", [f"without_spark_{_label(1)}"])


def _merge_at_once(writers: list[Pool]) -> float:
    """Let all processes merge their batches at once; return the rate of all keys together."""
    started = time.monotonic()
    for result in [writer.apply_async(merge_batches) for writer in writers]:
        result.get()
    return len(writers) * MERGES * KEYS / (time.monotonic() - started)


@dataclass
class Writer:
    """The connection, ledger and state that a process merges with."""

    conn: psycopg.Connection
    ledger: BatchLedger
    rows: PostgresBackingMap
    numbers: Iterator[int] = field(default_factory=count)

    def merge(self) -> None:
        """Begin a batch of 100,000 keys, merge and commit it."""
        number = next(self.numbers)
        opened = self.ledger.begin(number)
        assert opened is not None
        with self.conn.transaction():
            lock_fence(self.conn, opened)
            self.rows.merge([batch(number % MERGES)], opened.txid, opened.batch_time)
        self.ledger.commit(opened)


_writers: list[Writer] = []  # has only the writer of this process


def _acquire(url: str, number: int) -> None:
    """Acquire a pipeline of one state for this process."""
    name, spec = f"merge_{number}", replace(SALES, name=f"merge_{number}_state")
    conn = connect(url, name)
    Catalog(conn).register_pipeline(name, spout="transactional")
    Catalog(conn).register_states(name, [spec], {spec.name: "exactly once"})
    ledger = BatchLedger(conn, name)
    ledger.acquire()
    _writers.append(Writer(conn, ledger, PostgresBackingMap(conn, spec)))


def merge_batches() -> None:
    [writer] = _writers
    for _ in range(MERGES):
        writer.merge()

"""yahoo-many: The variant of the Yahoo Streaming Benchmark with a million campaigns, which are looked up meanwhile.

Events have the id of a campaign, so nothing is joined, and windows are an hour long. While events arrive at a fixed
rate, 100 random campaigns are looked up again and again: `lookup_p50` and `lookup_p99` are the percentiles of the time
that this takes, `all_counted_after` is how long after the last event all are counted, and `wrong` is how many windows
differ from what was sent.

Each store is read by one call, without a web process in between: Tidegauge's as its readers do, the others by the
commands that their layout takes.
"""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from benchmarks.cases import Case, median_case, percentile
from benchmarks.peers.environments import trident_classpath
from benchmarks.yahoo.benchmark import UNEQUAL as UNEQUAL
from benchmarks.yahoo.benchmark import VERSIONS as VERSIONS
from benchmarks.yahoo.engines import ENGINES
from benchmarks.yahoo.events import Events
from benchmarks.yahoo.load import sending
from benchmarks.yahoo.runs import DRAIN_SECONDS, TOPIC, Run, running, warm_up

SEEDS = "ids and choices of a round's events: the round, from 0; the campaigns that are looked up: 0"

RATE, SECONDS, ROUNDS, CAMPAIGNS = 5_000, 30, 5, 1_000_000
HOUR_MS = 3_600_000
LOOKED_UP, LOOKUP_PAUSE_SECONDS = 100, 0.1
UNITS = {"lookup_p50": "ms", "lookup_p99": "ms", "all_counted_after": "s", "windows": "windows", "wrong": "windows"}


class Figures(NamedTuple):
    """What one run has shown; see UNITS."""

    lookup_p50: float
    lookup_p99: float
    all_counted_after: float
    windows: int
    wrong: int


def run(rate: int = RATE, seconds: int = SECONDS, keys: int = CAMPAIGNS, rounds: int = ROUNDS) -> Iterator[Case]:
    """Yield the cases. rate, seconds: of the events of a run. keys: campaigns."""
    trident_classpath()  # raises MissingPeerError before anything is started
    measured: dict[str, list[Figures]] = {engine: [] for engine in ENGINES}
    for number in range(rounds):
        for engine in ENGINES:
            measured[engine].append(
                _figures(engine, rate, seconds, Events(number, keys, joined=False, window_ms=HOUR_MS))
            )
    for name, unit in UNITS.items():
        values = {engine: [getattr(each, name) for each in runs] for engine, runs in measured.items()}
        for engine, of_engine in values.items():
            others = {other: values[other] for other in UNEQUAL if other != engine} if unit == "ms" else {}
            yield median_case(f"{engine}_{name}", of_engine, unit, others)


def _figures(engine: str, rate: int, seconds: int, events: Events) -> Figures:
    with running(engine, events) as run:
        with sending(run.broker, TOPIC, events) as load:
            warm_up(run, load, rate)
            with lookups(run) as taken:
                load.at_rate(rate, seconds)
        sent = time.monotonic()
        run.until_counted(DRAIN_SECONDS)
        behind = time.monotonic() - sent
        check = run.check()
    p50, p99 = (1000 * percentile(taken, percent) for percent in (50, 99))
    return Figures(p50, p99, behind, check.windows, check.wrong)


@contextmanager
def lookups(run: Run) -> Iterator[list[float]]:
    """Look up 100 random campaigns again and again while the block runs; yield the list of the seconds they took."""
    taken: list[float] = []
    chance, ended = random.Random(0), threading.Event()

    def look_up() -> None:
        while not ended.wait(LOOKUP_PAUSE_SECONDS):
            start = int(time.time() * 1000) // HOUR_MS * HOUR_MS
            keys = [(campaign, start) for campaign in chance.sample(run.place.events.campaigns, LOOKED_UP)]
            began = time.perf_counter()
            run.engine.look_up(keys)
            taken.append(time.perf_counter() - began)

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look_up)
        try:
            yield taken
        finally:
            ended.set()
        looking.result()

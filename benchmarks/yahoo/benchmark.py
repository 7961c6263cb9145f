"""yahoo: the Yahoo Streaming Benchmark, compared with Storm Trident and with a Spark job that is written by hand.

Views of ads are counted per campaign and window of ten seconds: JSON events go through a real Kafka with two
partitions, are filtered, joined with 100 campaigns of ten ads each, and counted, in PostgreSQL (`tidegauge`) or in
Redis (the others). The **final-event latency** of a window is the time of its last update, less the end of the window.
`at_RATE` has its percentiles over all windows of a run, with events at a fixed rate. The rate doubles until the 99th
percentile exceeds ten seconds, the time of one window; `highest_rate` is the highest at which it did not. Every run
ends with the benchmark's own check, which compares each window with the events that were sent.

`single_core` parses and counts the same lines in one Python process, without Kafka, a store or protection from
failures, so it shows what these cost.

A rate does not count as reached if the sender was more than a second late, or a window was wrong. The sender can be
late because the engine takes the processor from it, as Trident does, whose latency is the lowest.

The sender, Kafka, the engine and the stores share this machine, while the published runs had a cluster. So compare how
the percentiles change with the rate, and not the rates themselves with those of others.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.cases import Case, median_case, percentile
from benchmarks.peers.environments import TRIDENT_PROJECT, pinned, trident_classpath
from benchmarks.yahoo.engines import ENGINES, Window
from benchmarks.yahoo.events import WINDOW_MS, Events, counted
from benchmarks.yahoo.load import sending
from benchmarks.yahoo.runs import DRAIN_SECONDS, TOPIC, final_latencies, running, warm_up

UNEQUAL = {
    "by_hand": (
        "It adds the counts of a micro-batch to those in Redis, in the published layout, over one connection of the "
        "driver. Nothing tells a replay from new events, so it is exact only while nothing fails. A window is updated "
        "when its count is written; with Tidegauge, when its batch is committed, because readers see it then."
    ),
    "trident": (
        "It has an opaque state in Redis; the published topology counts in memory, outside of Trident's state, and is "
        "not exact. It works on four batches at once, runs in one Java process in local mode, keeps the values in "
        "memory, and has a ZooKeeper that is not killed. It has no ledger and no batch boundary for readers, and a "
        "value that a failed attempt wrote stays wrong if the replay does not touch it. A window is updated when its "
        "count is written."
    ),
}
SEEDS = "ids and choices of a round's events: the round, from 0"
VERSIONS = {name: pinned(rf"<{name.lower()}\.version>(.+)</", TRIDENT_PROJECT) for name in ("Storm", "Kafka")}

RATE, SECONDS, ROUNDS = 10_000, 60, 5
STEPS = 6  # 10,000 to 320,000 events/s
LATENCY_LIMIT_MS = WINDOW_MS
BEHIND_LIMIT_SECONDS = 1.0  # of the sender; a run in which it was later does not count as one at that rate
REFERENCES = ("trident", "by_hand")
PARSED = 200_000


@dataclass(frozen=True)
class Latency:
    """What a run at a fixed rate has shown.

    p50, p99: of the latency, in ms. wrong: how many windows are. sender_behind: by how many seconds the sender was late
    at most. all_counted: whether all events were counted soon after the last one.
    """

    p50: float
    p99: float
    wrong: int
    sender_behind: float
    all_counted: bool

    @property
    def held(self) -> bool:
        within = self.p99 <= LATENCY_LIMIT_MS and self.sender_behind <= BEHIND_LIMIT_SECONDS
        return within and self.all_counted and not self.wrong


def run(rate: int = RATE, seconds: int = SECONDS, rounds: int = ROUNDS) -> Iterator[Case]:
    """Yield the cases. rate: of the first step. seconds: of each run."""
    trident_classpath()  # raises MissingPeerError before anything is started
    yield median_case("single_core", [_single_core(number) for number in range(rounds)], "events/s")
    yield from _rising_rates(rate, seconds, rounds)


def _single_core(seed: int) -> float:
    events = Events(seed)
    lines = events.lines(np.arange(PARSED)).splitlines()
    started = time.perf_counter()
    found = counted(lines, events.ads)
    taken = time.perf_counter() - started
    assert found == events.views()
    return len(lines) / taken


def _rising_rates(rate: int, seconds: int, rounds: int) -> Iterator[Case]:
    left, highest = list(ENGINES), dict.fromkeys(ENGINES, 0)
    for _ in range(STEPS):
        measured: dict[str, list[Latency]] = {engine: [] for engine in left}
        for number in range(rounds):
            for engine in left:
                measured[engine].append(_at_rate(engine, rate, seconds, number))
        yield from _latency_cases(rate, measured)
        left = [engine for engine, runs in measured.items() if 2 * sum(each.held for each in runs) > len(runs)]
        highest |= dict.fromkeys(left, rate)
        rate *= 2
    references = {reference: [float(highest[reference])] for reference in REFERENCES if highest[reference]}
    for engine, reached in highest.items():
        others = {reference: value for reference, value in references.items() if reference != engine}
        yield median_case(f"highest_rate_{engine}", [float(reached)], "events/s", others)


def _at_rate(engine: str, rate: int, seconds: int, seed: int) -> Latency:
    events = Events(seed)
    with running(engine, events) as run:
        with sending(run.broker, TOPIC, events) as load:
            warm_up(run, load, rate)
            start_ms = int(1000 * time.time())
            load.at_rate(rate, seconds)
            end_ms = int(1000 * time.time())
        all_counted = run.until_counted(DRAIN_SECONDS)
        # A window that is not counted yet is updated now at the earliest.
        missing = Window(0, int(1000 * time.time()))
        windows = dict.fromkeys(events.views(), missing) | run.engine.windows()
        wrong = run.check().wrong
    latencies = final_latencies(windows, events.window_ms, start_ms, end_ms)
    if not latencies:
        raise RuntimeError(f"no window lies within the {seconds} s of a run; give --seconds 20 or more")
    p50, p99 = (float(percentile(latencies, percent)) for percent in (50, 99))
    return Latency(p50, p99, wrong, load.behind, all_counted)


def _latency_cases(rate: int, measured: Mapping[str, Sequence[Latency]]) -> Iterator[Case]:
    for part in ("p50", "p99"):
        values = {engine: [getattr(each, part) for each in runs] for engine, runs in measured.items()}
        for engine, of_engine in values.items():
            others = {name: values[name] for name in REFERENCES if name in values and name != engine}
            yield median_case(f"at_{rate}_{engine}_{part}", of_engine, "ms", others)
    for engine, runs in measured.items():
        yield median_case(f"at_{rate}_{engine}_wrong", [each.wrong for each in runs], "windows")
        yield median_case(f"at_{rate}_{engine}_sender_behind", [each.sender_behind for each in runs], "s")

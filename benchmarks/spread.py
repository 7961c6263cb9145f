"""spread: a state in Redis that is spread over the nodes of a cluster: batches, lookups, and memory per key.

Clusters of 1, 3 and 6 nodes exist at once, and each has the same state in 256 buckets. A batch writes 100,000 of
300,000 keys from one client, with all that a driver and a task do for it; a lookup asks for 100 keys. `one_tag` is the
state in one partition, so under one hash tag, on the cluster of one node. All nodes share this machine's cores with the
client, so the rates show the shape only: what more nodes cost, not what they bring. The processor times per key of the
client and of all servers together are what a machine of its own would spend.

Then a state of a million keys is filled on three nodes by batches of 100,000 keys in random order, without an
append-only file. `memory` is what the servers have allocated per key, once each key was written, and after it was
written again (`updated`), when each row has the version before as well. `record` is what a key of one of the two newest
batches takes in addition, because it may have to be reverted. The latencies are those of one client on the filled
state. `large` does the same with more keys.
"""

import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from unittest.mock import patch

import psycopg
import pyarrow as pa

from benchmarks.cases import Case, median_case, percentile
from benchmarks.redis_cluster import RedisCluster, redis_cluster
from benchmarks.rows import ALL_KEYS, SALES, batch
from benchmarks.scaling import name, partials
from benchmarks.servers import database
from tidegauge.state_backends import BACKENDS, BatchLedger, Catalog, state_reader

UNEQUAL = {"*_1_node": "A cluster of one node, whose server has the state to itself."}
SEEDS = "the keys and counts of round n: n, from 0, the warm-up; the keys of lookup n: n"

NODES = (1, 3, 6)
PARTITIONS = 256
STATE_KEYS = 1_000_000
FILL_KEYS = 100_000
LOOKUPS, KEYS_PER_LOOKUP = 20, 100  # per round
LATENCIES = 500  # lookups whose times are taken on a filled state
ROUNDS = 9
# Coprime to all numbers of keys, so that its multiples are all of them, in an order that looks random.
STRIDE = 7_368_787


class Subject:
    """The driver, the tasks and the readers of one state on one cluster."""

    def __init__(self, conn: psycopg.Connection, label: str, cluster: RedisCluster, partitions: int = PARTITIONS):
        self.label, self.cluster, self._conn = label, cluster, conn
        self.spec = replace(SALES, name=f"bench_spread_{label}", backend="redis", partitions=partitions)
        self._backend, self._numbers = BACKENDS["redis"], count()
        catalog = Catalog(conn)
        catalog.register_pipeline(self.spec.name, spout="transactional")
        catalog.register_states(self.spec.name, [self.spec], {self.spec.name: "exactly once"})
        self._ledger = BatchLedger(conn, self.spec.name)
        self._ledger.acquire()
        with self._addressed():
            start = self._ledger.start(self._ledger.lock_committed())
            self._backend.catch_up(conn, self.spec, start, is_new=True)
            self._reader = state_reader(conn, self.spec)

    def write(self, rows: pa.RecordBatch) -> int:
        """Run one batch as its driver and its tasks do; return the number of keys."""
        with self._addressed():
            begun = self._ledger.begin(next(self._numbers))
            assert begun is not None
            session = self._backend.session(self._conn, self.spec, begun)
            session.admit()
            with session.writing():
                keys = session.merge([rows])
            session.check(keys)
            self._ledger.commit(begun, keys_written={self.spec.name: keys})
            session.publish(keys)
        return keys

    def look_up(self, numbers: Iterable[int], called: Callable[[int], str]) -> None:
        self._reader.multi_get([(called(number),) for number in numbers])

    def _addressed(self) -> AbstractContextManager[object]:
        return patch.dict("os.environ", TIDEGAUGE_REDIS_URL=self.cluster.url)


@dataclass
class Measured:
    """What one subject did in each round: rates, and µs of processor time of client and servers per key."""

    rates: list[float] = field(default_factory=list)
    client: list[float] = field(default_factory=list)
    servers: list[float] = field(default_factory=list)

    def add(self, cluster: RedisCluster, work: Callable[[], int], keys_per_unit: int) -> None:
        wall, own, theirs = time.perf_counter(), time.process_time(), cluster.cpu_seconds()
        done = work()
        self.rates.append(done / (time.perf_counter() - wall))
        keys = done * keys_per_unit
        self.client.append(1e6 * (time.process_time() - own) / keys)
        self.servers.append(1e6 * (cluster.cpu_seconds() - theirs) / keys)


def run(keys: int = STATE_KEYS, rounds: int = ROUNDS) -> Iterator[Case]:
    """Yield the cases. keys: those of the filled state."""
    with database() as conn, tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as folder:
        yield from _compared(conn, Path(folder), rounds)
        yield from filled(conn, Path(folder) / "filled", keys, is_updated=True)


def _compared(conn: psycopg.Connection, folder: Path, rounds: int) -> Iterator[Case]:
    with ExitStack() as started:
        clusters = {nodes: started.enter_context(redis_cluster(folder, nodes)) for nodes in NODES}
        subjects = [Subject(conn, _label(nodes), cluster) for nodes, cluster in clusters.items()]
        subjects.append(Subject(conn, "one_tag", clusters[1], partitions=1))
        for subject in subjects:
            for first in range(0, ALL_KEYS, FILL_KEYS):
                subject.write(_shops(range(first, first + FILL_KEYS)))
        for what, unit, per_unit, work in (
            ("batch", "keys/s", 1, _batch),
            ("lookup", "lookups/s", KEYS_PER_LOOKUP, _lookups),
        ):
            measured = {subject.label: Measured() for subject in subjects}
            for number in range(rounds + 1):
                for subject in subjects:
                    measured[subject.label].add(subject.cluster, lambda: work(subject, number), per_unit)  # noqa: B023
            reference = f"{what}_{_label(1)}"
            base = measured[_label(1)].rates[1:]
            for label, each in measured.items():
                of = {} if label == _label(1) else {reference: base}
                yield median_case(f"{what}_{label}", each.rates[1:], unit, of)
            for label, each in measured.items():
                yield median_case(f"{what}_{label}_client", each.client[1:], "µs/key")
                yield median_case(f"{what}_{label}_servers", each.servers[1:], "µs/key")


def _batch(subject: Subject, number: int) -> int:
    return subject.write(batch(number))


def _lookups(subject: Subject, number: int) -> int:
    chance = random.Random(number)
    for _ in range(LOOKUPS):
        subject.look_up(chance.sample(range(ALL_KEYS), KEYS_PER_LOOKUP), _shop)
    return LOOKUPS


def filled(conn: psycopg.Connection, folder: Path, keys: int, *, is_updated: bool) -> Iterator[Case]:
    """Fill a state on three nodes; yield its rate, its memory, and what its lookups take.

    is_updated: write each key a second time, too.
    """
    with redis_cluster(folder, 3, durable=False) as cluster:
        subject, before = Subject(conn, f"{keys}_keys", cluster), cluster.memory()
        yield median_case(f"fill_{subject.label}", list(_fill(subject, keys)), "keys/s")
        with_record, kept = cluster.memory(), _without_record(subject)
        yield Case(f"memory_{subject.label}", (kept - before) / keys, "bytes/key")
        yield Case(f"record_{subject.label}", (with_record - kept) / min(2 * FILL_KEYS, keys), "bytes/key")
        if is_updated:
            yield median_case(f"update_{subject.label}", list(_fill(subject, keys)), "keys/s")
            yield Case(f"memory_{subject.label}_updated", (_without_record(subject) - before) / keys, "bytes/key")
        for asked in (1, KEYS_PER_LOOKUP):
            times = _latencies(subject, keys, asked)
            for percent in (50, 99):
                yield Case(
                    f"lookup_of_{asked}_p{percent}_{subject.label}",
                    1000 * percentile(times, percent),
                    "ms",
                    rounds=LATENCIES,
                )


def _without_record(subject: Subject) -> int:
    """Write two batches of one key, whose records take the place of the larger ones; return the memory then."""
    for _ in range(2):
        subject.write(partials(range(1)))
    time.sleep(1.0)  # because the servers free the memory in the background
    return subject.cluster.memory()


def _fill(subject: Subject, keys: int) -> Iterator[float]:
    """Write each key once; yield the rate of each batch."""
    for first in range(0, keys, FILL_KEYS):
        rows = partials(sorted(place * STRIDE % keys for place in range(first, min(first + FILL_KEYS, keys))))
        started = time.perf_counter()
        written = subject.write(rows)
        yield written / (time.perf_counter() - started)


def _latencies(subject: Subject, keys: int, asked: int) -> Sequence[float]:
    times = []
    for seed in range(LATENCIES):
        numbers = random.Random(seed).sample(range(keys), asked)
        started = time.perf_counter()
        subject.look_up(numbers, name)
        times.append(time.perf_counter() - started)
    return times


def _label(nodes: int) -> str:
    return "1_node" if nodes == 1 else f"{nodes}_nodes"


def _shop(number: int) -> str:
    return f"shop-{number:07}"


def _shops(numbers: Sequence[int]) -> pa.RecordBatch:
    shops = [_shop(number) for number in numbers]
    return pa.RecordBatch.from_pydict({"shop": shops, "n": [1] * len(shops), "total": [1.5] * len(shops)})

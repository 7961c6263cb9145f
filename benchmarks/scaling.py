"""scaling: the same work on states of 1,000 to 10 million keys, and on partitioned ones.

All states exist at once and every round measures each of them in turn, so that a noisy machine affects them alike. The
ratios are to the state of 100,000 keys, the smallest that has all keys of a batch. The state of 1,000 keys gets batches
of 1,000 keys and shows the constant cost of a batch. An export reads the first 500,000 rows of a state as Python values
in each round, and all rows once; the rows of a small state come in one fetch.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from itertools import count
from time import perf_counter

import psycopg
import pyarrow as pa
from psycopg import sql

from benchmarks.cases import Case, median_case, side_by_side
from benchmarks.rows import SALES
from benchmarks.servers import database
from tidegauge.state_backends import BatchLedger, Catalog, Changelog, PostgresBackingMap, StateReader, StateSpec
from tidegauge.state_backends.ledger.batch import Batch, lock_fence
from tidegauge.state_backends.maintenance import Step, compact, expire
from tidegauge.state_backends.spec.table import StateTable

UNEQUAL = {"*_100000_keys": "The same state with fewer keys, so more of it is in the caches of processor and database."}
SEEDS = "the keys of a state's batches: its number of keys; the keys of lookups in round n: n"

PIPELINE = "bench_scaling"
# Keys and partitions of each state.
STATES = [(1_000, 1), (100_000, 1), (1_000_000, 1), (1_000_000, 8), (10_000_000, 1), (10_000_000, 8)]
MOST_KEYS = 10_000_000
REFERENCE = "100000_keys"
BATCH_KEYS, FILL_KEYS = 100_000, 500_000
LOOKUPS, KEYS_PER_LOOKUP = 100, 100
EXPORTED_ROWS = 500_000  # in each round
ROUNDS, REVERTS, PAGES = 9, 5, 20


class Subject:
    """One state of a given size, and the work that is timed."""

    def __init__(self, conn: psycopg.Connection, keys: int, partitions: int, rounds: int) -> None:
        self.label = f"{keys}_keys" + (f"_in_{partitions}" if partitions > 1 else "")
        self.spec = replace(SALES, name=f"bench_{self.label}", partitions=partitions, changelog=True)
        self.keys = keys
        self.rounds = rounds
        self.conn = conn

    def fill(self, ledger: "Ledger") -> int:
        for first in range(0, self.keys, FILL_KEYS):
            numbers = range(first, min(first + FILL_KEYS, self.keys))
            self.write(ledger.begin(), partials(numbers))
            ledger.commit()
        return self.keys

    def write(self, batch: Batch, rows: pa.RecordBatch) -> int:
        with self.conn.transaction():
            lock_fence(self.conn, batch)
            merged = PostgresBackingMap(self.conn, self.spec).merge([rows], batch.txid, batch.batch_time)
            Changelog(self.conn, self.spec).append(batch.txid)
        return merged

    @cached_property
    def batches(self) -> list[pa.RecordBatch]:
        """A batch of existing keys for each round, in key order as Spark sends them."""
        chance = random.Random(self.keys)
        size = min(self.keys, BATCH_KEYS)
        return [partials(sorted(chance.sample(range(self.keys), size))) for _ in range(self.rounds + 1)]

    def look_up(self, seed: int) -> int:
        reader, chance = StateReader(self.conn, self.spec), random.Random(seed)
        for _ in range(LOOKUPS):
            keys = [(name(chance.randrange(self.keys)),) for _ in range(KEYS_PER_LOOKUP)]
            reader.multi_get(keys)
        return LOOKUPS

    def export(self, most: int) -> int:
        """Export the state until at least `most` rows have come, or its end; return the number of rows."""
        exported = 0
        with StateReader(self.conn, self.spec).export() as export:
            for rows in export.batches():
                exported += len(rows)
                if exported >= most:
                    break
        return exported

    def bytes_per_key(self) -> dict[str, float]:
        """Return the sizes of the table and its indexes, partitions included."""
        row = self.conn.execute(
            "SELECT sum(pg_table_size(part)), sum(pg_indexes_size(part)) FROM (SELECT %(table)s::regclass AS part "
            "UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = %(table)s::regclass) parts",
            {"table": StateTable(self.spec).name.as_string(self.conn)},
        ).fetchone()
        assert row is not None
        return {"table": float(row[0]) / self.keys, "indexes": float(row[1]) / self.keys}


class Ledger:
    """One pipeline's ledger, which numbers the batches."""

    def __init__(self, conn: psycopg.Connection, specs: Iterable[StateSpec]) -> None:
        catalog, declared = Catalog(conn), list(specs)
        catalog.register_pipeline(PIPELINE, spout="transactional")
        catalog.register_states(PIPELINE, declared, {spec.name: "exactly once" for spec in declared})
        self._ledger = BatchLedger(conn, PIPELINE)
        self._ledger.acquire()
        self._numbers = count()
        self._open: Batch | None = None

    def begin(self, *, replay: bool = False) -> Batch:
        if not replay:
            self._number = next(self._numbers)
        self._open = self._ledger.begin(self._number)
        assert self._open is not None
        return self._open

    def commit(self) -> None:
        assert self._open is not None
        self._ledger.commit(self._open)


def run(keys: int = MOST_KEYS, rounds: int = ROUNDS) -> Iterable[Case]:
    """Yield the cases. keys: those of the largest state, at least 100,000, because that state is the reference."""
    with database() as conn:
        subjects = [Subject(conn, size, partitions, rounds) for size, partitions in STATES if size <= keys]
        ledger = Ledger(conn, (subject.spec for subject in subjects))
        yield from _fills(subjects, ledger)
        for subject in subjects:
            for part, size in subject.bytes_per_key().items():
                yield Case(f"{part}_{subject.label}", size, "bytes/key")
        yield from _compared(
            "merge", subjects, lambda subject: lambda number: _merge(subject, ledger, number), "keys/s"
        )
        yield from _compared("lookup", subjects, lambda subject: subject.look_up, "lookups/s")
        yield from _compared("export", subjects, lambda subject: lambda _: subject.export(EXPORTED_ROWS), "rows/s")
        yield from _whole_exports(subjects)
        yield from _reverts(subjects, ledger)
        yield from _walks("compaction", subjects, lambda subject: compact(conn, subject.spec, keep=timedelta(0)))
        yield from _walks("expiry_of_nothing", subjects, lambda subject: expire(conn, subject.spec))
        for subject in subjects:
            yield Case(f"vacuum_{subject.label}", 1000 * _vacuum(subject), "ms")
        conn.execute("UPDATE tidegauge.state SET ttl = '1 microsecond'")
        yield from _walks("expiry", subjects, lambda subject: expire(conn, subject.spec))


def _fills(subjects: list[Subject], ledger: Ledger) -> Iterator[Case]:
    for subject in subjects:
        started = perf_counter()
        filled = subject.fill(ledger)
        yield Case(f"fill_{subject.label}", filled / (perf_counter() - started), "keys/s")
        # Vacuumed because autovacuum would do it soon, in the middle of a round. It also gives the planner the sizes.
        subject.conn.execute(sql.SQL("VACUUM (ANALYZE) {}").format(StateTable(subject.spec).changelog))
        _vacuum(subject)


def _whole_exports(subjects: list[Subject]) -> Iterator[Case]:
    for subject in subjects:
        if subject.spec.partitions == 1:
            started = perf_counter()
            rows = subject.export(subject.keys)
            yield Case(f"whole_export_{subject.label}", rows / (perf_counter() - started), "rows/s")


def _merge(subject: Subject, ledger: Ledger, number: int) -> int:
    merged = subject.write(ledger.begin(), subject.batches[number])
    ledger.commit()
    return merged


def _compared(
    what: str, subjects: list[Subject], work: Callable[[Subject], Callable[[int], int]], unit: str
) -> list[Case]:
    for subject in subjects:
        _ = subject.batches  # created before the measurement
    named = {f"{what}_{subject.label}": work(subject) for subject in subjects}
    return side_by_side(named, unit, references=[f"{what}_{REFERENCE}"], rounds=subjects[0].rounds)


def _reverts(subjects: list[Subject], ledger: Ledger) -> Iterator[Case]:
    """Time the revert of a failed attempt, including rows and changelog."""
    seconds: dict[str, list[float]] = {subject.label: [] for subject in subjects}
    for number in range(min(REVERTS, subjects[0].rounds)):
        for subject in subjects:
            seconds[subject.label].append(_revert(subject, ledger, number))
    yield from _medians("revert", seconds)


def _revert(subject: Subject, ledger: Ledger, number: int) -> float:
    failed = ledger.begin()
    subject.write(failed, subject.batches[number])
    batch = ledger.begin(replay=True)
    started = perf_counter()
    with subject.conn.transaction():
        lock_fence(subject.conn, batch)
        PostgresBackingMap(subject.conn, subject.spec).revert(batch.txid)
        Changelog(subject.conn, subject.spec).revert(batch.txid)
    took = perf_counter() - started
    ledger.commit()
    return took


def _walks(what: str, subjects: list[Subject], walk: Callable[[Subject], Iterator[Step]]) -> Iterator[Case]:
    """Time the first pages of a maintenance run, one page of each state in turn."""
    walks = {subject.label: _page_seconds(walk(subject)) for subject in subjects}
    pages: dict[str, list[float]] = {label: [] for label in walks}
    for _ in range(PAGES):
        for label, page in walks.items():
            pages[label] += [seconds for seconds in [next(page, None)] if seconds is not None]
    yield from _medians(f"{what}_page", pages)


def _page_seconds(steps: Iterator[Step]) -> Iterator[float]:
    started, first = perf_counter(), None
    for number, step in enumerate(steps):
        first = first or step.step
        if number == PAGES or step.step != first:
            return
        yield perf_counter() - started
        started = perf_counter()


def _medians(what: str, seconds: Mapping[str, list[float]]) -> Iterator[Case]:
    """Yield the medians of the measurements that the reference has as well, because a small state has few pages."""
    for label, times in seconds.items():
        both = [(1000 * one, 1000 * other) for one, other in zip(times, seconds[REFERENCE], strict=False)]
        milliseconds, reference = ([*each] for each in zip(*both, strict=True))
        yield median_case(
            f"{what}_{label}", milliseconds, "ms", {} if label == REFERENCE else {f"{what}_{REFERENCE}": reference}
        )


def _vacuum(subject: Subject) -> float:
    started = perf_counter()
    subject.conn.execute(sql.SQL("VACUUM (ANALYZE) {}").format(StateTable(subject.spec).name))
    return perf_counter() - started


def partials(numbers: Iterable[int]) -> pa.RecordBatch:
    shops = [name(number) for number in numbers]
    return pa.RecordBatch.from_pydict({"shop": shops, "n": [2] * len(shops), "total": [3.0] * len(shops)})


def name(number: int) -> str:
    return f"shop-{number:08}"

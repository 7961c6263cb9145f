"""History: what drivers, readers and maintenance did to two states of lists, one in PostgreSQL and one in Redis.

Each event is appended to the list of its key, so that an answer tells which events a batch was counted with, and in
which order; a sum would not (see Kingsbury and Alvaro, Elle, VLDB 2020). The driver, its session, the batch runner, the
ledger, the tasks, the backends, readers and maintenance are the product's own; only Spark's part is replaced: this file
chooses the rows of a batch and starts its tasks. The tasks of a killed driver keep writing.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from tests.interleavings.scheduler import Actor, Killed, Scheduler, points_at_every_message
from tests.life.pipelines import Append
from tidegauge.pipelines.batch.runner import BatchRunner
from tidegauge.pipelines.batch.tasks import UpdateTask, written
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.session import DriverSession
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import StateSpec, state_reader
from tidegauge.state_backends.backends.redis import scripts
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.maintenance import compact, expire
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.testing.given import give, given_pipeline

KEYS = ["a", "b", "c", "d"]
BATCHES = 4
TASKS = 2  # of each state

# The chance at each step of a history that a driver dies: while it starts, and while it runs a batch; and that a task
# dies. Of the tasks of a driver that died some are slow, and write when the next driver has taken over.
STARTING, RUNNING, TASK = 0.0005, 0.01, 0.002
PACES_OF_TASKS = (0.01, 0.1, 1)
PACE_OF_OTHERS = 0.1

Row = Mapping[str, Any]
Lists = dict[str, list[str]]


class _ExecutorLostError(Exception):
    """A task's process has died."""


class _Runner(BatchRunner):
    """A batch runner whose tasks are actors."""

    history: "History"

    def _apply(self, frame: Any, batch: Batch) -> dict[str, Any]:
        rows: Sequence[Row] = frame
        self.history.note(batch, rows)
        context, tasks = self._context(batch), []
        for fed in self.pipeline.ordered:
            task = UpdateTask(fed.spec, fed.updater, context, pa.schema([]))
            for part in range(TASKS):
                mine = [row for row in rows if KEYS.index(row["key"]) % TASKS == part]
                name = f"{batch.txid}.{batch.attempt} {fed.name} {part}"
                does = partial(_run, task, mine)
                tasks.append(self.history.start_task(name, does))
        self.history.scheduler.wait_for(tasks)
        for actor in tasks:
            if actor.error is not None:
                raise _ExecutorLostError if isinstance(actor.error, Killed) else actor.error
        keys = len({row["key"] for row in rows})
        figures: dict[str, Any] = {"rows_in": len(rows), "dead_letters": 0, "late": 0, "dropped": 0}
        return figures | {"keys_written": {spec.name: keys for spec in self.pipeline.specs}}


def _run(task: UpdateTask, rows: Sequence[Row]) -> None:
    if rows:
        ordered = sorted(rows, key=lambda row: (row["key"], row["event"]))
        schema = pa.schema([("key", pa.string()), ("event", pa.string())])
        list(written([task], [(0, pa.RecordBatch.from_pylist(ordered, schema=schema))]))


class History:
    """One history. seed: decides the rows, which actor runs next at each point, and which ones are killed.

    buckets: over how many the state in Redis is spread; with several, each is sent its calls alone.
    """

    def __init__(self, seed: int, dsn: str, folder: Path, buckets: int = 1) -> None:
        self._random = Random(seed)
        self._admin = psycopg.connect(dsn, autocommit=True)
        self.scheduler = Scheduler(Random(seed + 1), self._admin, kills=self._random.choice([0, 1, 2, 3]))
        # killed: actors. retries: attempts at a batch that was open. read: lists that were checked. earlier: answers
        # at a batch before the last. refused NAME: errors of Tidegauge in place of an answer or a write.
        self.figures: Counter[str] = Counter()
        self._dsn = dsn
        self._checkpoint = folder / "checkpoint"
        self._checkpoint.mkdir(parents=True)
        events = Stream.read(JsonFiles("/nowhere", schema=StructType().add("key", "string").add("event", "string")))
        fed = [
            events.partition_persist(
                StateSpec(
                    f"lists_{seed}_{backend}",
                    key={"key": "text"},
                    value="jsonb",
                    backend=backend,
                    partitions=partitions,
                ),
                Append(("key",), "event"),
                order_by=["event"],
            )
            for backend, partitions in {"postgres": 1, "redis": buckets}.items()
        ]
        self.pipeline = given_pipeline(Pipeline(f"lists_{seed}", fed), folder / "input")
        self._done = -1  # the last batch that the engine has noted as done
        self._attempts: dict[tuple[int, int], Sequence[Row]] = {}
        self._reads: list[tuple[str, int, int, Lists]] = []

    def live(self) -> Counter[str]:
        """Run the history and check every answer. Raises AssertionError for one that no committed batch explains."""
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(scripts, "KEYS_PER_ROUND_TRIP", 1)
                self._live()
            self._check()
        finally:
            for spec in self._specs:
                BACKENDS[spec.backend].drop(self._admin, spec)
            self._admin.close()
        return self.figures

    def _live(self) -> None:
        with DriverSession(self.pipeline, self._dsn):  # registers the states, so that there is something to read
            pass
        with points_at_every_message(self.scheduler):
            self.scheduler.start("supervisor", self._supervise)
            for spec in self._specs:
                self.scheduler.start(f"reader {spec.name}", partial(self._keep_reading, spec), pace=PACE_OF_OTHERS)
            self.scheduler.start("upkeep", self._maintain, pace=PACE_OF_OTHERS)
            self.scheduler.run()
        for actor in self.scheduler.actors:
            if isinstance(actor.error, TidegaugeError):
                self._refuse(actor.error)
            elif actor.error is not None and not isinstance(actor.error, Killed | _ExecutorLostError):
                raise actor.error
        self.figures["killed"] = self.scheduler.killed

    def note(self, batch: Batch, rows: Sequence[Row]) -> None:
        self._attempts[batch.txid, batch.attempt] = rows
        self.figures["retries"] += batch.is_retry

    def start_task(self, name: str, does: Callable[[], None]) -> Actor:
        return self.scheduler.start(f"task {name}", does, danger=TASK, pace=self._random.choice(PACES_OF_TASKS))

    @property
    def _specs(self) -> Sequence[StateSpec]:
        return self.pipeline.specs

    # Actors

    def _supervise(self) -> None:
        """Start drivers, one after the other, until all batches are done."""
        number = 0
        while self._done < BATCHES - 1:
            number += 1
            driver = self.scheduler.start(f"driver {number}'s process", self._drive, danger=STARTING)
            self.scheduler.wait_for([driver])
            assert number < 20, driver.error

    def _drive(self) -> None:
        with DriverSession(self.pipeline, self._dsn) as session:
            session.ledger.bind("checkpoint", sources=self.pipeline.source.identities())
            runner = _Runner(self.pipeline, session.ledger, session.conn, self._dsn, self._checkpoint)
            runner.history = self
            while self._done < BATCHES - 1:
                batch_id = self._done + 1
                rows = self._rows(batch_id)
                give(self.pipeline, list(rows))
                self.scheduler.endanger(RUNNING)
                runner.run(rows, batch_id)
                self._done = batch_id

    def _rows(self, batch_id: int) -> Sequence[Row]:
        """Return the rows of an attempt: others each time, as long as the batch is not committed."""
        row = self._admin.execute(
            "SELECT committed_batch_id, committed_txid, committed_attempt FROM tidegauge.pipeline WHERE name = %s",
            [self.pipeline.name],
        ).fetchone()
        assert row is not None
        if row[0] == batch_id:
            return self._attempts[row[1], row[2]]
        chosen = self._random.sample(KEYS, self._random.randint(1, len(KEYS)))
        return [
            {"key": key, "event": f"{batch_id}.{number}"}
            for key in chosen
            for number in range(self._random.choice([1, 2]))
        ]

    def _keep_reading(self, spec: StateSpec) -> None:
        with connect(self._dsn, "reader") as conn:
            while self._done < BATCHES - 1:
                try:
                    self._read(conn, spec)
                except TidegaugeError as error:
                    self._refuse(error)

    def _read(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        found = state_reader(conn, spec).multi_get([(key,) for key in KEYS])
        lists = {row["key"][0]: row["value"] for row in found.parsed() if row["status"] == "found"}
        self._reads.append((spec.name, found.txid, found.attempt, lists))

    def _maintain(self) -> None:
        with connect(self._dsn, "upkeep") as conn:
            while self._done < BATCHES - 1:
                for spec in self._specs:
                    try:
                        list(compact(conn, spec, keep=timedelta(0)))
                        list(expire(conn, spec))
                    except TidegaugeError as error:
                        self._refuse(error)

    def _refuse(self, error: TidegaugeError) -> None:
        self.figures[f"refused {type(error).__name__}"] += 1

    # Checks

    def _check(self) -> None:
        committed = dict(
            self._admin.execute(
                "SELECT txid, attempt FROM tidegauge.batch WHERE pipeline = %s ORDER BY txid", [self.pipeline.name]
            ).fetchall()
        )
        assert list(committed) == list(range(1, BATCHES + 1))
        for spec in self._specs:
            self._read(self._admin, spec)
            assert self._reads[-1][1] == BATCHES
        for place, (state, txid, attempt, lists) in enumerate(self._reads):
            # The batch that was newest then may have come again since; those before it could not.
            then = [*((n, committed[n]) for n in range(1, txid)), *([(txid, attempt)] if txid else [])]
            expected = _lists(self._attempts[each] for each in then)
            assert lists == expected, f"read {place}: state {state} at batch {txid}.{attempt}: {lists}, not {expected}"
            self.figures["read"] += len(lists)
            self.figures["earlier"] += 0 < txid < BATCHES
        for spec in self._specs:
            txids = [txid for state, txid, _, _ in self._reads if state == spec.name]
            assert txids == sorted(txids), f"state {spec.name}: a reader went back: {txids}"


def _lists(batches: Any) -> Lists:
    lists: Lists = {}
    for rows in batches:
        for row in sorted(rows, key=lambda row: (row["key"], row["event"])):
            lists.setdefault(row["key"], []).append(row["event"])
    return lists

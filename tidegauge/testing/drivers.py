"""Drivers of a test: they apply given batches in order, die at the points that the test names, and are replaced.

A batch takes the real path: the ledger, its fence, the revert, Spark, the tasks, PostgreSQL. Only Spark's streaming
query is left out, because it would choose the content of a batch from a source, and here the test gives it.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql import SparkSession

from tidegauge.pipelines.batch.runner import BatchRunner
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.session import DriverSession
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.ledger.batch_ledger import BatchLedger
from tidegauge.state_backends.ledger.batch_time import MAX_SKEW, BatchClock
from tidegauge.state_backends.maintenance import compact, expire
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.testing.given import give, given_pipeline
from tidegauge.testing.state import State
from tidegauge.testing.steps import Action, Advance, Attempt, Compact, Expire, Point, Restart

CHECKPOINT_ID = "tidegauge.testing"
BETWEEN_BATCHES = timedelta(seconds=1)


class DriverDied(Exception):  # noqa: N818  not an error: the test asks for it
    """The driver dies at this point because the test asks for it."""


class MortalLedger:
    """A ledger whose driver dies at one point of a batch. dies: that point; None: the driver lives."""

    def __init__(self, ledger: BatchLedger) -> None:
        self.dies: Point | None = None
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def begin(self, batch_id: int, **given: Any) -> Batch | None:
        batch = self._ledger.begin(batch_id, **given)
        if self.dies == "after_begin":
            raise DriverDied
        return batch

    def commit(self, batch: Batch, **figures: Any) -> None:
        if self.dies in ("mid_write", "before_commit"):
            raise DriverDied
        self._ledger.commit(batch, **figures)
        if self.dies == "after_commit":
            raise DriverDied


class Clock:
    """The clock of a run. It advances only when told to, so that two runs have the same batch times."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def for_batches(self) -> BatchClock:
        return BatchClock(MAX_SKEW, lambda: self.at, lambda: self.at.timestamp())

    def advance(self, by: timedelta, conn: psycopg.Connection) -> None:
        self.at += by
        now = sql.Literal(self.at.isoformat())
        conn.execute(
            sql.SQL(
                "CREATE OR REPLACE FUNCTION tidegauge.clock() RETURNS timestamptz LANGUAGE sql VOLATILE "
                "RETURN {}::timestamptz"
            ).format(now)
        )


class Drivers:
    """The drivers of one run of a pipeline, in a database of its own. A context manager.

    pipeline: the user's; its sources are replaced. folder: does not exist yet. at: the time of the first batch.
    """

    def __init__(self, pipeline: Pipeline, spark: SparkSession, dsn: str, folder: Path, at: datetime) -> None:
        self.pipeline = given_pipeline(pipeline, folder / "input")
        self.clock = Clock(at - BETWEEN_BATCHES)
        # The keys that each batch wrote, by state and txid.
        self.written: dict[str, dict[int, set[Key]]] = defaultdict(dict)
        self._spark = spark
        self._dsn = dsn
        self._checkpoint = folder / "checkpoint"
        self._session: DriverSession | None = None
        self._last_batch = -1

    def __enter__(self) -> "Drivers":
        self._checkpoint.mkdir(parents=True)
        self.conn = connect(self._dsn, f"{self.pipeline.name} test")
        Catalog(self.conn).install()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop()
        self.forget_stores()
        self.conn.close()

    def forget_stores(self) -> None:
        """Drop the states that are outside of the run's database, because they would outlive it."""
        drop_stores(self.conn, self._registered())

    def play(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Attempt):
                self._attempt(action)
            elif isinstance(action, Restart):
                self._stop()
            elif isinstance(action, Advance):
                self.clock.advance(action.by, self.conn)
            else:
                self._maintain(action)
        self._stop()

    @property
    def committed(self) -> int:
        row = self.conn.execute(
            "SELECT committed_txid FROM tidegauge.pipeline WHERE name = %s", [self.pipeline.name]
        ).fetchone()
        return row[0] if row else 0

    def states(self) -> dict[str, State]:
        """Return every state as of the committed batch, with the keys that have not expired by the run's clock."""
        committed = self.committed
        return {spec.name: committed_state(self.conn, spec, committed, self.clock.at) for spec in self._registered()}

    def _registered(self) -> list[Any]:
        return list(Catalog(self.conn).specs(self.pipeline.name))

    def _attempt(self, attempt: Attempt) -> None:
        if attempt.batch_id != self._last_batch:
            self.clock.advance(BETWEEN_BATCHES, self.conn)
        self._last_batch = attempt.batch_id
        runner = self._runner()
        self._ledger.dies = attempt.dies
        give(self.pipeline, attempt.rows, half=attempt.dies == "mid_write")
        try:
            runner.run(self.pipeline.source.load(self._spark), attempt.batch_id)
        except DriverDied:
            self._stop()
        else:
            if attempt.dies is not None:  # it did not die, because a batch committed with the same rows is skipped
                self._stop()
        self._note_written()

    def _runner(self) -> BatchRunner:
        """Return the batch runner of the driver; start a driver if none lives."""
        if self._session is None:
            self._session = DriverSession(self.pipeline, self._dsn, self.clock.for_batches())
            self._session.__enter__()
            self._session.ledger.bind(CHECKPOINT_ID, sources=self.pipeline.source.identities())
            self._ledger = MortalLedger(self._session.ledger)
            self._run = BatchRunner(
                self.pipeline,
                self._ledger,  # type: ignore[arg-type]
                self._session.conn,
                self._dsn,
                self._checkpoint,
            )
        return self._run

    def _stop(self) -> None:
        if self._session is not None:
            self._session.__exit__(None, None, None)
            self._session = None

    def _note_written(self) -> None:
        txid = self.committed
        for spec in self._registered():
            rows = BACKENDS[spec.backend].rows(self.conn, spec).scan()
            self.written[spec.name][txid] = {key for key, row in rows if row.txid == txid}

    def _maintain(self, action: Expire | Compact) -> None:
        with _trusting_the_clock():
            for spec in self._registered():
                list(
                    expire(self.conn, spec)
                    if isinstance(action, Expire)
                    else compact(self.conn, spec, keep=action.keep)
                )


def committed_state(conn: psycopg.Connection, spec: StateSpec, committed: int, at: datetime) -> State:
    """Return a state as of a committed batch, with the keys that have not expired at time `at`."""
    backend = BACKENDS[spec.backend]
    keys = [key for key, _ in backend.rows(conn, spec).scan()]
    values = backend.committed_values(conn, spec, keys, committed, at)
    found = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
    return State(spec, {key: spec.finish(value) if spec.measures else value for key, value in found.items()})


def drop_stores(conn: psycopg.Connection, specs: Iterable[StateSpec]) -> None:
    """Drop the states that are outside of the ledger's database, because they would outlive it."""
    for spec in specs:
        if BACKENDS[spec.backend].tables is None:
            BACKENDS[spec.backend].drop(conn, spec)


@contextmanager
def _trusting_the_clock(environ: Any = os.environ) -> Iterator[None]:
    """Allow any clock skew, because maintenance would refuse the run's clock, which differs from the host's."""
    name = "TIDEGAUGE_MAX_CLOCK_SKEW_SECONDS"
    before: Mapping[str, str] = {name: environ[name]} if name in environ else {}
    environ[name] = str(int(timedelta(days=365_000).total_seconds()))
    try:
        yield
    finally:
        environ.pop(name)
        environ.update(before)

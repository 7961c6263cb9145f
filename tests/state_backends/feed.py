"""Feed: a driver and its executors in one process, so that a test decides what each batch does and when it fails."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
import pyarrow as pa

from tidegauge.state_backends import Batch, BatchLedger, Catalog, Changelog, PostgresBackingMap, StateReader, StateSpec
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.state_backends.spec.table import StateTable

Rows = Sequence[Mapping[str, Any]]


def views(*pairs: tuple[str, int]) -> Rows:
    """Return the rows of a state that counts views per page: `views(("/home", 3), ("/cart", 1))`."""
    return [{"page": page, "n": n} for page, n in pairs]


class Feed:
    """Acquires a pipeline and feeds its states, as a driver does.

    Rows are dicts of key columns and stored columns; a state's rows are written in one transaction per `apply`.
    """

    def __init__(
        self, conn: psycopg.Connection, specs: Iterable[StateSpec], *, pipeline: str, spout: str = "opaque"
    ) -> None:
        self.conn = conn
        self.pipeline = pipeline
        self.spout = spout
        self.specs = list(specs)
        catalog = Catalog(conn)
        catalog.register_pipeline(pipeline, spout=spout)
        self.ledger = BatchLedger(conn, pipeline)
        self.ledger.acquire()
        catalog.register_states(pipeline, self.specs, {spec.name: "" for spec in self.specs})
        self.ledger.bind("checkpoint")

    def begin(self, batch_id: int) -> Batch | None:
        """Begin a batch; revert what an earlier attempt at it wrote."""
        batch = self.ledger.begin(batch_id, spout=self.spout)
        if batch is not None and batch.is_retry:
            self.revert(batch)
        return batch

    def revert(self, batch: Batch) -> None:
        for spec in self.specs:
            with self.conn.transaction():
                lock_fence(self.conn, batch)
                PostgresBackingMap(self.conn, spec).revert(batch.txid)
                if spec.changelog:
                    Changelog(self.conn, spec).revert(batch.txid)

    def apply(self, batch: Batch, spec: StateSpec, rows: Rows, conn: psycopg.Connection | None = None) -> int:
        """Write one task's rows, as an executor with a connection of its own would."""
        conn = conn or self.conn
        with conn.transaction():
            lock_fence(conn, batch)
            keys = PostgresBackingMap(conn, spec).merge(arrow(rows), batch.txid, batch.batch_time)
            if spec.changelog:
                Changelog(conn, spec).append(batch.txid)
        return keys

    def run(self, *rows: Rows, batch_id: int | None = None) -> Batch:
        """Run one whole batch: rows[i] goes to the i-th state."""
        batch = self.begin(self.next_batch_id() if batch_id is None else batch_id)
        assert batch is not None
        for spec, state_rows in zip(self.specs, rows, strict=True):
            self.apply(batch, spec, state_rows)
        self.ledger.commit(batch)
        return batch

    def backing(self, spec: StateSpec, conn: psycopg.Connection | None = None) -> PostgresBackingMap:
        return PostgresBackingMap(conn or self.conn, spec)

    def next_batch_id(self) -> int:
        row = self.conn.execute(
            "SELECT committed_batch_id + 1 FROM tidegauge.pipeline WHERE name = %s", [self.pipeline]
        ).fetchone()
        assert row is not None
        return row[0]

    def read(self, spec: StateSpec, *keys: tuple[Any, ...]) -> list[Any]:
        """Return the value that a reader gets for each key, or its status where there is none."""
        answers = StateReader(self.conn, spec).multi_get(keys).parsed()
        return [answer["value"] if answer["status"] == "found" else answer["status"] for answer in answers]


def arrow(rows: Rows) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist([dict(row) for row in rows])] if rows else []


def let_time_pass(conn: psycopg.Connection, specs: Iterable[StateSpec], pipeline: str, interval: Any) -> None:
    """Move every stored time into the past, which has the effect of waiting."""
    for spec in specs:
        table = StateTable(spec)
        times = ["updated_at", *(["prev_updated_at"] if table.keeps_previous else [])]
        moved = ", ".join(f"{name} = {name} - %(interval)s::interval" for name in times)
        conn.execute(f"UPDATE tidegauge_state.{spec.name} SET {moved}", {"interval": interval})
        if spec.changelog:
            conn.execute(
                f"UPDATE tidegauge_changelog.{spec.name} SET updated_at = updated_at - %s::interval", [interval]
            )
    conn.execute(
        "UPDATE tidegauge.state SET expired_until = expired_until - %s::interval WHERE pipeline = %s",
        [interval, pipeline],
    )
    conn.execute(
        "UPDATE tidegauge.pipeline SET committed_time = committed_time - %(interval)s::interval, "
        "open_time = open_time - %(interval)s::interval WHERE name = %(name)s",
        {"interval": interval, "name": pipeline},
    )
    conn.execute(
        "UPDATE tidegauge.batch SET batch_time = batch_time - %s::interval WHERE pipeline = %s", [interval, pipeline]
    )

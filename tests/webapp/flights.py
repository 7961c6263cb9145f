"""A small pipeline of flights, driven by the test inside its transaction, which is rolled back."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa

from tidegauge.state_backends import (
    Batch,
    BatchLedger,
    Catalog,
    Changelog,
    Count,
    Max,
    Mean,
    PostgresBackingMap,
    StateSpec,
)
from tidegauge.state_backends.dead_letters.letters import DeadLetter, write_dead_letters
from tidegauge.state_backends.ledger import driver_status
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.state_backends.synchronizer.membership import Membership

BY_CARRIER = StateSpec(
    "flights_by_carrier",
    key={"origin": "text", "carrier": "text"},
    measures={"flights": Count(), "mean_delay": Mean("dep_delay"), "max_delay": Max("dep_delay")},
    ttl=timedelta(days=400),
    changelog=True,
)
BY_HOUR = StateSpec(
    "flights_by_hour",
    key={"hour": "timestamptz", "origin": "text"},
    measures={"flights": Count()},
    partitions=2,
)
TOTALS = StateSpec("totals", measures={"flights": Count()})
SPECS = (BY_CARRIER, BY_HOUR, TOTALS)

FIRST_HOUR = datetime(2013, 1, 1, 10, tzinfo=UTC)


class Flights:
    """The driver of one pipeline. conn: the connection with the test's transaction. batches: how many are committed."""

    def __init__(self, conn: psycopg.Connection, name: str = "flights", batches: int = 0) -> None:
        self.name = name
        self.conn = conn
        self._batches = batches
        catalog = Catalog(conn)
        if not batches:
            catalog.register_pipeline(name, spout="transactional", description="Departures from three airports")
        self._ledger = BatchLedger(conn, name)
        self._ledger.acquire()
        if not batches:
            catalog.register_states(name, SPECS, {spec.name: "exactly once" for spec in SPECS})
            self._ledger.bind("checkpoint")

    def open(self, carriers: dict[tuple[str, str], int], letters: Iterable[DeadLetter] = ()) -> Batch:
        """Write a batch and leave it open. carriers: (origin, carrier) to the number of its flights."""
        batch = self._ledger.begin(self._batches, spout="transactional")
        assert batch is not None
        with self.conn.transaction():
            lock_fence(self.conn, batch)
            for spec, rows in self._rows(carriers):
                arrow = pa.RecordBatch.from_pylist(rows)
                PostgresBackingMap(self.conn, spec).merge([arrow], batch.txid, batch.batch_time)
                if spec.changelog:
                    Changelog(self.conn, spec).append(batch.txid)
            write_dead_letters(self.conn, batch, letters)
        return batch

    def commit(self, carriers: dict[tuple[str, str], int], letters: Iterable[DeadLetter] = (), **figures: Any) -> Batch:
        """Write and commit a batch. figures: more arguments of BatchLedger.commit."""
        letters = list(letters)
        batch = self.open(carriers, letters)
        written = {spec.name: len(rows) for spec, rows in self._rows(carriers)}
        counts = {"rows_in": sum(carriers.values()), "keys_written": written, "dead_letters": len(letters)}
        self._ledger.commit(batch, **counts, **figures)
        self._batches += 1
        return batch

    def finish(self, batch: Batch) -> None:
        """Commit a batch that was left open."""
        self._ledger.commit(batch)
        self._batches += 1

    def report(self, status: str = "running", message: str = "", **progress: Any) -> None:
        driver_status.report(self.conn, self.name, status, message, progress)

    def fail(self, reason: str, failures: int, next_try_at: datetime | None = None) -> None:
        """Report a failure as a driver does that waits until `next_try_at`, or tries again now if it is None."""
        status = "restarting" if next_try_at else "running"
        driver_status.report(
            self.conn, self.name, status, reason, failures=failures, max_failures=8, next_try_at=next_try_at
        )

    def join(self, role: str = "driver") -> Membership:
        """Join the membership as a driver of this pipeline or as a worker."""
        member = Membership(self.conn, role, self.name if role == "driver" else None)
        member.join()
        return member

    def die(self) -> None:
        """End as a killed driver does: its lock is released, and its last status remains."""
        self._ledger.release()

    def _rows(self, carriers: dict[tuple[str, str], int]) -> list[tuple[StateSpec, list[dict[str, Any]]]]:
        by_carrier = [
            {
                "origin": origin,
                "carrier": carrier,
                "flights": flights,
                "mean_delay_sum": 12.5 * flights,
                "mean_delay_count": flights,
                "max_delay": 40.0 + flights,
            }
            for (origin, carrier), flights in carriers.items()
        ]
        hour = FIRST_HOUR + timedelta(hours=self._batches)
        by_hour = [{"hour": hour, "origin": origin, "flights": 1} for origin in sorted({o for o, _ in carriers})]
        totals = [{"flights": sum(carriers.values())}]
        return [(BY_CARRIER, by_carrier), (BY_HOUR, by_hour), (TOTALS, totals)]


@contextmanager
def flights_pipeline(conn: psycopg.Connection, batches: int = 0) -> Iterator[Flights]:
    flights = Flights(conn, batches=batches)
    try:
        yield flights
    finally:
        # The lock belongs to the session, which does not end with the test's transaction.
        conn.execute("SELECT pg_advisory_unlock_all()")

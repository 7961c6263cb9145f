"""A small pipeline with a state in Redis and one in PostgreSQL, driven by the test inside its transaction."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest

from tidegauge.state_backends import (
    Batch,
    BatchLedger,
    Catalog,
    Changelog,
    Count,
    LoggedMap,
    Max,
    Mean,
    PostgresBackingMap,
    RedisBackingMap,
    StateSpec,
)
from tidegauge.state_backends.backends.guard import Attempt
from tidegauge.state_backends.backends.redis.client import client
from tidegauge.state_backends.backends.redis.upkeep import RedisUpkeep
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.maps.updaters import Fold, Replace
from tidegauge.webapp.catalog import readers

HOUR = timedelta(hours=1)


class Views:
    """The driver of one pipeline: views per page and hour in Redis, and their total in PostgreSQL."""

    def __init__(self, conn: psycopg.Connection, **declared: Any) -> None:
        self.conn = conn
        # A name of its own, because Redis is not rolled back with the test's transaction.
        self.name = f"views_{uuid4().hex[:8]}"
        measures = {"views": Count(), "mean_ms": Mean("ms"), "longest": Max("ms")}
        key = declared.pop("key", {"page": "text"})
        self.spec = StateSpec(self.name, key=key, **({"measures": measures, "backend": "redis"} | declared))
        self.total = StateSpec(f"{self.name}_total", measures={"views": Count()})
        specs = [self.spec, self.total]
        catalog = Catalog(conn)
        catalog.register_pipeline(self.name, spout="opaque", description="Views, most of them in Redis")
        self.ledger = BatchLedger(conn, self.name)
        self.ledger.acquire()
        catalog.register_states(self.name, specs, {spec.name: "exactly once" for spec in specs})
        self.ledger.bind("checkpoint")
        self.backing = RedisBackingMap(client(60.0), self.spec)
        self.batches = 0

    def begin(self) -> Batch:
        batch = self.ledger.begin(self.batches)
        assert batch is not None
        self.backing.admit(*Attempt.at(batch))
        if batch.is_retry:
            self._under(batch).revert(batch.txid)
        return batch

    def write(self, batch: Batch, views: Mapping[Any, int], gone: tuple[Any, ...] = ()) -> None:
        """Write views per page, and remove pages."""
        rows = self._under(batch)
        counts = MAPS[self.spec.kind](LoggedMap(rows, Changelog(self.conn, self.spec)) if self.spec.changelog else rows)
        counts.begin_commit(batch.txid, at=batch.batch_time)
        keys = [key if isinstance(key, tuple) else (key,) for key in views]
        counts.multi_update(keys, [Fold(self.spec, _partial(n)) for n in views.values()])
        counts.multi_update([(page,) for page in gone], [Replace(None)] * len(gone))
        total = pa.RecordBatch.from_pylist([{"views": sum(views.values())}])
        with self.conn.transaction():
            PostgresBackingMap(self.conn, self.total).merge([total], batch.txid, batch.batch_time)

    def commit(self, views: Mapping[Any, int], gone: tuple[Any, ...] = ()) -> Batch:
        batch = self.begin()
        self.write(batch, views, gone)
        self.ledger.commit(batch, rows_in=sum(views.values()), keys_written={self.name: len(views)})
        self._under(batch).publish(batch.txid)
        self.batches += 1
        return batch

    def age(self, interval: timedelta) -> None:
        """Move all stored times into the past, as if the test had waited."""
        microseconds = interval // timedelta(microseconds=1)
        redis = client(60.0)
        for name in redis.scan_iter(f"tidegauge:{{{self.name}}}:row:*"):
            for field in ("updated_at", "prev_updated_at"):
                if redis.hexists(name, field):
                    redis.hincrby(name, field, -microseconds)
        self.conn.execute(
            "UPDATE tidegauge.pipeline SET committed_time = committed_time - %s, open_time = open_time - %s "
            "WHERE name = %s",
            [interval, interval, self.name],
        )
        self.conn.execute(
            "UPDATE tidegauge.batch SET batch_time = batch_time - %s WHERE pipeline = %s", [interval, self.name]
        )
        if self.spec.changelog:
            self.conn.execute(f"UPDATE tidegauge_changelog.{self.name} SET updated_at = updated_at - %s", [interval])

    def rows(self) -> dict[Any, Any]:
        """Return what is stored, page to views, committed or not; None where it was removed."""
        return {key[0]: row.value and row.value["views"] for key, row in self.backing.scan()}

    def _under(self, batch: Batch) -> RedisBackingMap:
        return self.backing.under(*Attempt.at(batch))


def _partial(views: int) -> dict[str, Any]:
    return {"views": views, "mean_ms_sum": 2.5 * views, "mean_ms_count": views, "longest": float(views)}


@contextmanager
def redis_views(conn: psycopg.Connection, **declared: Any) -> Iterator[Views]:
    views = Views(conn, **declared)
    try:
        yield views
    finally:
        RedisUpkeep(client(60.0), views.spec).clear()
        conn.execute("SELECT pg_advisory_unlock_all()")


@contextmanager
def unavailable_redis(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Send this process to a port where no server listens."""
    with monkeypatch.context() as patch:
        patch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
        readers.clear_cache()
        yield
    readers.clear_cache()

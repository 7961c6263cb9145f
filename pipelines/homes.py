"""Homes: what a batch does to a state where its rows live, one class per backend.

In PostgreSQL everything a task does is one transaction under the ledger's row. Redis guards itself by the attempt that
was admitted, call by call; what goes to PostgreSQL beside it, entries and dead letters, is checked there each time.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

import psycopg
import pyarrow as pa
from psycopg import sql

from pipelines.context import BatchContext
from pipelines.new_values import new_values, new_values_sql
from pipelines.redis_states import redis_client
from pipelines.tuples import as_columns, as_tuples
from state_backends.backends.factory import MAPS
from state_backends.backends.postgres.rows import PostgresBackingMap
from state_backends.backends.redis.rows import RedisBackingMap
from state_backends.backends.wrappers import DeferredMap, LoggedMap
from state_backends.changelog import Changelog
from state_backends.committed import ledger_sql
from state_backends.errors import UnknownStateError
from state_backends.ledger import lock_fence
from state_backends.maps.updaters import Fold
from state_backends.protocols import IBackingMap
from state_backends.row import Key, Versioned
from state_backends.spec import StateSpec
from state_backends.table import columns

# Rows per Arrow batch of new values, and rows that Python folds at once.
EMITTED_ROWS = 10_000
FOLDED_ROWS = 5_000


class Home(Protocol):
    """One state within one attempt at a batch. conn: in autocommit mode, for this state's part of a task alone."""

    @property
    def rows(self) -> IBackingMap:
        """The rows as they are stored."""

    def writing(self) -> AbstractContextManager[None]:
        """Return a context in which the task may write, having shown its attempt. Raises FencedError."""

    def updating(self) -> AbstractContextManager[IBackingMap]:
        """Return a context with the rows for an updater, logged if the state keeps a changelog; stored at its end."""

    def merge(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Fold partial aggregates into the rows, and log them. Returns the number of keys."""

    def new_values(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield what `merge` made of its keys."""

    def revert(self) -> None:
        """Undo what the batch has written, rows and entries."""

    def due_keys(self, due: str, before: datetime, most: int) -> list[Key]:
        """Return the keys, at most so many, whose time in column or member `due` has come, the earliest first."""

    def committed(self, keys: Sequence[Key]) -> list[Any]:
        """Return the values that another pipeline's state has committed, in the order asked; None where absent."""


class PostgresHome:
    """A state that is a table in the ledger's database."""

    def __init__(self, context: BatchContext, conn: psycopg.Connection, spec: StateSpec) -> None:
        self._context, self._conn, self._spec = context, conn, spec
        self._table = context.table(spec)

    @property
    def rows(self) -> PostgresBackingMap:
        return PostgresBackingMap(self._conn, self._spec, self._table)

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._conn.transaction():
            lock_fence(self._conn, self._context.batch)
            yield

    @contextmanager
    def updating(self) -> Iterator[IBackingMap]:
        yield LoggedMap(self.rows, self._log) if self._spec.changelog else self.rows

    def merge(self, batches: Iterable[pa.RecordBatch]) -> int:
        batch = self._context.batch
        keys = self.rows.merge(batches, batch.txid, batch.batch_time)
        if self._spec.changelog:
            self._log.append(batch.txid)
        return keys

    def new_values(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        parameters = {"batch_time": self._context.batch.batch_time, "ttl": self._spec.ttl}
        cursor = self._conn.execute(new_values_sql(self._table), parameters)
        while rows := cursor.fetchmany(EMITTED_ROWS):
            yield pa.RecordBatch.from_arrays(as_columns(rows, schema), schema=schema)

    def revert(self) -> None:
        self.rows.revert(self._context.batch.txid)
        if self._spec.changelog:
            self._log.revert(self._context.batch.txid)

    def due_keys(self, due: str, before: datetime, most: int) -> list[Key]:
        spec = self._spec
        time = (
            sql.Identifier("t", due)
            if spec.measures
            else sql.SQL("(t.value->>{})::timestamptz").format(sql.Literal(due))
        )
        statement = sql.SQL(
            "SELECT {key} FROM {table} t WHERE NOT t.removed AND {time} <= %s ORDER BY {time}, {key} LIMIT {most}"
        ).format(
            key=columns(spec.key, "t") if spec.key else sql.SQL("true"),
            table=self._table.name,
            time=time,
            most=sql.Literal(most),
        )
        return [row if spec.key else () for row in self._conn.execute(statement, [before])]

    def committed(self, keys: Sequence[Key]) -> list[Any]:
        # What a batch after the committed one would build upon is what is committed.
        spec, txid = _served(self._conn, self._spec)
        counts = MAPS[spec.kind](PostgresBackingMap(self._conn, spec))
        counts.begin_commit(txid + 1, at=self._context.batch.batch_time)
        return counts.multi_get(keys)

    @cached_property
    def _log(self) -> Changelog:
        return Changelog(self._conn, self._spec, self._table)


class RedisHome:
    """A state whose rows are in Redis, under the attempt that it has admitted; a changelog is in PostgreSQL."""

    def __init__(self, context: BatchContext, conn: psycopg.Connection, spec: StateSpec) -> None:
        self._context, self._conn, self._spec = context, conn, spec
        self._merged: list[Key] = []

    @cached_property
    def rows(self) -> RedisBackingMap:
        batch = self._context.batch
        return RedisBackingMap(redis_client(), self._spec).under(batch.fence, batch.txid, batch.attempt)

    @contextmanager
    def writing(self) -> Iterator[None]:
        # A look, no lock: Redis checks each write, and entries must be committed before their rows are put.
        with self._conn.transaction():
            lock_fence(self._conn, self._context.batch)
        yield

    @contextmanager
    def updating(self) -> Iterator[IBackingMap]:
        # An updater may write a key again and again; of a task that dies in between nothing must be left half done.
        deferred = DeferredMap(self._logged)
        yield deferred
        deferred.store()

    def merge(self, batches: Iterable[pa.RecordBatch]) -> int:
        batch, spec = self._context.batch, self._spec
        kept = list(batches)
        self._merged = [spec.check_key(key) for rows in kept for key in as_tuples(rows, list(spec.key))]
        if spec.folds_in_lua and not spec.changelog:
            return self.rows.merge(kept, batch.txid, batch.batch_time)
        counts = MAPS[spec.kind](self._logged)
        counts.begin_commit(batch.txid, at=batch.batch_time)
        names = list(spec.partial_columns)
        partials = (Fold(spec, partial) for rows in kept for partial in rows.select(names).to_pylist())
        keys = iter(self._merged)
        while chunk := list(islice(keys, FOLDED_ROWS)):
            counts.multi_update(chunk, list(islice(partials, len(chunk))))
        return len(self._merged)

    def new_values(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        keys = iter(self._merged)
        while chunk := list(islice(keys, EMITTED_ROWS)):
            rows = self.rows.multi_get(chunk)
            emitted = list(new_values(self._spec, chunk, rows, self._context.batch.batch_time))
            yield pa.RecordBatch.from_arrays(as_columns(emitted, schema), schema=schema)

    def revert(self) -> None:
        self.rows.revert(self._context.batch.txid)
        if self._spec.changelog:
            Changelog(self._conn, self._spec).revert(self._context.batch.txid)

    def due_keys(self, due: str, before: datetime, most: int) -> list[Key]:
        """A scan of every row through the driver's memory: some 10 microseconds each."""
        times = ((_time(row.value, due), key) for key, row in self.rows.scan() if row.value is not None)
        return [key for _, key in sorted((time, key) for time, key in times if time and time <= before)[:most]]

    def committed(self, keys: Sequence[Key]) -> list[Any]:
        spec, _ = _served(self._conn, self._spec)
        _, rows = RedisBackingMap(redis_client(), spec).multi_get_committed(keys)
        return [row.value for row in rows]

    @property
    def _logged(self) -> IBackingMap:
        if not self._spec.changelog:
            return self.rows
        return LoggedMap(self.rows, _SharedLog(self._context, self._conn, self._spec))


class _SharedLog:
    """A changelog whose every write is a transaction under the ledger's row, committed before the rows are put."""

    def __init__(self, context: BatchContext, conn: psycopg.Connection, spec: StateSpec) -> None:
        self.conn = conn
        self._batch = context.batch
        self._log = Changelog(conn, spec)

    def append_rows(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> int:
        with self.conn.transaction():
            lock_fence(self.conn, self._batch)
            return self._log.append_rows(keys, rows)

    def revert(self, txid: int) -> int:
        with self.conn.transaction():
            lock_fence(self.conn, self._batch)
            return self._log.revert(txid)


HOMES: dict[str, type[PostgresHome | RedisHome]] = {"postgres": PostgresHome, "redis": RedisHome}


def home(context: BatchContext, conn: psycopg.Connection, spec: StateSpec) -> Home:
    """Return the home of a state, under what is in force for this batch."""
    return HOMES[spec.backend](context, conn, context.in_force(spec))


def _served(conn: psycopg.Connection, spec: StateSpec) -> tuple[StateSpec, int]:
    """Return another pipeline's state under the ttl that its readers go by, and its committed txid."""
    row = conn.execute(ledger_sql("s.ttl, p.committed_txid"), [spec.name]).fetchone()
    if row is None:
        raise UnknownStateError(f"state {spec.name!r} is not registered; start the pipeline that feeds it")
    return replace(spec, ttl=row[0]), int(row[1])


def _time(value: Any, due: str) -> datetime | None:
    time = value.get(due) if isinstance(value, dict) else None
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return time

"""A state in PostgreSQL within one attempt at a batch: what a task writes is one transaction under the ledger's row."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, LiteralString

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from tidegauge.state_backends.backends.postgres.rows import PostgresBackingMap
from tidegauge.state_backends.backends.postgres.timers import Timers
from tidegauge.state_backends.backends.wrappers import LoggedMap
from tidegauge.state_backends.changelog import Changelog
from tidegauge.state_backends.committed import finished
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.extras import OptionalModule
from tidegauge.state_backends.ledger.batch import Batch, ask_fence, lock_fence
from tidegauge.state_backends.protocols import IBackingMap
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable, columns, commas
from tidegauge.state_backends.spec.types import type_of

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = OptionalModule("pyarrow")

# Rows per Arrow batch of new values.
EMITTED_ROWS = 10_000


class PostgresSession:
    """A state that is a table in the ledger's database. See BackendSession."""

    def __init__(self, conn: psycopg.Connection, spec: StateSpec, batch: Batch, *, shadow: bool = False) -> None:
        self._conn, self._spec, self._batch = conn, spec, batch
        self._table = StateTable(spec).shadow() if shadow else StateTable(spec)
        self.refused: Sequence[DeadLetter] = ()

    @property
    def rows(self) -> PostgresBackingMap:
        return PostgresBackingMap(self._conn, self._spec, self._table)

    def admit(self) -> None:
        """Nothing to do: the ledger's row, which every task locks, says who may write."""

    def check(self, keys: int | None) -> None:
        """Nothing to do: what the tasks wrote and what the ledger commits are in one database."""

    def publish(self, keys: int | None) -> None:
        """Nothing to do: the ledger's commit is what readers see."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        # A task that writes several states has one transaction open for all of them; a savepoint for each would cost
        # two more round trips. `merge` and `updating` check the attempt, in the round trip that they begin with.
        is_open = self._conn.info.transaction_status == TransactionStatus.INTRANS
        with nullcontext() if is_open else self._conn.transaction():
            yield

    @contextmanager
    def updating(self) -> Iterator[IBackingMap]:
        lock_fence(self._conn, self._batch)
        yield LoggedMap(self.rows, self._log) if self._spec.changelog else self.rows

    def merge(self, batches: Iterable["pa.RecordBatch"], *, first_run: bool = False) -> int:
        rows = self.rows
        # Opaque rows of an earlier attempt are reverted by now; those of other kinds stay.
        is_first = first_run and (self._spec.kind == "opaque" or not self._batch.is_retry)
        keys = rows.merge(
            batches,
            self._batch.txid,
            self._batch.batch_time,
            first_run=is_first,
            before=self._ask_fence,
            after=self._append if self._spec.changelog else None,
        )
        self.refused = rows.refused
        return keys

    def new_values(self, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
        parameters = {"batch_time": self._batch.batch_time, "ttl": self._spec.ttl}
        measures = [name for name in self._spec.measures if name in schema.names]
        cursor = self._conn.execute(new_values_sql(self._table, measures), parameters)
        while rows := cursor.fetchmany(EMITTED_ROWS):
            yield _as_arrow(rows, schema)

    def revert(self) -> None:
        self.rows.revert(self._batch.txid)
        if self._spec.changelog:
            self._log.revert(self._batch.txid)

    def due_keys(self, due: str, before: datetime, most: int) -> list[Key]:
        return Timers(self._conn, self._table, due).due_keys(before, most)

    def next_due(self, due: str) -> datetime | None:
        return Timers(self._conn, self._table, due).next_due()

    def first_from(self, column: str, start: datetime | None) -> datetime | None:
        return Timers(self._conn, self._table, column).first_from(start)

    def values_between(
        self, column: str, start: datetime | None, stop: datetime, schema: "pa.Schema"
    ) -> Iterator["pa.RecordBatch"]:
        parameters = {"from": start, "to": stop, "ttl": self._spec.ttl, "batch_time": self._batch.batch_time}
        with self._conn.transaction(), self._conn.cursor("closing") as cursor:
            self._conn.execute("SET LOCAL enable_seqscan = off")
            cursor.execute(_between_sql(self._table, column, start is None), parameters)
            while rows := cursor.fetchmany(EMITTED_ROWS):
                yield _as_arrow(rows, schema)

    def _ask_fence(self) -> Callable[[], None]:
        return ask_fence(self._conn, self._batch)

    def _append(self) -> None:
        self._log.append(self._batch.txid)

    @cached_property
    def _log(self) -> Changelog:
        return Changelog(self._conn, self._spec, self._table)


def new_values_sql(table: StateTable, measures: Sequence[str]) -> sql.Composed:
    """Return the statement for what a merge made of the keys in the table's incoming rows.

    One row per key: key, these measures, finished, and for an opaque state those of the version before, null where
    readers saw none.
    """
    spec = table.spec
    parts: list[sql.Composable] = [_emitted(sql.Identifier("t", name), kind) for name, kind in spec.key.items()]
    fed = {name: spec.measures[name] for name in measures}
    for measure, aggregator in fed.items():
        parts.append(_emitted(finished(measure, aggregator, "t"), aggregator.result_type))
    if table.keeps_previous:
        for measure, aggregator in fed.items():
            before = _emitted(finished(measure, aggregator, "before"), aggregator.result_type)
            parts.append(sql.SQL("CASE WHEN before.was THEN {} END").format(before))
    return sql.SQL("SELECT {parts} FROM {table} t JOIN {rows} i ON {same} {before}").format(
        parts=commas(parts),
        table=table.name,
        rows=table.incoming,
        same=table.same_key("i", "t"),
        before=_before_sql(table) if table.keeps_previous else sql.SQL(""),
    )


def _between_sql(table: StateTable, column: str, from_first: bool) -> sql.Composed:
    spec, at = table.spec, sql.Identifier("t", column)
    parts = [_emitted(sql.Identifier("t", name), kind) for name, kind in spec.key.items()]
    parts += [_emitted(finished(name, measure, "t"), measure.result_type) for name, measure in spec.measures.items()]
    return sql.SQL(
        "SELECT {parts} FROM {table} t WHERE NOT t.removed AND {at} < %(to)s {lower} AND tidegauge.is_live("
        "t.removed, t.updated_at, %(ttl)s::interval, %(batch_time)s) ORDER BY {at}, {key}"
    ).format(
        parts=commas(parts),
        table=table.name,
        at=at,
        lower=sql.SQL("") if from_first else sql.SQL("AND {} >= %(from)s").format(at),
        key=columns(spec.key, "t"),
    )


def _as_arrow(rows: Sequence[tuple[object, ...]], schema: "pa.Schema") -> "pa.RecordBatch":
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _before_sql(table: StateTable) -> sql.Composed:
    return sql.SQL(
        "CROSS JOIN LATERAL (SELECT {previous}, t.prev_txid IS NOT NULL AND tidegauge.is_live("
        "t.prev_removed, t.prev_updated_at, %(ttl)s::interval, %(batch_time)s) AS was) before"
    ).format(
        previous=commas(
            sql.SQL("{} AS {}").format(sql.Identifier("t", f"prev_{name}"), sql.Identifier(name))
            for name in table.values
        )
    )


def _emitted(expression: sql.Composable, sql_type: str) -> sql.Composable:
    """Cast what Arrow would not take as PostgreSQL gives it."""
    casts: dict[str, LiteralString] = {"jsonb": "::text", "json": "::text", "uuid": "::text"}
    kind = type_of(sql_type)
    if kind.digits:
        return sql.SQL("({})::numeric({}, {})").format(expression, *map(sql.Literal, kind.digits))
    return sql.SQL("({}){}").format(expression, sql.SQL(casts[sql_type])) if sql_type in casts else expression

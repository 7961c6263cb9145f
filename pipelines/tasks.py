"""What a task does to a state with the tuples of one partition, in one transaction under the ledger's row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark import TaskContext

from pipelines.connection import connect
from pipelines.context import BatchContext
from pipelines.functions import StateFactory, StateUpdater, Values
from pipelines.refused_groups import RefusedGroups
from pipelines.stores import opened_state
from pipelines.tuples import as_columns
from state_backends.backing.logged import LoggedMap
from state_backends.errors import KeyShapeError
from state_backends.factory import MAPS
from state_backends.journal.dead_letters import put_aside
from state_backends.journal.ledger import share
from state_backends.maps.batch_map import BatchMap
from state_backends.maps.updaters import Replace
from state_backends.protocols import IBackingMap, Updater
from state_backends.spec import StateSpec
from state_backends.table import StateTable, commas
from state_backends.versioned import Key
from state_backends.visible import finished

# Rows per Arrow batch of new values.
EMITTED_ROWS = 10_000


@dataclass
class Done:
    """What one task did. keys: how many it wrote. refused: groups put aside as dead letters. emitted: new values."""

    keys: int
    refused: int = 0
    emitted: list[pa.RecordBatch] = field(default_factory=list)


@dataclass(frozen=True)
class MergeTask:
    """Folds partial aggregates into a state. emits: the schema of the new values, None where nobody wants them."""

    spec: StateSpec
    context: BatchContext
    emits: pa.Schema | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Done:
        batch, spec = self.context.batch, self.spec
        refused = RefusedGroups(spec)
        with connect(self.context.dsn, f"{batch.pipeline} {spec.name} {batch.txid}") as conn, conn.transaction():
            share(conn, batch)
            keys = self.context.backing(conn, spec).merge(refused.sift(batches), batch.txid, batch.batch_time)
            if spec.changelog:
                self.context.changelog(conn, spec).append(batch.txid)
            emitted = [] if self.emits is None else list(self._new_values(conn, self.emits))
            return Done(keys, _put_aside(conn, self.context, refused, spec), emitted)

    def _new_values(self, conn: psycopg.Connection, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        statement = new_values_sql(self.context.table(self.spec))
        batch = self.context.batch
        cursor = conn.execute(statement, {"batch_time": batch.batch_time, "ttl": self.spec.ttl})
        while rows := cursor.fetchmany(EMITTED_ROWS):
            yield pa.RecordBatch.from_arrays(as_columns(rows, schema), schema=schema)


@dataclass(frozen=True)
class UpdateTask:
    """Gives the tuples of a partition to an updater, with one of Tidemark's states."""

    spec: StateSpec
    updater: StateUpdater
    context: BatchContext
    emits: pa.Schema

    def run(self, batches: Iterable[pa.RecordBatch]) -> Done:
        batch, spec = self.context.batch, self.spec
        refused, collector = RefusedGroups(spec), _Collector()
        with connect(self.context.dsn, f"{batch.pipeline} {spec.name} {batch.txid}") as conn, conn.transaction():
            share(conn, batch)
            counts = MAPS[spec.kind](self._backing(conn))
            counts.begin_commit(batch.txid, at=batch.batch_time)
            state = ConfinedState(counts, spec, self.context)
            for rows in refused.sift(batches):
                tuples = rows.to_pylist()
                state.hold(tuples)
                self.updater.update_state(state, tuples, collector)
            counts.commit(batch.txid)
            emitted = collector.batches(self.emits)
            return Done(len(state.written), _put_aside(conn, self.context, refused, spec), emitted)

    def _backing(self, conn: psycopg.Connection) -> IBackingMap:
        rows = self.context.backing(conn, self.spec)
        return LoggedMap(rows, self.context.changelog(conn, self.spec)) if self.spec.changelog else rows


@dataclass(frozen=True)
class StoreTask:
    """Gives the tuples of a partition to an updater, with a store of the user's own.

    The ledger's row is held meanwhile, so that a driver which was replaced cannot write; whether a replay counts once
    is up to the store, which is told the txid.
    """

    factory: StateFactory
    updater: StateUpdater
    context: BatchContext
    emits: pa.Schema
    name: str

    def run(self, batches: Iterable[pa.RecordBatch]) -> Done:
        batch, collector, given = self.context.batch, _Collector(), 0
        with connect(self.context.dsn, f"{batch.pipeline} {self.name} {batch.txid}") as conn, conn.transaction():
            share(conn, batch)
            with opened_state(self.factory) as state:
                state.begin_commit(batch.txid)
                for rows in batches:
                    self.updater.update_state(state, rows.to_pylist(), collector)
                    given += rows.num_rows
                state.commit(batch.txid)
            return Done(given, emitted=collector.batches(self.emits))


Task = MergeTask | UpdateTask | StoreTask


class ConfinedState:
    """A map state within one batch, whose writes are for the keys that this task was given. See BatchState."""

    def __init__(self, counts: BatchMap, spec: StateSpec, context: BatchContext) -> None:
        self.txid = context.batch.txid
        self.batch_time = context.batch.batch_time
        self.watermark = context.watermark
        self.written: set[Key] = set()
        self._counts = counts
        self._spec = spec
        self._held: set[Key] = set()

    def hold(self, tuples: Sequence[Mapping[str, Any]]) -> None:
        """Allow writes to the keys of these tuples."""
        self._held |= {self._spec.check_key(tuple(row[name] for name in self._spec.key)) for row in tuples}

    def multi_get(self, keys: Sequence[Key]) -> list[Any]:
        return self._counts.multi_get(keys)

    def multi_update(self, keys: Sequence[Key], updaters: Sequence[Updater]) -> list[Any]:
        typed = [self._checked(key) for key in keys]
        values = self._counts.multi_update(typed, updaters)
        self.written.update(typed)
        return values

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        self.multi_update(keys, [Replace(value) for value in values])

    def multi_remove(self, keys: Sequence[Key]) -> None:
        self.multi_put(keys, [None] * len(keys))

    def _checked(self, key: Key) -> Key:
        typed = self._spec.check_key(key)
        if typed not in self._held:
            raise KeyShapeError(
                f"state {self._spec.name!r}: the updater wrote key {key!r}, which none of its tuples has; another task "
                "may hold it, so emit it and update it from the new values stream"
            )
        return typed


class _Collector:
    """Keeps what an updater emits until its transaction is over."""

    def __init__(self) -> None:
        self._tuples: list[Values] = []

    def emit(self, *values: Any) -> None:
        self._tuples.append(values)

    def batches(self, schema: pa.Schema) -> list[pa.RecordBatch]:
        if not self._tuples:
            return []
        return [pa.RecordBatch.from_arrays(as_columns(self._tuples, schema), schema=schema)]


def new_values_sql(table: StateTable) -> sql.Composed:
    """Return the statement for what a merge made of the keys in the temporary table `incoming`.

    Key, finished measures, and for an opaque state those of the version before, null where readers saw none.
    """
    spec = table.spec
    parts: list[sql.Composable] = [_emitted(sql.Identifier("t", name), kind) for name, kind in spec.key.items()]
    for measure, aggregator in spec.measures.items():
        parts.append(_emitted(finished(measure, aggregator, "t"), aggregator.result_type))
    if table.keeps_previous:
        for measure, aggregator in spec.measures.items():
            before = _emitted(finished(measure, aggregator, "before"), aggregator.result_type)
            parts.append(sql.SQL("CASE WHEN before.was THEN {} END").format(before))
    return sql.SQL("SELECT {parts} FROM {table} t JOIN incoming i ON {same} {before}").format(
        parts=commas(parts),
        table=table.name,
        same=table.same_key("i", "t"),
        before=_before_sql(table) if table.keeps_previous else sql.SQL(""),
    )


def _before_sql(table: StateTable) -> sql.Composed:
    return sql.SQL(
        "CROSS JOIN LATERAL (SELECT {previous}, t.prev_txid IS NOT NULL AND tidemark.is_live("
        "t.prev_removed, t.prev_updated_at, %(ttl)s::interval, %(batch_time)s) AS was) before"
    ).format(
        previous=commas(
            sql.SQL("{} AS {}").format(sql.Identifier("t", f"prev_{name}"), sql.Identifier(name))
            for name in table.values
        )
    )


def _emitted(expression: sql.Composable, sql_type: str) -> sql.Composable:
    """Cast what Arrow would not take as PostgreSQL gives it."""
    casts = {"jsonb": "::text", "json": "::text", "uuid": "::text", "numeric": "::numeric(38, 9)"}
    return sql.SQL("({}){}").format(expression, sql.SQL(casts[sql_type])) if sql_type in casts else expression


def _put_aside(conn: psycopg.Connection, context: BatchContext, refused: RefusedGroups, spec: StateSpec) -> int:
    if not refused.letters:
        return 0
    task = TaskContext.get()
    # A task that runs again has the same ones again.
    part = task.partitionId() if task else 0
    return put_aside(conn, context.batch, refused.letters, state=spec.name, part=part)

"""What a task does to a state with the tuples of one partition, under the ledger's row or the state's own guard."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from pyspark import TaskContext

from pipelines.connection import connect
from pipelines.context import BatchContext
from pipelines.functions import StateFactory, StateUpdater, Values
from pipelines.homes import home
from pipelines.refused_groups import RefusedGroups
from pipelines.stores import opened_state
from pipelines.tuples import as_columns
from pipelines.whole_keys import whole_keys
from state_backends.errors import KeyShapeError
from state_backends.factory import MAPS
from state_backends.journal.dead_letters import put_aside
from state_backends.journal.ledger import share
from state_backends.maps.batch_map import BatchMap
from state_backends.maps.updaters import Replace
from state_backends.protocols import Updater
from state_backends.row import Key
from state_backends.spec import StateSpec


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
        with connect(self.context.dsn, f"{batch.pipeline} {spec.name} {batch.txid}") as conn:
            state = home(self.context, conn, spec)
            with state.writing():
                keys = state.merge(refused.sift(batches))
                emitted = [] if self.emits is None else list(state.new_values(self.emits))
                return Done(keys, _put_aside(conn, self.context, refused, spec), emitted)


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
        with connect(self.context.dsn, f"{batch.pipeline} {spec.name} {batch.txid}") as conn:
            stored = home(self.context, conn, spec)
            with stored.writing(), stored.updating() as rows:
                counts = MAPS[spec.kind](rows)
                counts.begin_commit(batch.txid, at=batch.batch_time)
                state = ConfinedState(counts, spec, self.context)
                for part in whole_keys(refused.sift(batches), list(spec.key)):
                    tuples = part.to_pylist()
                    state.hold(tuples)
                    self.updater.update_state(state, tuples, collector)
                counts.commit(batch.txid)
                emitted = collector.batches(self.emits)
                return Done(len(state.written), _put_aside(conn, self.context, refused, spec), emitted)


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


def _put_aside(conn: psycopg.Connection, context: BatchContext, refused: RefusedGroups, spec: StateSpec) -> int:
    if not refused.letters:
        return 0
    task = TaskContext.get()
    # A task that runs again has the same ones again.
    part = task.partitionId() if task else 0
    with conn.transaction():
        share(conn, context.batch)
        return put_aside(conn, context.batch, refused.letters, state=spec.name, part=part)

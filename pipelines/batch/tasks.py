"""Tasks: what an executor does to states with the tuples of one partition.

A task writes while it holds the ledger's row, or under the guard of the state's own store. It writes all states in the
ledger's database in one transaction, because a commit waits for the disk and empties the session's temporary tables.
"""

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
from pyspark import TaskContext

from tidegauge.pipelines.batch.key_filter import KeyFilter
from tidegauge.pipelines.connections import connect, lent
from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.functions import StateFactory, StateUpdater, Values, opened_state
from tidegauge.pipelines.declare.retraction import check_totals
from tidegauge.pipelines.declare.tuples import as_columns
from tidegauge.state_backends.dead_letters.letters import write_dead_letters
from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.maps.batch_map import BatchMap
from tidegauge.state_backends.maps.updaters import Replace
from tidegauge.state_backends.protocols import Updater
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec


@dataclass
class Done:
    """What one task did. keys: how many it wrote. invalid: groups that became dead letters. emitted: new values.

    misfits: events that the state could not take.
    """

    keys: int
    invalid: int = 0
    emitted: list[pa.RecordBatch] = field(default_factory=list)
    misfits: int = 0


class _SpecTask:
    """A task that writes one of Tidegauge's states."""

    spec: StateSpec
    context: BatchContext

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def in_ledger(self) -> bool:
        return self.context.backends[self.spec.backend].tables is not None


@dataclass(frozen=True)
class MergeTask(_SpecTask):
    """Folds partial aggregates into a state. emits: the schema of the new values, None if no stream reads them.

    retracts: whether rows are taken away from the state.
    """

    spec: StateSpec
    context: BatchContext
    emits: pa.Schema | None = None
    retracts: bool = False

    def run(self, conn: psycopg.Connection, batches: Iterable[pa.RecordBatch]) -> Done:
        spec, key_filter = self.spec, KeyFilter(self.spec, partials=True)
        state = self.context.session(conn, spec)
        with state.writing():
            rows = _with_unfed(key_filter.filter_invalid(batches), self.context.in_force(spec))
            keys = state.merge(rows, first_run=_is_first_run())
            emitted = [] if self.emits is None else list(state.new_values(self.emits))
            key_filter.letters += state.refused
            if self.retracts:
                check_totals(spec, key_filter.letters)
            letters = _write_dead_letters(conn, self.context, key_filter, spec)
            return Done(keys, letters, emitted, key_filter.misfits)


@dataclass(frozen=True)
class UpdateTask(_SpecTask):
    """Gives the tuples of a partition to an updater, with one of Tidegauge's states."""

    spec: StateSpec
    updater: StateUpdater
    context: BatchContext
    emits: pa.Schema

    def run(self, conn: psycopg.Connection, batches: Iterable[pa.RecordBatch]) -> Done:
        batch, spec = self.context.batch, self.spec
        key_filter, collector = KeyFilter(spec, partials=False), _Collector()
        stored = self.context.session(conn, spec)
        with stored.writing(), stored.updating() as rows:
            counts = MAPS[spec.kind](rows, atomic=True)
            counts.begin_commit(batch.txid, at=batch.batch_time)
            state = TaskState(counts, spec, self.context)
            for part in whole_keys(key_filter.filter_invalid(batches), list(spec.key)):
                tuples = _with_one_nan(part.to_pylist(), spec)
                state.hold(tuples)
                self.updater.update_state(state, tuples, collector)
            counts.commit(batch.txid)
            emitted = collector.batches(self.emits)
            return Done(len(state.written), _write_dead_letters(conn, self.context, key_filter, spec), emitted)


@dataclass(frozen=True)
class StoreTask:
    """Gives the tuples of a partition to an updater, with a store of the user's own.

    The ledger's row is held meanwhile, so that a driver which was replaced cannot write. Whether a replay counts once
    depends on the store, which gets the txid.
    """

    factory: StateFactory
    updater: StateUpdater
    context: BatchContext
    emits: pa.Schema
    name: str
    in_ledger: ClassVar[bool] = False

    def run(self, conn: psycopg.Connection, batches: Iterable[pa.RecordBatch]) -> Done:
        batch, collector, given = self.context.batch, _Collector(), 0
        with conn.transaction():
            lock_fence(conn, batch)
            with opened_state(self.factory) as state:
                state.begin_commit(batch.txid)
                for rows in batches:
                    self.updater.update_state(state, rows.to_pylist(), collector)
                    given += rows.num_rows
                state.commit(batch.txid)
            return Done(given, emitted=collector.batches(self.emits))


Task = MergeTask | UpdateTask | StoreTask


def written(tasks: Sequence[Task], rows: Iterable[tuple[int, pa.RecordBatch]]) -> Iterator[tuple[int, Done]]:
    """Run the tasks of the states that have rows in one partition; yield what each did, once it is committed.

    rows: pairs of a state's place in `tasks` and some of its rows; those of a state come one after the other.
    """
    states = groupby(rows, key=itemgetter(0))
    for _, together in groupby(states, key=lambda state: tasks[state[0]].in_ledger):
        place, first = next(together)
        with _writer(tasks[place]) as conn:
            done = [
                (place, tasks[place].run(conn, (batch for _, batch in batches)))
                for place, batches in chain([(place, first)], together)
            ]
        yield from done


@contextmanager
def _writer(task: Task) -> Iterator[psycopg.Connection]:
    """Lend the connection for this task and those that share it; in a transaction if they write the ledger's database.

    A task of another store must find no open transaction, because it commits its changelog before it writes rows.
    """
    context = task.context
    name = f"{context.batch.pipeline} {task.name} {context.batch.txid}"
    if context.keeps_connections:
        with lent(context.dsn, name, in_transaction=task.in_ledger) as conn:
            yield conn
    else:
        with connect(context.dsn, name) as conn, conn.transaction() if task.in_ledger else nullcontext():
            yield conn


def _with_one_nan(tuples: list[dict[str, Any]], spec: StateSpec) -> list[dict[str, Any]]:
    """Give all tuples with a NaN in the key the same object, because two NaN objects are not equal as keys."""
    for name in spec.double_keys:
        for row in tuples:
            if row[name] != row[name]:
                row[name] = math.nan
    return tuples


class TaskState:
    """A map state within one batch that accepts writes only for the keys of this task. See BatchState."""

    def __init__(self, counts: BatchMap, spec: StateSpec, context: BatchContext) -> None:
        self.txid = context.batch.txid
        self.batch_time = context.batch.batch_time
        self.watermark = context.watermark
        self.written: set[Key] = set()
        self._counts = counts
        self._spec = spec
        self._unfed = context.in_force(spec).value_columns.keys() - spec.value_columns.keys()
        self._held: set[Key] = set()

    def hold(self, tuples: Sequence[Mapping[str, Any]]) -> None:
        """Allow writes to the keys of these tuples."""
        self._held |= {self._spec.check_key(tuple(row[name] for name in self._spec.key)) for row in tuples}

    def multi_get(self, keys: Sequence[Key]) -> list[Any]:
        return self._counts.multi_get(keys)

    def multi_update(self, keys: Sequence[Key], updaters: Sequence[Updater]) -> list[Any]:
        typed = [self._checked(key) for key in keys]
        values = self._counts.multi_update(typed, [_Carrying(updater, self._unfed) for updater in updaters])
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


@dataclass(frozen=True)
class _Carrying:
    """An updater that leaves the columns of unfed measures as they are."""

    updater: Updater
    columns: Collection[str]

    def update(self, stored: Any) -> Any:
        value = self.updater.update(stored)
        if not self.columns or value is None:
            return value
        return value | {name: (stored or {}).get(name) for name in self.columns}


def _with_unfed(batches: Iterable[pa.RecordBatch], spec: StateSpec) -> Iterator[pa.RecordBatch]:
    """Yield the batches with a column of nulls, which every fold ignores, for each measure that is not fed."""
    for batch in batches:
        for name in spec.partial_columns:
            if name not in batch.schema.names:
                batch = batch.append_column(name, pa.nulls(batch.num_rows))
        yield batch


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


def whole_keys(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in the same order, all rows of a key in one batch.

    An updater must get all tuples of a key in one call, but Arrow's size limit may have split them.
    batches: with the rows of a key next to each other. The last key of each is held back until another one comes.
    """
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        last = _key(batch, batch.num_rows - 1, key)
        begins = bisect_left(range(batch.num_rows), True, key=lambda row: _key(batch, row, key) == last)
        if held and (begins or _key(held[0], 0, key) != last):
            yield pa.concat_batches([*held, batch.slice(0, begins)])
            held = []
        elif begins:
            yield batch.slice(0, begins)
        held.append(batch.slice(begins))
    if held:
        yield pa.concat_batches(held)


def _key(batch: pa.RecordBatch, row: int, key: Sequence[str]) -> str:
    # Compared as text, because a NaN does not equal itself.
    return repr([batch[name][row].as_py() for name in key])


def _is_first_run() -> bool:
    task = TaskContext.get()
    return task is not None and task.attemptNumber() == 0


def _write_dead_letters(conn: psycopg.Connection, context: BatchContext, key_filter: KeyFilter, spec: StateSpec) -> int:
    if not key_filter.letters:
        return 0
    task = TaskContext.get()
    # Written as the partition's part, so that a task that runs again replaces its own letters.
    part = task.partitionId() if task else 0
    with conn.transaction():
        lock_fence(conn, context.batch)
        return write_dead_letters(conn, context.batch, key_filter.letters, state=spec.name, part=part)

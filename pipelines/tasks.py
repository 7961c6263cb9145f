"""Tasks: what an executor does to a state with the tuples of one partition.

A task writes under the ledger's row, or under the guard of the state's own store. Groups whose key cannot be stored (a
null part, a NUL character, a time out of range, too many bytes) are rare, and one of them in a COPY would stop the
pipeline. So they are filtered out by column, without Python per row, and kept as dead letters.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import orjson
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from pipelines.connections import connect, lent
from pipelines.context import BatchContext
from pipelines.functions import StateFactory, StateUpdater, Values, opened_state
from pipelines.misfits import MISFITS
from pipelines.tuples import as_columns
from state_backends.batch import lock_fence
from state_backends.dead_letters import DeadLetter, write_dead_letters
from state_backends.errors import KeyShapeError
from state_backends.maps import MAPS
from state_backends.maps.batch_map import BatchMap
from state_backends.maps.updaters import Replace
from state_backends.protocols import Updater
from state_backends.row import Key
from state_backends.spec import MAX_KEY_BYTES, StateSpec, stored_column

# The years 1 to 9999, in UTC: what a key may hold and every reader can read back.
MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
DAYS = (-719_162, 2_932_896)
UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


@dataclass
class Done:
    """What one task did. keys: how many it wrote. invalid: groups that became dead letters. emitted: new values.

    misfits: events that the state could not take.
    """

    keys: int
    invalid: int = 0
    emitted: list[pa.RecordBatch] = field(default_factory=list)
    misfits: int = 0


@dataclass(frozen=True)
class MergeTask:
    """Folds partial aggregates into a state. emits: the schema of the new values, None where no stream reads them."""

    spec: StateSpec
    context: BatchContext
    emits: pa.Schema | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Done:
        spec, key_filter = self.spec, KeyFilter(self.spec, partials=True)
        with writer(self.context, spec.name) as conn:
            state = self.context.session(conn, spec)
            with state.writing():
                keys = state.merge(_with_unfed(key_filter.filter_invalid(batches), self.context.in_force(spec)))
                emitted = [] if self.emits is None else list(state.new_values(self.emits))
                key_filter.letters += state.refused
                letters = _write_dead_letters(conn, self.context, key_filter, spec)
                return Done(keys, letters, emitted, key_filter.misfits)


@dataclass(frozen=True)
class UpdateTask:
    """Gives the tuples of a partition to an updater, with one of Tidemark's states."""

    spec: StateSpec
    updater: StateUpdater
    context: BatchContext
    emits: pa.Schema

    def run(self, batches: Iterable[pa.RecordBatch]) -> Done:
        batch, spec = self.context.batch, self.spec
        key_filter, collector = KeyFilter(spec, partials=False), _Collector()
        with writer(self.context, spec.name) as conn:
            stored = self.context.session(conn, spec)
            with stored.writing(), stored.updating() as rows:
                counts = MAPS[spec.kind](rows)
                counts.begin_commit(batch.txid, at=batch.batch_time)
                state = TaskState(counts, spec, self.context)
                for part in whole_keys(key_filter.filter_invalid(batches), list(spec.key)):
                    tuples = part.to_pylist()
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

    def run(self, batches: Iterable[pa.RecordBatch]) -> Done:
        batch, collector, given = self.context.batch, _Collector(), 0
        with writer(self.context, self.name) as conn, conn.transaction():
            lock_fence(conn, batch)
            with opened_state(self.factory) as state:
                state.begin_commit(batch.txid)
                for rows in batches:
                    self.updater.update_state(state, rows.to_pylist(), collector)
                    given += rows.num_rows
                state.commit(batch.txid)
            return Done(given, emitted=collector.batches(self.emits))


Task = MergeTask | UpdateTask | StoreTask


def writer(context: BatchContext, state: str) -> AbstractContextManager[psycopg.Connection]:
    """Return the connection with which a task writes a state, as a context."""
    name = f"{context.batch.pipeline} {state} {context.batch.txid}"
    return lent(context.dsn, name) if context.keeps_connections else connect(context.dsn, name)


class TaskState:
    """A map state within one batch, whose writes are for the keys that this task was given. See BatchState."""

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
    """Yield the batches with a column of nulls, which every fold takes as nothing, for each measure that is not fed."""
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


def _is_out_of_range(total: pa.Array) -> pa.BooleanArray:
    """Return where Spark could not compute a total: it is null, or an infinite double."""
    missing = pc.is_null(total)
    return pc.or_kleene(missing, pc.is_inf(total)) if pa.types.is_floating(total.type) else missing


def _outside(bounds: tuple[int, int], integers: pa.DataType) -> Callable[[pa.Array], pa.BooleanArray]:
    def is_outside(column: pa.Array) -> pa.BooleanArray:
        numbers = pc.cast(column, integers)
        return pc.or_(pc.less(numbers, bounds[0]), pc.greater(numbers, bounds[1]))

    return is_outside


# Key type to what may be wrong with a value of it, and the reason to give.
FAULTS: dict[str, tuple[Callable[[pa.Array], pa.BooleanArray], str]] = {
    "text": (lambda column: pc.match_substring(column, "\0"), "holds a NUL character"),
    "timestamptz": (_outside(MICROSECONDS, pa.int64()), "is outside the years 1 to 9999"),
    "date": (_outside(DAYS, pa.int32()), "is outside the years 1 to 9999"),
    "uuid": (lambda column: pc.invert(pc.match_substring_regex(column, UUID)), "is not a uuid"),
}


class KeyFilter:
    """Filters the Arrow batches of one partition; `letters` holds the invalid groups of those that passed.

    misfits: how many events were grouped apart, as they do not fit (see misfits.py).
    partials: whether the batches are partial aggregates, whose totals may be out of range; else tuples of any columns.
    """

    def __init__(self, spec: StateSpec, *, partials: bool) -> None:
        self.letters: list[DeadLetter] = []
        self.misfits = 0
        self._spec = spec
        self._texts = [name for name, kind in spec.key.items() if kind == "text"]
        self._totals = [
            (measure, stored_column(measure, suffix))
            for measure, aggregator in spec.measures.items()
            for suffix in getattr(aggregator, "totals", ())
            if partials
        ]
        self._faults = {name: FAULTS[kind] for name, kind in spec.key.items() if kind in FAULTS}

    def filter_invalid(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches without the groups that cannot be stored."""
        for batch in batches:
            rest = self._without_misfits(batch)
            for name in self._spec.key:
                rest = self._remove(rest, pc.is_null(rest[name]), f"key column {name} is null")
            for name, (is_faulty, reason) in self._faults.items():
                rest = self._remove(rest, is_faulty(rest[name]), f"key column {name} {reason}")
            if self._texts:
                too_long = pc.greater(self._text_bytes(rest), MAX_KEY_BYTES)
                rest = self._remove(rest, too_long, f"the key's text is over the limit of {MAX_KEY_BYTES} bytes")
            for measure, name in self._totals:
                reason = f"measure {measure}: the total of this batch alone is out of range"
                rest = self._remove(rest, _is_out_of_range(rest[name]), reason)
            if rest.num_rows:
                yield rest

    def _without_misfits(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if MISFITS not in batch.schema.names:
            return batch
        counts = batch[MISFITS]
        self.misfits += pc.sum(counts).as_py() or 0
        return batch.filter(pc.is_null(counts)) if counts.null_count < len(counts) else batch

    def _remove(self, batch: pa.RecordBatch, faulty: pa.BooleanArray, reason: str) -> pa.RecordBatch:
        if not faulty.true_count:
            return batch
        self.letters += [self._letter(group, reason) for group in _readable(batch.filter(faulty))]
        return batch.filter(pc.invert(faulty))

    def _text_bytes(self, batch: pa.RecordBatch) -> pa.Array:
        total = pc.binary_length(batch[self._texts[0]])
        for name in self._texts[1:]:
            total = pc.add(total, pc.binary_length(batch[name]))
        return total

    def _letter(self, group: dict[str, object], reason: str) -> DeadLetter:
        return DeadLetter(f"state {self._spec.name}", orjson.dumps(group, default=str).decode(), reason)


def _readable(groups: pa.RecordBatch) -> list[dict[str, object]]:
    """Return the groups as dicts; times that Python cannot hold as the numbers that Arrow stores."""
    for place, column in enumerate(groups.schema):
        if pa.types.is_temporal(column.type):
            numbers = pc.cast(groups[place], pa.int64() if pa.types.is_timestamp(column.type) else pa.int32())
            groups = groups.set_column(place, column.name, numbers)
    return groups.to_pylist()  # type: ignore[no-any-return]


def whole_keys(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in the same order, all rows of a key in one batch.

    An updater must have seen everything that the batch brings of a key; Arrow's size limit may have split it.
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
    # As text, in which a NaN equals itself.
    return repr([batch[name][row].as_py() for name in key])


def _write_dead_letters(conn: psycopg.Connection, context: BatchContext, key_filter: KeyFilter, spec: StateSpec) -> int:
    if not key_filter.letters:
        return 0
    task = TaskContext.get()
    # A task that runs again writes the same ones again.
    part = task.partitionId() if task else 0
    with conn.transaction():
        lock_fence(conn, context.batch)
        return write_dead_letters(conn, context.batch, key_filter.letters, state=spec.name, part=part)

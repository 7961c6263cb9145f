"""What every store outside the ledger's database has in common.

Its writes share no transaction with the ledger, so it guards itself (guard.py): the ledger tells it which attempt may
write before the attempt does, and which batch is committed once it is. The two are compared before a batch is opened,
committed and shown (comparison.py). A changelog is in PostgreSQL whatever the store.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, Protocol

import psycopg
import pyarrow as pa

from state_backends.backends.comparison import compare, ledger_side, mend
from state_backends.backends.guard import Attempt, GuardedMap
from state_backends.backends.wrappers import DeferredMap, LoggedMap
from state_backends.batch import Batch, lock_fence
from state_backends.changelog import Changelog
from state_backends.committed import is_live
from state_backends.dead_letters import DeadLetter, refusal, refused_fold
from state_backends.errors import CapabilityError, FindingError, FoldRangeError, SpecMismatchError
from state_backends.findings import recorded
from state_backends.maintenance import Horizon, Step, clock
from state_backends.maps import MAPS
from state_backends.maps.batch_map import BatchMap
from state_backends.maps.updaters import Fold
from state_backends.protocols import Capabilities, IBackingMap
from state_backends.reader.reader import Reader
from state_backends.reader.scanning import ScanningReader
from state_backends.rebuild import rebuild
from state_backends.row import Key, Versioned
from state_backends.schema.tables import create_changelog, extend_changelog
from state_backends.spec import StateSpec
from state_backends.table import StateTable
from state_backends.types import type_of

# Rows per Arrow batch of new values, and rows that Python folds at once.
EMITTED_ROWS = 10_000
FOLDED_ROWS = 5_000


class Upkeep(Protocol):
    """Pages of stored rows, to be freed. A page is handed back as it came; `len(page.rows)` is its size."""

    def pages(self) -> Iterator[Any]:
        """Yield all rows in pages."""

    def expire(self, page: Any, settled: int | None, clock: datetime, ttl: timedelta | None) -> int:
        """Free the rows whose ttl has run out at `clock`, written by batch `settled` or before; None: by any."""

    def drop_tombstones(self, page: Any, settled: int | None) -> int:
        """Free the rows that batch `settled` or an earlier one removed; None: whichever did."""

    def sizes(self) -> tuple[int, int]:
        """Return how many rows there are, and about how many bytes they take."""


class ExternalBackend(ABC):
    """See Backend. A store gives its rows, and what looks after them; the rest is here."""

    title: str
    capabilities = Capabilities()
    timeout_seconds: float | None = 60.0  # a call that takes longer has met a stuck server

    @abstractmethod
    def guarded(self, spec: StateSpec) -> GuardedMap:
        """Return the rows of a state."""

    @abstractmethod
    def upkeep(self, spec: StateSpec) -> Upkeep:
        """Return what frees rows of a state."""

    @abstractmethod
    def check(self) -> None: ...

    def stored_name(self, spec: StateSpec) -> str:
        """Return what the store calls the rows of a state, for people."""
        return f"rows of {spec.name!r}"

    def rows(self, conn: psycopg.Connection, spec: StateSpec) -> GuardedMap:
        return self.guarded(spec)

    def session(
        self, conn: psycopg.Connection, spec: StateSpec, batch: Batch, *, shadow: bool = False
    ) -> "ExternalSession":
        return ExternalSession(conn, self.guarded(spec), batch)

    def reader(self, conn: psycopg.Connection, spec: StateSpec, past: Reader | None) -> ScanningReader:
        return ScanningReader(conn, spec, self.guarded(spec), past)

    def committed_values(
        self, conn: psycopg.Connection, spec: StateSpec, keys: Sequence[Key], txid: int, at: datetime
    ) -> list[Any]:
        _, rows = self.guarded(spec).multi_get_committed(keys)
        return [row.value for row in rows]

    def check_new(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        if not self.guarded(spec).status().is_empty:
            raise SpecMismatchError(
                f"state {spec.name!r}: {self.title} has {self.stored_name(spec)} already, of another database or time; "
                "choose another name, or remove them first"
            )

    def create(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        """Create the changelog, if the state keeps one; rows need no room made."""
        if spec.changelog:
            create_changelog(conn, StateTable(spec))

    def add_measures(self, conn: psycopg.Connection, old: StateSpec, new: StateSpec) -> None:
        """Extend the changelog, if the state keeps one; a row without the measure holds nothing of it."""
        if new.changelog:
            table, held = StateTable(new), StateTable(old).values
            extend_changelog(conn, table, [name for name in table.values if name not in held])

    def check_names(self, conn: psycopg.Connection, spec: StateSpec, beside: Iterable[StateSpec]) -> None:
        return  # a state has one name there

    def check_replaceable(self, conn: psycopg.Connection, old: StateSpec, new: StateSpec) -> None:
        return  # nothing is replaced

    def copy(self, conn: psycopg.Connection, old: StateSpec, new: StateSpec) -> Iterator[int]:
        raise self._lacks(new, "copy its rows")

    def swap_copy(self, conn: psycopg.Connection, old: StateSpec, new: StateSpec) -> None:
        raise self._lacks(new, "copy its rows")

    def create_shadow(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        raise self._lacks(spec, "feed it a second time out of sight")

    def drop_shadow(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        return  # there is none

    def swap_shadow(
        self, conn: psycopg.Connection, old: StateSpec | None, spec: StateSpec, *, keep: bool = False
    ) -> None:
        raise self._lacks(spec, "feed it a second time out of sight")

    def swap_kept(self, conn: psycopg.Connection, current: StateSpec | None, old: StateSpec | None) -> None:
        return  # nothing is kept

    def drop_kept(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        return  # nothing is kept

    def catch_up(self, conn: psycopg.Connection, spec: StateSpec, start: Batch, *, is_new: bool) -> str:
        rows, ledger = self.guarded(spec), ledger_side(conn, spec, start.txid)
        warning = rows.check_store()
        if not is_new:
            # Twice: a driver of an older copy of the ledger must not stop the right one, and an attempt that is on its
            # way must not write behind the comparison.
            compare(rows, ledger)
        own = Attempt.at(start)
        rows.admit(*own)
        if is_new:
            rows.under(*own).publish(start.txid)
        else:
            compare(rows, ledger)
            mend(rows.under(*own), ledger)
        return warning

    def expire(self, conn: psycopg.Connection, spec: StateSpec) -> Iterator[Step]:
        upkeep = self.upkeep(spec)

        def free(page: Any, now: dict[str, Any]) -> int:
            settled = None if spec.kind == "non_transactional" else now["committed"]
            return upkeep.expire(page, settled, now["clock"], now["ttl"])

        if spec.ttl is not None:
            yield from _free_pages(conn, spec, "expired rows", upkeep, free)

    def compact(self, conn: psycopg.Connection, spec: StateSpec, horizon: Horizon) -> Iterator[Step]:
        upkeep = self.upkeep(spec)

        # The committed batch may come again, and then what it removed comes back; earlier ones are settled. No read in
        # the past looks at these rows.
        def free(page: Any, now: dict[str, Any]) -> int:
            return upkeep.drop_tombstones(page, None if spec.kind == "non_transactional" else now["committed"] - 1)

        return _free_pages(conn, spec, "tombstones", upkeep, free)

    def vacuum(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        return  # the store gives space back by itself

    def sizes(self, conn: psycopg.Connection, spec: StateSpec) -> tuple[int, int]:
        return self.upkeep(spec).sizes()

    def begin_rebuild(self, conn: psycopg.Connection, spec: StateSpec, *, goes_on: bool) -> None:
        rows = self.guarded(spec)
        if not goes_on:
            rows.begin_rebuild()
        elif not rows.status().is_rebuilding:
            raise FindingError(
                f"state {spec.name!r}: no rebuild of it was cut short in {self.title}; run it from the start, without "
                "--resume-from",
                spec.name,
            )

    def check_one_back(self, conn: psycopg.Connection, spec: StateSpec, to: int) -> None:
        compare(self.guarded(spec), ledger_side(conn, spec, to))

    def take_back(self, conn: psycopg.Connection, spec: StateSpec, to: int) -> None:
        self.begin_rebuild(conn, spec, goes_on=False)
        for _ in rebuild(Changelog(conn, spec), self.guarded(spec)):
            pass
        self.end_rebuild(conn, spec, to)

    def end_rebuild(self, conn: psycopg.Connection, spec: StateSpec, committed: int) -> None:
        self.guarded(spec).publish(committed)

    def _lacks(self, spec: StateSpec, what: str) -> CapabilityError:
        return CapabilityError(f"state {spec.name!r}: {self.title} cannot {what}")


class ExternalSession:
    """A state in a store of its own, under the attempt that the store has admitted. See BackendSession."""

    def __init__(self, conn: psycopg.Connection, rows: GuardedMap, batch: Batch) -> None:
        self._attempt = Attempt.at(batch)
        self.rows = rows.under(*self._attempt)
        self._conn, self._spec, self._batch = conn, rows.spec, batch
        self.refused: list[DeadLetter] = []
        self._merged: list[Key] = []

    def admit(self) -> None:
        with recorded(self._conn):
            self.rows.check_store()
            ledger = ledger_side(self._conn, self._spec, self._batch.txid - 1)
            compare(self.rows, ledger)
            self.rows.admit(*self._attempt)
            mend(self.rows, ledger)

    def check(self, keys: int | None) -> None:
        self.rows.check(self._batch.txid, keys)

    def publish(self, keys: int | None) -> None:
        with recorded(self._conn):
            self.rows.publish(self._batch.txid, keys)

    @contextmanager
    def writing(self) -> Iterator[None]:
        # Checked, not held: the store checks each write, and entries must be committed before their rows are put.
        with self._conn.transaction():
            lock_fence(self._conn, self._batch)
        yield

    @contextmanager
    def updating(self) -> Iterator[IBackingMap]:
        # An updater may write a key again and again; a task that dies in between must leave nothing half done.
        deferred = DeferredMap(self._logged)
        yield deferred
        deferred.store()

    def merge(self, batches: Iterable[pa.RecordBatch]) -> int:
        kept = list(batches)
        self._merged = [self._spec.check_key(key) for rows in kept for key in _keys(rows, list(self._spec.key))]
        return self._fold(kept)

    def new_values(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        refused = {letter.key for letter in self.refused}
        keys = (key for key in self._merged if key not in refused)
        fed = {name: measure for name, measure in self._spec.measures.items() if name in schema.names}
        spec = replace(self._spec, measures=fed)
        while chunk := list(islice(keys, EMITTED_ROWS)):
            emitted = list(new_values(spec, chunk, self.rows.multi_get(chunk), self._batch.batch_time))
            arrays = [
                pa.array(column, field.type) for column, field in zip(zip(*emitted, strict=True), schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def revert(self) -> None:
        self.rows.revert(self._batch.txid)
        if self._spec.changelog:
            Changelog(self._conn, self._spec).revert(self._batch.txid)

    def due_keys(self, due: str, before: datetime, most: int) -> list[Key]:
        """A scan of every row through the driver's memory: some 10 microseconds each."""
        times = ((_time(row.value, due), key) for key, row in self.rows.scan() if row.value is not None)
        return [key for _, key in sorted((time, key) for time, key in times if time and time <= before)[:most]]

    def _fold(self, batches: Sequence[pa.RecordBatch]) -> int:
        """Fold in Python, a chunk of keys at a time."""
        counts = MAPS[self._spec.kind](self._logged)
        counts.begin_commit(self._batch.txid, at=self._batch.batch_time)
        names = list(self._spec.partial_columns)
        partials = (partial for rows in batches for partial in rows.select(names).to_pylist())
        keys, merged = iter(self._merged), 0
        while chunk := list(islice(keys, FOLDED_ROWS)):
            merged += self._update(counts, chunk, list(islice(partials, len(chunk))))
        return merged

    def _update(self, counts: BatchMap, keys: Sequence[Key], partials: Sequence[dict[str, Any]]) -> int:
        try:
            counts.multi_update(keys, [Fold(self._spec, partial) for partial in partials])
        except FoldRangeError:
            # Nothing of the chunk was stored; it comes again without the keys that cannot be folded.
            keys, partials = self._without_refused(counts, keys, partials)
            counts.multi_update(keys, [Fold(self._spec, partial) for partial in partials])
        return len(keys)

    def _without_refused(
        self, counts: BatchMap, keys: Sequence[Key], partials: Sequence[dict[str, Any]]
    ) -> tuple[list[Key], list[dict[str, Any]]]:
        kept: list[tuple[Key, dict[str, Any]]] = []
        for key, stored, partial in zip(keys, counts.multi_get(keys), partials, strict=True):
            error = refusal(self._spec, stored, partial)
            if error is None:
                kept.append((key, partial))
            else:
                self.refused.append(refused_fold(self._spec, key, partial, error))
        return [key for key, _ in kept], [partial for _, partial in kept]

    @property
    def _logged(self) -> IBackingMap:
        if not self._spec.changelog:
            return self.rows
        return LoggedMap(self.rows, _FencedLog(self._conn, self._spec, self._batch))


class _FencedLog:
    """A changelog whose every write is a transaction under the ledger's row, committed before the rows are put."""

    def __init__(self, conn: psycopg.Connection, spec: StateSpec, batch: Batch) -> None:
        self.conn = conn
        self._batch = batch
        self._log = Changelog(conn, spec)

    def append_rows(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> int:
        with self.conn.transaction():
            lock_fence(self.conn, self._batch)
            return self._log.append_rows(keys, rows)

    def revert(self, txid: int) -> int:
        with self.conn.transaction():
            lock_fence(self.conn, self._batch)
            return self._log.revert(txid)


def new_values(
    spec: StateSpec, keys: Sequence[Key], rows: Sequence[Versioned | None], batch_time: datetime
) -> Iterator[tuple[Any, ...]]:
    """Yield for each row that a merge has written: key, finished measures, and for an opaque state those of before.

    rows[i]: what is stored under keys[i]; None is left out. The measures of before are null where readers saw none.
    """
    nothing = (None,) * len(spec.measures)
    for key, row in zip(keys, rows, strict=True):
        if row is None:
            continue
        emitted = (*map(_plain, key, spec.key.values()), *_finished(spec, row.value))
        if spec.kind == "opaque":
            was = row.prev_txid is not None and row.prev_at is not None
            was = was and is_live(row.prev is None, row.prev_at, spec.ttl, batch_time)  # type: ignore[arg-type]
            emitted += _finished(spec, row.prev) if was else nothing
        yield emitted


def _free_pages(
    conn: psycopg.Connection,
    spec: StateSpec,
    step: str,
    upkeep: Upkeep,
    free: Callable[[Any, dict[str, Any]], int],
) -> Iterator[Step]:
    # The ledger's row is shared meanwhile, so that no batch begins or ends under a page.
    seen = freed = 0
    for page in upkeep.pages():
        with conn.transaction():
            freed += free(page, clock(conn, spec.name))
        seen += len(page.rows)
        yield Step(step, seen, freed)


def _keys(rows: pa.RecordBatch, names: Sequence[str]) -> Iterable[Key]:
    return zip(*(rows[name].to_pylist() for name in names), strict=True) if names else [()] * rows.num_rows


def _finished(spec: StateSpec, value: Any) -> tuple[Any, ...]:
    measures = spec.finish(value)
    return tuple(_plain(measures[name], aggregator.result_type) for name, aggregator in spec.measures.items())


def _plain(value: Any, sql_type: str) -> Any:
    """Return what Arrow takes, as PostgreSQL casts it in postgres/session.py."""
    if value is None:
        return None
    if sql_type in ("jsonb", "json"):
        return json.dumps(value)
    if type_of(sql_type).digits:
        return type_of(sql_type).rounded(Decimal(value))
    return str(value) if sql_type == "uuid" else value


def _time(value: Any, due: str) -> datetime | None:
    time = value.get(due) if isinstance(value, dict) else None
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return time

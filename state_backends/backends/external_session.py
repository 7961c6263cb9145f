"""One batch on a store outside the ledger's database: what the driver and the tasks do there, under the store's guard.

The rows are folded here, in Python. The changelog is in PostgreSQL, so each write to it checks the ledger's fence.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

import psycopg

from tidegauge.state_backends.backends.comparison import compare, ledger_side, mend
from tidegauge.state_backends.backends.guard import Attempt, GuardedMap
from tidegauge.state_backends.backends.wrappers import DeferredMap, LoggedMap
from tidegauge.state_backends.changelog import Changelog
from tidegauge.state_backends.committed import is_live
from tidegauge.state_backends.dead_letters.letters import DeadLetter, refusal, refused_fold
from tidegauge.state_backends.errors import FoldRangeError
from tidegauge.state_backends.extras import OptionalModule
from tidegauge.state_backends.ledger.batch import Batch, lock_fence
from tidegauge.state_backends.ledger.findings import recorded
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.maps.batch_map import BatchMap
from tidegauge.state_backends.maps.updaters import Fold
from tidegauge.state_backends.protocols import IBackingMap
from tidegauge.state_backends.spec.row import Key, Versioned
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.types import type_of

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = OptionalModule("pyarrow")

# Rows per Arrow batch of new values, and rows that Python folds at once.
EMITTED_ROWS = 10_000
FOLDED_ROWS = 5_000


class ExternalSession:
    """The session of one attempt at a batch, for a state outside the ledger's database. See BackendSession."""

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
            # Compared before, so that a finding changes nothing; mended after, because only an admitted attempt writes.
            self.rows.admit(*self._attempt)
            mend(self.rows, ledger)

    def check(self, keys: int | None) -> None:
        self.rows.check(self._batch.txid, keys)

    def publish(self, keys: int | None) -> None:
        with recorded(self._conn):
            self.rows.publish(self._batch.txid, keys)

    @contextmanager
    def writing(self) -> Iterator[None]:
        # The fence is checked and released, because the store itself checks each write, and changelog entries must be
        # committed before their rows are put.
        with self._conn.transaction():
            lock_fence(self._conn, self._batch)
        yield

    @contextmanager
    def updating(self) -> Iterator[IBackingMap]:
        # Writes are deferred, because an updater may write a key several times, and a task that dies in between must
        # leave nothing half done.
        deferred = DeferredMap(self._logged)
        yield deferred
        deferred.store()

    def merge(self, batches: Iterable["pa.RecordBatch"], *, first_run: bool = False) -> int:
        kept = list(batches)
        self._merged = [self._spec.check_key(key) for rows in kept for key in _keys(rows, list(self._spec.key))]
        return self._fold(kept)

    def new_values(self, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
        refused = {letter.key for letter in self.refused}
        keys = (key for key in self._merged if key not in refused)
        fed = {name: measure for name, measure in self._spec.measures.items() if name in schema.names}
        spec = replace(self._spec, measures=fed)
        while chunk := list(islice(keys, EMITTED_ROWS)):
            emitted = list(new_values(spec, chunk, self.rows.multi_get(chunk), self._batch.batch_time))
            yield _as_arrow(emitted, schema)

    def revert(self) -> None:
        self.rows.revert(self._batch.txid)
        if self._spec.changelog:
            Changelog(self._conn, self._spec).revert(self._batch.txid)

    def due_keys(self, due: str, before: datetime, most: int) -> list[Key]:
        """Scan every row in the driver's memory, which takes some 10 microseconds a row."""
        return [key for time, key in sorted(self._timers(due)) if time <= before][:most]

    def next_due(self, due: str) -> datetime | None:
        return min((time for time, _ in self._timers(due)), default=None)

    def first_from(self, column: str, start: datetime | None) -> datetime | None:
        return min((time for time, _, _ in self._times(column) if start is None or time >= start), default=None)

    def values_between(
        self, column: str, start: datetime | None, stop: datetime, schema: "pa.Schema"
    ) -> Iterator["pa.RecordBatch"]:
        """Scan every row, which takes some 10 microseconds a row."""
        live = (
            (time, key, row)
            for time, key, row in self._times(column)
            if time < stop and (start is None or time >= start) and self._is_live(row)
        )
        found = sorted(live, key=lambda each: each[0])
        for first in range(0, len(found), EMITTED_ROWS):
            some = found[first : first + EMITTED_ROWS]
            # As transactional, so that an opaque row yields its current value only.
            spec = replace(self._spec, kind="transactional", ttl=None)
            keys, rows = [key for _, key, _ in some], [row for *_, row in some]
            yield _as_arrow(list(new_values(spec, keys, rows, self._batch.batch_time)), schema)

    def _times(self, column: str) -> Iterator[tuple[datetime, Key, Versioned]]:
        place = list(self._spec.key).index(column)
        return ((key[place], key, row) for key, row in self.rows.scan() if row.value is not None)

    def _is_live(self, row: Versioned) -> bool:
        at = row.at or self._batch.batch_time
        return is_live(row.value is None, at, self._spec.ttl, self._batch.batch_time)

    def _timers(self, due: str) -> Iterator[tuple[datetime, Key]]:
        times = ((due_at(row.value, due), key) for key, row in self.rows.scan())
        return ((time, key) for time, key in times if time is not None)

    def _fold(self, batches: Sequence["pa.RecordBatch"]) -> int:
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
            # Nothing of the chunk was stored, so it is folded again without the keys that cannot be folded.
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
    """A changelog in which each write is a transaction that locks the ledger's row and commits before rows are put."""

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


def _as_arrow(rows: Sequence[tuple[Any, ...]], schema: "pa.Schema") -> "pa.RecordBatch":
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def new_values(
    spec: StateSpec, keys: Sequence[Key], rows: Sequence[Versioned | None], batch_time: datetime
) -> Iterator[tuple[Any, ...]]:
    """Yield for each row that a merge has written: key, finished measures, and for an opaque state the former measures.

    rows[i]: the row stored under keys[i]; None is left out. Former measures are null if readers saw no row.
    """
    nothing = (None,) * len(spec.measures)
    for key, row in zip(keys, rows, strict=True):
        if row is None:
            continue
        emitted = (*map(_plain, key, spec.key.values()), *_finished(spec, row.value or {}))
        if spec.kind == "opaque":
            was = row.prev_txid is not None and row.prev_at is not None
            was = was and is_live(row.prev is None, row.prev_at, spec.ttl, batch_time)  # type: ignore[arg-type]
            emitted += _finished(spec, row.prev) if was else nothing
        yield emitted


def _keys(rows: "pa.RecordBatch", names: Sequence[str]) -> Iterable[Key]:
    return zip(*(rows[name].to_pylist() for name in names), strict=True) if names else [()] * rows.num_rows


def _finished(spec: StateSpec, value: Any) -> tuple[Any, ...]:
    measures = spec.finish(value)
    return tuple(_plain(measures[name], aggregator.result_type) for name, aggregator in spec.measures.items())


def _plain(value: Any, sql_type: str) -> Any:
    """Return a value that Arrow accepts, with the casts that PostgreSQL makes in postgres/session.py."""
    if value is None:
        return None
    if sql_type in ("jsonb", "json"):
        return json.dumps(value)
    if type_of(sql_type).digits:
        return type_of(sql_type).rounded(Decimal(value))
    return str(value) if sql_type == "uuid" else value


def due_at(value: Any, due: str) -> datetime | None:
    """Return the time in a column or member of a stored value, None if it has none; a time without a zone is UTC."""
    time = value.get(due) if isinstance(value, dict) else None
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return time

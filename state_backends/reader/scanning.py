"""ScanningReader: what StateReader answers, of a state whose rows are in another store than the ledger.

The store shows the batch that its driver has published there; the ledger knows that batch's time. Lookups take a call
or a few. A store that orders rows by key alone is scanned for anything else, so pages of entries are for people.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import islice
from typing import Any, NamedTuple, Protocol

import psycopg

from state_backends.errors import MovedOnError, NotCommittedError, OutOfReachError, SpecError, UnknownStateError
from state_backends.live import is_live
from state_backends.reader.json_form import json_form
from state_backends.reader.snapshot import Snapshot
from state_backends.spec import StateSpec
from state_backends.versioned import Key
from state_backends.visible import isolation

# Keys that one page of entries looks at, at most: half a second to a second here.
MOST_SCANNED = 50_000

# Looks at a state whose batches are published faster than it is read.
TRIES = 5

# Keys per call to a changelog that is scanned.
PAGE_KEYS = 5_000


class Version(Protocol):
    """What a reader of one batch sees of a key; `value`, as Versioned has it, is None unless `status` is found."""

    @property
    def status(self) -> str: ...
    @property
    def value(self) -> Any: ...
    @property
    def txid(self) -> int | None: ...
    @property
    def at(self) -> datetime | None: ...


class CommittedRows(Protocol):
    """Where the rows are; RedisBackingMap is one. `scan_committed` may raise MovedOnError on the way."""

    def multi_get_committed(self, keys: Sequence[Key]) -> tuple[int, Sequence[Version]]: ...

    def scan_committed(self) -> tuple[int, Iterator[tuple[Key, Version]]]: ...


class LoggedVersion(Protocol):
    """An entry of a changelog; Change is one. value: stored columns, or None where the batch removed the key."""

    @property
    def txid(self) -> int: ...
    @property
    def batch_time(self) -> datetime: ...
    @property
    def value(self) -> Any: ...


class PastRows(Protocol):
    """Where earlier versions are; Changelog is one."""

    def as_of(self, txid: int, keys: Sequence[Key]) -> Sequence[LoggedVersion | None]: ...

    def newest(self, upto: int, *, after: Key | None, limit: int) -> Sequence[tuple[Key, Sequence[LoggedVersion]]]: ...

    def check_reach(self, txid: int) -> None: ...


@dataclass(frozen=True)
class _Seen:
    """A version as a reader sees it, from the rows or from the past."""

    status: str
    value: Any
    txid: int | None
    at: datetime | None


MISSING = _Seen("missing", None, None, None)


class _Batch(NamedTuple):
    """A batch as the ledger has it. newest: the committed one. oldest: the first whose time is known."""

    txid: int
    attempt: int
    at: datetime | None
    newest: int
    oldest: int


class ScanningReader:
    """Reads one state as StateReader does. conn: any connection to the ledger's database. rows: where the state lives.

    past: opens its changelog, None where it keeps none; then the past is out of reach.
    """

    def __init__(
        self,
        conn: psycopg.Connection,
        spec: StateSpec,
        rows: CommittedRows,
        past: Callable[[psycopg.Connection, StateSpec], PastRows] | None = None,
    ) -> None:
        self.spec = spec
        self.isolation = isolation(spec)
        self._conn = conn
        self._rows = rows
        self._past_of = past

    def on(self, conn: psycopg.Connection) -> "ScanningReader":
        """Return the same reader over another connection."""
        other = copy(self)
        other._conn = conn
        return other

    def multi_get(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, as_of: int | None = None
    ) -> Snapshot:
        """Answer each key asked, as StateReader does, at the batch that is published where the rows are.

        as_of: answered from the changelog; without one only the published batch itself is within reach.
        """
        asked = self._checked(measures)
        typed = [self.spec.check_key(key, index) for index, key in enumerate(keys)]
        batch, versions = self._versions(typed, as_of)
        results = [
            {"key": key, "status": version.status, "value": self._answered(version.value, asked)}
            for key, version in zip(typed, versions, strict=True)
        ]
        return _snapshot(batch, results)

    def combine(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, as_of: int | None = None
    ) -> Snapshot:
        """Answer with the values of all these keys folded into one, as StateReader does."""
        if not self.spec.measures:
            raise SpecError(
                f"state {self.spec.name!r}: holds JSON values, which nothing folds; look its keys up, or give it "
                "measures"
            )
        asked = self._checked(measures)
        typed = list(dict.fromkeys(self.spec.check_key(key, index) for index, key in enumerate(keys)))
        batch, versions = self._versions(typed, as_of)
        statuses = [version.status for version in versions]
        values = [version.value for version in versions if version.status == "found"]
        result = {
            "keys": len(values),
            "missing": statuses.count("missing"),
            "expired": statuses.count("expired"),
            "value": self._answered(reduce(self.spec.fold, values) if values else {}, asked),
        }
        return _snapshot(batch, [result])

    def entries(
        self,
        *,
        search: str = "",
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 50,
        offset: int = 0,
        as_of: int | None = None,
    ) -> Snapshot:
        """Answer a page of live entries, as StateReader does, from the first 50,000 keys in key order.

        The snapshot says in `complete` whether that was all there is; a page in key order without a search is found
        early. Raises MovedOnError where batches are published so fast that no page can be read at one of them.
        """
        if order_by is not None:
            self._checked([order_by])
        for _ in range(TRIES):
            try:
                return self._page(search, order_by, descending, offset, offset + limit, as_of)
            except MovedOnError as error:
                moved_on = error
        raise moved_on

    def _page(
        self, search: str, order_by: str | None, descending: bool, first: int, last: int, as_of: int | None
    ) -> Snapshot:
        batch, rows = self._scan(as_of)
        scanned = _Bounded(rows, MOST_SCANNED)
        found = ((key, row) for key, row in scanned if row.status == "found" and _matches(key, search))
        page = list(islice(found, last)) if order_by is None else self._sorted(found, order_by, descending, last)
        entries = [
            {"key": key, "value": self.spec.finish(row.value), "txid": row.txid, "updated_at": row.at}
            for key, row in page[first:last]
        ]
        return _snapshot(batch, entries, complete=not scanned.was_cut_short)

    def _sorted(
        self, rows: Iterable[tuple[Key, _Seen]], measure: str, descending: bool, last: int
    ) -> list[tuple[Key, _Seen]]:
        """Return the first `last` rows by a measure, nulls behind; equal ones stay in key order."""
        ranked = [(self.spec.finish(row.value)[measure], (key, row)) for key, row in rows]
        some = [pair for pair in ranked if pair[0] is not None]
        pick = heapq.nlargest if descending else heapq.nsmallest
        try:
            picked = pick(last, some, key=lambda pair: _rank(pair[0]))
        except TypeError:
            raise SpecError(f"state {self.spec.name!r}: measure {measure!r} has no order") from None
        return [row for _, row in [*picked, *(pair for pair in ranked if pair[0] is None)][:last]]

    def _checked(self, measures: Sequence[str] | None) -> list[str]:
        known = list(self.spec.measures) or ["value"]
        for measure in measures or []:
            if measure not in known:
                raise SpecError(f"state {self.spec.name!r}: no measure {measure!r}; there are {', '.join(known)}")
        return list(dict.fromkeys(known if measures is None else measures))

    def _answered(self, value: Any, measures: Sequence[str]) -> Any:
        if value is None or not self.spec.measures:
            return value
        finished = self.spec.finish(value)
        return {measure: finished[measure] for measure in measures}

    def _versions(self, keys: Sequence[Key], as_of: int | None) -> tuple[_Batch, Sequence[Version]]:
        batch = None if as_of is None else self._batch_then(as_of)
        if batch is not None and self._past_of is not None:
            log = self._past_of(self._conn, self.spec)
            return batch, [self._as_seen(change, batch) for change in log.as_of(batch.txid, keys)]
        txid, rows = self._rows.multi_get_committed(keys)
        return self._published(txid, as_of), rows

    def _scan(self, as_of: int | None) -> tuple[_Batch, Iterator[tuple[Key, Any]]]:
        batch = None if as_of is None else self._batch_then(as_of)
        if batch is not None and self._past_of is not None:
            return batch, self._scan_past(self._past_of(self._conn, self.spec), batch)
        txid, rows = self._rows.scan_committed()
        return self._published(txid, as_of), rows

    def _scan_past(self, log: PastRows, batch: _Batch) -> Iterator[tuple[Key, _Seen]]:
        last: Key | None = None
        while page := log.newest(batch.txid, after=last, limit=PAGE_KEYS):
            log.check_reach(batch.txid)
            yield from ((key, self._as_seen(versions[0], batch)) for key, versions in page)
            last = page[-1][0]

    def _as_seen(self, change: LoggedVersion | None, batch: _Batch) -> _Seen:
        """Return what a reader saw of a version then, whose clock was the time of that batch."""
        if change is None or change.value is None:
            return MISSING
        if batch.at is not None and not is_live(False, change.batch_time, self.spec.ttl, batch.at):
            return _Seen("expired", None, change.txid, change.batch_time)
        value = change.value if self.spec.measures else change.value["value"]
        return _Seen("found", value, change.txid, change.batch_time)

    def _published(self, txid: int, as_of: int | None) -> _Batch:
        if as_of is not None and as_of != txid:
            raise OutOfReachError(self.spec.name, as_of, txid)
        return self._batch(txid)

    def _batch_then(self, txid: int) -> _Batch:
        batch = self._batch(txid)
        if txid > batch.newest:
            raise NotCommittedError(self.spec.name, txid, batch.newest)
        if txid < batch.oldest:
            raise OutOfReachError(self.spec.name, txid, batch.oldest)
        return batch

    def _batch(self, txid: int) -> _Batch:
        row = self._conn.execute(
            "SELECT coalesce(b.attempt, 0), b.batch_time, p.committed_txid, "
            "(SELECT coalesce(nullif(min(o.txid), 1), 0) FROM tidemark.batch o WHERE o.pipeline = p.name) "
            "FROM tidemark.state s JOIN tidemark.pipeline p ON p.name = s.pipeline "
            "LEFT JOIN tidemark.batch b ON b.pipeline = p.name AND b.txid = %s WHERE s.name = %s",
            [txid, self.spec.name],
        ).fetchone()
        if row is None:
            raise UnknownStateError(f"state {self.spec.name!r} is not registered with any pipeline")
        return _Batch(txid, *row)


class _Bounded:
    """The first rows of a scan; says afterwards whether there were more."""

    def __init__(self, rows: Iterator[tuple[Key, Any]], most: int) -> None:
        self._rows, self._most = rows, most
        self.was_cut_short = False

    def __iter__(self) -> Iterator[tuple[Key, Any]]:
        yield from islice(self._rows, self._most)
        self.was_cut_short = next(self._rows, None) is not None


def _snapshot(batch: _Batch, results: list[Any], *, complete: bool = True) -> Snapshot:
    return Snapshot(batch.txid, batch.attempt, batch.at, json_form(results).encode(), complete)


def _matches(key: Key, search: str) -> bool:
    return not search or any(str(part).lower().startswith(search.lower()) for part in key)


def _rank(value: Any) -> Any:
    # PostgreSQL's order: a NaN is larger than every number.
    return (math.isnan(value), value) if isinstance(value, float) else (False, value)

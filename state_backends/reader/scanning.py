"""ScanningReader: answers like StateReader for a state whose rows are in another store than the ledger.

The store shows the batch that the driver has published there; the ledger knows that batch's time. A lookup takes one or
a few calls, and a page in key order a few more. A page sorted by a measure scans the state, so it is meant for people.
StateReader answers reads of the past, because changelogs are in PostgreSQL whatever store has the rows.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import reduce
from itertools import islice
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import psycopg

from tidegauge.state_backends.committed import isolation
from tidegauge.state_backends.errors import MovedOnError
from tidegauge.state_backends.reader.bounds import (
    MOST_SCANNED,
    KeyRange,
    Place,
    check_after,
    check_folds,
    check_measures,
    check_order,
)
from tidegauge.state_backends.reader.filters import Where, meets
from tidegauge.state_backends.reader.groups import Grouping, too_many_to_group
from tidegauge.state_backends.reader.history import NEVER_ANOTHER
from tidegauge.state_backends.reader.ledger_commit import LedgerCommit
from tidegauge.state_backends.reader.query import RangeQuery
from tidegauge.state_backends.reader.reader import (
    Ask,
    CommittedBatch,
    Export,
    LedgerRow,
    Reader,
    ReadSteps,
    ShownRows,
    Snapshot,
    columns_of,
    expiry,
)
from tidegauge.state_backends.reader.scanned import (
    Bounded,
    CommittedRow,
    Order,
    Published,
    ResultForm,
    Row,
    json_form,
    matches,
    place_of,
    shown_key,
)
from tidegauge.state_backends.reader.shown_batch import LedgerBatch, ShownBatch
from tidegauge.state_backends.spec.row import Key, Versioned
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.steps import run

Answer = TypeVar("Answer")

# How often to read if batches are published faster than the state is read.
TRIES = 5


class CommittedRows(Protocol):
    """The store of the rows, such as RedisBackingMap. `scan_committed` may raise MovedOnError after some rows.

    clock: the time at which ttl is evaluated; None: the store's current time, or this machine's.
    """

    def multi_get(self, keys: Sequence[Key]) -> Sequence[Versioned | None]: ...

    def multi_get_committed(
        self, keys: Sequence[Key], *, clock: datetime | None = None
    ) -> tuple[Published, Sequence[CommittedRow]]: ...

    def scan_committed(
        self,
        start: Key | None = None,
        stop: Key | None = None,
        prefix: Key | None = None,
        *,
        after: Key | None = None,
    ) -> tuple[Published, Iterator[tuple[Key, CommittedRow]]]: ...


class _FoundPage(NamedTuple):
    """The rows found in a range. after: where the next page continues; None at the end of the range."""

    batch: LedgerBatch
    rows: Sequence[Row]
    after: list[Any] | None
    complete: bool


class _Version(NamedTuple):
    """A version in a history; the value is None if the batch removed the key."""

    txid: int | None
    at: datetime | None
    value: Any


class ScanningReader(Reader):
    """Reads one state as StateReader does. conn: any connection to the ledger's database. rows: the store of the rows.

    past: reads the changelog. Without one, earlier batches are out of reach.
    """

    def __init__(
        self, conn: psycopg.Connection, spec: StateSpec, rows: CommittedRows, past: Reader | None = None
    ) -> None:
        self.spec = spec
        self.isolation = isolation(spec)
        self._conn = conn
        self._rows = rows
        self._past = past
        self._batches = ShownBatch(spec) if spec.partitions == 1 else LedgerCommit(spec)

    def on(self, conn: psycopg.Connection) -> Self:
        other = copy(self)
        other._conn = conn
        other._past = self._past and self._past.on(conn)
        return other

    def multi_get(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, at_txid: int | None = None
    ) -> Snapshot:
        if at_txid is not None and self._past is not None:
            return self._past.multi_get(keys, measures, at_txid=at_txid)
        return self._run(self._looked_up(keys, measures, at_txid))

    def multi_get_steps(self, keys: Sequence[Key], measures: Sequence[str] | None = None) -> ReadSteps[Snapshot]:
        return self._looked_up(keys, measures, None)

    def ask(
        self,
        keys: Sequence[Key],
        measures: Sequence[str] | None = None,
        *,
        combine: bool = False,
        at_txid: int | None = None,
    ) -> Ask | None:
        return None

    def combine(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, at_txid: int | None = None
    ) -> Snapshot:
        if at_txid is not None and self._past is not None:
            return self._past.combine(keys, measures, at_txid=at_txid)
        check_folds(self.spec)
        asked = check_measures(self.spec, measures)
        typed = list(dict.fromkeys(self.spec.check_keys(keys)))
        batch, versions = self._run(self._batches.versions(typed, at_txid))
        statuses = [version.status for version in versions]
        values = [version.value for version in versions if version.status == "found"]
        result = {
            "keys": len(values),
            "missing": statuses.count("missing"),
            "expired": statuses.count("expired"),
            "value": self._answered(reduce(self.spec.fold, values) if values else {}, asked),
        }
        return self._snapshot(batch, json_form([result]), versions)

    def read_page(self, query: RangeQuery) -> Snapshot:
        if query.at_txid is not None and self._past is not None:
            return self._past.read_page(query)
        check_order(self.spec, query.order_by)
        asked = check_measures(self.spec, query.measures)
        (bounds, conditions), place = query.bounds(self.spec), check_after(self.spec, query.order_by, query.after)
        order = None if query.order_by is None else Order(query.order_by, query.descending)
        page = self._until_still(
            lambda: self._look(bounds, conditions, order, place, query.limit, query.at_txid), query.at_txid
        )
        entries = json_form(self._entries(page.rows, asked))
        snapshot = self._snapshot(page.batch, entries, [row for _, row in page.rows])
        return replace(snapshot, complete=page.complete, after=page.after)

    def read_groups(self, by: Sequence[str], query: RangeQuery) -> Snapshot:
        if query.at_txid is not None and self._past is not None:
            return self._past.read_groups(by, query)
        grouping = Grouping.checked(self.spec, by, query.measures, query.order_by, query.descending, query.limit)
        bounds, conditions = query.bounds(self.spec)
        places = [list(self.spec.key).index(column) for column in grouping.by]

        def look() -> Snapshot:
            batch, rows = self._scan(bounds, None, query.at_txid)
            scanned = Bounded(rows, query.most_read)
            live = ((key, row.value) for key, row in scanned if row.status == "found")
            met = ((key, value) for key, value in live if meets(self.spec, conditions, key, value))
            parts = ((tuple(key[place] for place in places), value) for key, value in met)
            results, complete = grouping.results(self.spec, parts)
            if scanned.was_cut_short:
                raise too_many_to_group(self.spec, query.most_read)
            self._refuse_taken_back(batch)
            return Snapshot(*batch.shown, results, complete=complete)

        return self._until_still(look, query.at_txid)

    def history(self, key: Key, *, limit: int = 100, before: int | None = None) -> Snapshot:
        if self._past is not None:
            return self._past.history(key, limit=limit, before=before)
        typed = self.spec.check_key(key)
        published, versions, whole = self._until_still(lambda: self._carried(typed))
        on_hand = [version for version in versions if before is None or (version.txid or before) < before]
        batch = self._run(self._batches.published(published, None))
        results = [self._shown(version) for version in on_hand[:limit]]
        complete = whole or len(results) == limit
        return Snapshot(*batch.shown, json_form(results).encode(), complete=complete)

    def series(self, key: Key, *, since: datetime, until: datetime, step_seconds: float) -> Snapshot:
        if self._past is not None:
            return self._past.series(key, since=since, until=until, step_seconds=step_seconds)
        typed = self.spec.check_key(key)
        # Few enough to pick from here, because a row has at most two versions.
        published, versions, _ = self._until_still(lambda: self._carried(typed))
        dated = [(version.at, version) for version in reversed(versions) if version.at and version.at < until]
        first = max(sum(at < since for at, _ in dated) - 1, 0)
        shown = [self._shown(version) for _, version in dated[first:]]
        return Snapshot(*self._run(self._batches.published(published, None)).shown, json_form(shown).encode())

    def open_export(self, query: RangeQuery, live_at: datetime | None = None) -> Export:
        if query.at_txid is not None and self._past is not None:
            return self._past.open_export(query, live_at)
        asked = list(dict.fromkeys(check_measures(self.spec, query.measures)))
        bounds, conditions = query.bounds(self.spec)
        batch, rows = self._scan(bounds, None, query.at_txid)
        resources = ExitStack()
        values = self._exported(rows, conditions, asked)
        resources.callback(values.close)
        return Export(*batch.shown, columns_of(self.spec, asked), values, resources)

    def committed(self) -> CommittedBatch:
        return self._run(self._batches.published(self._shown_now(), None)).shown

    def _run(self, steps: ReadSteps[Answer]) -> Answer:
        return run(steps, self._get)

    def _get(self, step: LedgerRow | ShownRows) -> Any:
        if isinstance(step, ShownRows):
            return step.of(self._rows)
        return self._conn.execute(step.statement, step.parameters).fetchone()

    def _looked_up(
        self, keys: Sequence[Key], measures: Sequence[str] | None, at_txid: int | None
    ) -> ReadSteps[Snapshot]:
        asked = check_measures(self.spec, measures)
        typed = self.spec.check_keys(keys)
        batch, versions = yield from self._batches.versions(typed, at_txid)
        return self._snapshot(batch, ResultForm(self.spec, asked).text(typed, versions), versions)

    def _look(
        self, bounds: KeyRange, where: Where, order: Order | None, place: Place | None, count: int, at_txid: int | None
    ) -> _FoundPage:
        """Return the first rows of a range after a place, all of one batch."""
        batch, rows = self._scan(bounds, place if order is None else None, at_txid)
        scanned = Bounded(rows, MOST_SCANNED)
        searched = (row for row in scanned if row[1].status == "found" and matches(row[0], bounds.search))
        found = (row for row in searched if meets(self.spec, where, row[0], row[1].value))
        page = list(islice(found, count)) if order is None else order.first(self.spec, found, place, count)
        self._refuse_taken_back(batch)
        return _FoundPage(batch, page, self._end(page, order, count, scanned), not scanned.was_cut_short)

    def _end(self, page: Sequence[Row], order: Order | None, count: int, scanned: Bounded) -> list[Any] | None:
        if page and len(page) == count:
            return place_of(self.spec, page[-1], order)
        if order is None and scanned.was_cut_short and scanned.last is not None:
            return shown_key(scanned.last)
        return None

    def _entries(self, rows: Sequence[Row], measures: Sequence[str]) -> list[dict[str, Any]]:
        return [
            {"key": key, "value": self._answered(row.value, measures), "txid": row.txid, "updated_at": row.at}
            for key, row in rows
        ]

    def _exported(self, rows: Iterator[Row], where: Where, measures: Sequence[str]) -> Generator[tuple[Any, ...]]:
        for key, row in rows:
            if row.status == "found" and meets(self.spec, where, key, row.value):
                yield (*key, *self._measured(row.value, measures).values())

    def _carried(self, key: Key) -> tuple[Published, list[_Version], bool]:
        """Return the published batch, the row's versions up to that batch, and whether these are all there were."""
        published = self._shown_now([key])
        txid = published.txid
        (row,) = self._rows.multi_get([key])
        versions = [] if row is None else [_Version(row.txid, row.at, row.value)]
        if row is not None and row.prev_txid is not None:
            versions.append(_Version(row.prev_txid, row.prev_at, row.prev))
        committed = [version for version in versions if version.txid is None or version.txid <= txid]
        # A single later version may be new, or all that a revert has left, so look whether the store has moved on.
        if not committed and (len(versions) == 2 or self._shown_now() != published):
            raise MovedOnError(f"state {self.spec.name!r}: the row of key {key!r} has moved on from batch {txid}")
        if row is None:
            return published, [], self._never_another(0)
        is_first = self.spec.kind == "opaque" and row.prev_txid is None
        return published, committed, is_first and self._never_another(row.txid)

    def _never_another(self, txid: int | None) -> bool:
        row = self._conn.execute(NEVER_ANOTHER, [txid, self.spec.name]).fetchone()
        return bool(row and row[0])

    def _shown(self, version: _Version) -> dict[str, Any]:
        status = "removed" if version.value is None else "found"
        value = self._answered(version.value, check_measures(self.spec, None))
        return {"txid": version.txid, "at": version.at, "status": status, "value": value}

    def _answered(self, value: Any, measures: Sequence[str]) -> Any:
        if value is None or not self.spec.measures:
            return value
        return self._measured(value, measures)

    def _measured(self, value: Any, measures: Sequence[str]) -> dict[str, Any]:
        finished = self.spec.finish(value)
        return {measure: finished[measure] for measure in measures}

    def _scan(self, bounds: KeyRange, after: Place | None, at_txid: int | None) -> tuple[LedgerBatch, Iterator[Row]]:
        pinned = self._run(self._batches.pinned(at_txid))
        options: dict[str, Any] = {} if pinned is None else {"pinned": pinned}
        behind = None if after is None else after.key
        published, rows = self._rows.scan_committed(bounds.start, bounds.stop, bounds.prefix, after=behind, **options)
        return self._run(self._batches.published(published, at_txid)), rows

    def _snapshot(self, batch: LedgerBatch, results: str, versions: Sequence[CommittedRow]) -> Snapshot:
        times = [version.at for version in versions if version.status == "found" and version.at is not None]
        until = expiry(min(times, default=None), self.spec.ttl)
        return Snapshot(*batch.shown, results.encode(), until=until)

    def _until_still(self, look: Callable[[], Answer], at_txid: int | None = None) -> Answer:
        for _ in range(TRIES):
            try:
                return look()
            except MovedOnError as error:
                moved_on = error
        raise self._run(self._batches.explain(moved_on, at_txid))

    def _refuse_taken_back(self, batch: LedgerBatch) -> None:
        if self._shown_now().txid < batch.txid:
            raise MovedOnError(f"state {self.spec.name!r}: batch {batch.txid} was reverted while it was read")

    def _shown_now(self, keys: Sequence[Key] = ()) -> Published:
        return self._run(self._batches.now(keys))

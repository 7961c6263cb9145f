"""Reader: what can be asked of a state, and what comes back, wherever its rows live."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import psycopg

from tidegauge.state_backends.reader.arrow import from_rows
from tidegauge.state_backends.reader.bounds import MOST_SCANNED
from tidegauge.state_backends.reader.filters import Where
from tidegauge.state_backends.reader.query import RangeQuery
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec

if TYPE_CHECKING:
    import pyarrow as pa

# Rows per fetch of an export: few enough round trips not to count, and so few rows that a thread which reads them
# holds Python's interpreter for less than a millisecond.
FETCHED_ROWS = 1_000


@dataclass(frozen=True)
class Snapshot:
    """An answer and the batch it belongs to.

    txid: the committed batch, 0 before the first, or the earlier one that was asked for. attempt: which attempt at it
    was committed. as_of: its batch time. epoch: of the ledger; txids of two epochs have nothing to do with each other.
    results: a JSON array, as bytes ready to send.
    complete: False where a bounded scan has looked at some of the state alone, or a history has older versions that
    are out of reach.
    until: when the first of what was found expires, and the same question has another answer at the same batch; None
    where nothing does, or where ttl was evaluated at a batch in the past.
    after: of a page, what `page` takes as `after` to go on behind it; None where nothing is behind it. JSON holds it
    without loss.
    """

    txid: int
    attempt: int
    as_of: datetime | None
    epoch: str
    results: bytes
    complete: bool = True
    until: datetime | None = None
    after: list[Any] | None = None

    def parsed(self) -> list[dict[str, Any]]:
        return json.loads(self.results)  # type: ignore[no-any-return]


def expiry(oldest: datetime | None, ttl: timedelta | None) -> datetime | None:
    """Return when a version expires that was written at `oldest`; None: never, or not before the year 9999 is over."""
    if oldest is None or ttl is None:
        return None
    try:
        # In UTC, for a day is 24 hours: in other zones Python adds it to the clock on the wall.
        return oldest.astimezone(UTC) + ttl
    except OverflowError:
        return None


class CommittedBatch(NamedTuple):
    """What a read would answer now: (0, 0, None, ..) before the first batch. See Snapshot."""

    txid: int
    attempt: int
    as_of: datetime | None
    epoch: str


class Ask(NamedTuple):
    """A lookup as a statement over the ledger's database, which one row answers.

    width: its columns. read: turns the row into the answer.
    """

    statement: bytes
    parameters: list[Any]
    width: int
    read: Callable[[Sequence[Any]], Snapshot]


@dataclass
class Export:
    """Rows of one batch. columns: name to SQL type, the key's first, then the measures asked for.

    Take `batches()` or `record_batches()` once, and close when done, or use it as a context; a connection it was given
    is free again then. copied: gives Arrow batches of the rows without making Python values of them, if the store can.
    """

    txid: int
    attempt: int
    as_of: datetime | None
    epoch: str
    columns: Mapping[str, str]
    rows: Iterator[tuple[Any, ...]] = field(repr=False)
    resources: ExitStack = field(default_factory=ExitStack, repr=False)
    copied: Callable[["pa.Schema"], Iterator["pa.RecordBatch"]] | None = field(default=None, repr=False)

    def batches(self) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows in key order, up to 1,000 at a time, as Python values; JSON is parsed.

        Raises MovedOnError where the rows are in a store that publishes batches faster than they are read: what came
        before is of one batch, and nothing else may be put behind it.
        """
        with self:
            while rows := list(islice(self.rows, FETCHED_ROWS)):
                yield rows

    def record_batches(self, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
        """Yield the rows in key order as Arrow batches. schema: with the columns of this export, by place.

        JSON and uuids are text. Raises MovedOnError as `batches` does, ValueShapeError where a value does not fit.
        """
        with self:
            yield from from_rows(self.rows, self.columns, schema) if self.copied is None else self.copied(schema)

    def close(self) -> None:
        self.resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def columns_of(spec: StateSpec, measures: list[str]) -> dict[str, str]:
    types = {name: measure.result_type for name, measure in spec.measures.items()} or {"value": "jsonb"}
    return {**spec.key, **{name: types[name] for name in measures}}


class Reader(Protocol):
    """Reads one state at its pipeline's committed batch, or as of an earlier one.

    spec: the state's. isolation: `committed` where answers are of whole batches only, else `uncommitted`.
    Every call may raise UnknownStateError, for a state that no pipeline feeds. With `as_of` it answers as after that
    batch, at whose time ttl is evaluated, and may raise OutOfReachError, naming the oldest batch from which on what is
    asked can be told, and NotCommittedError.
    """

    spec: StateSpec
    isolation: str

    def on(self, conn: psycopg.Connection) -> Self:
        """Return the same reader over another connection; the statements it has composed come along."""

    def multi_get(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, as_of: int | None = None
    ) -> Snapshot:
        """Answer each key asked, in the order asked; a key asked twice is answered twice.

        keys: n tuples. measures: which ones to answer; None means all.
        Each result is `{"key": [..], "status": "found" | "missing" | "expired", "value": {measure: ..} | null}`. In the
        past an expired key may be answered as missing, and the other way round: cleaning up has no history.
        Raises KeyShapeError naming the key's index, SpecError for an unknown measure.
        """

    def combine(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, as_of: int | None = None
    ) -> Snapshot:
        """Answer with the values of all these keys folded into one: counts add, distinct counts are unions.

        The one result is `{"keys": found, "missing": n, "expired": n, "value": {measure: ..}}`; the value is over the
        keys found, and what an empty state would give where none is. A key asked twice folds once. Trident's aggregate
        behind a state query.
        Raises what multi_get does; SpecError for a state of JSON values, which nothing says how to fold.
        """

    def ask(
        self,
        keys: Sequence[Key],
        measures: Sequence[str] | None = None,
        *,
        combine: bool = False,
        as_of: int | None = None,
    ) -> Ask | None:
        """Return what `multi_get`, or `combine`, asks, for one statement over several states (see multi_state.py).

        None where the rows are not in the ledger's database. Raises what those raise for keys and measures.
        """

    def page(
        self,
        *,
        prefix: Key = (),
        start: Key | None = None,
        stop: Key | None = None,
        search: str = "",
        order_by: str | None = None,
        descending: bool = False,
        after: Sequence[Any] | None = None,
        limit: int = 50,
        most_sorted: int = 0,
        measures: Sequence[str] | None = None,
        where: Where = (),
        as_of: int | None = None,
    ) -> Snapshot:
        """Answer a page of live entries: `[{"key": [..], "value": {..}, "txid": T, "updated_at": ".."}, ..]`.

        prefix, start, stop: the first parts of a key; keys under `prefix`, from `start` (with it) to `stop` (without
        it). search: keep keys with a part that begins so, whatever its case. order_by: a measure, nulls last and ties
        in key order, NaN the largest number; None orders by key, and then page n costs what the first one does.
        after: the last entry of the page before, its key, or `[value, key]` where a measure orders; JSON forms are
        taken, and numbers as text. A snapshot's `after` is that, without loss.
        Pages in key order hold every key that is there throughout once, whatever is committed between them. By a
        measure, an entry whose value changes may come twice or not at all, except on pages `as_of` one batch.
        where: conditions that an entry meets, all of them (see filters.py). In key order a page looks at 50,000 keys at
        most to find entries that do: `complete` is False where it has ended for that, and `after` goes on.
        most_sorted: keys that a page by a measure may read, which is its whole range; 0: no limit.
        as_of: entries of the page must be told then, those between `after` and its last one; by a measure all.
        Raises KeyShapeError where a bound or `after` does not fit, SpecError for a measure there is not, or one without
        an order, FilterError for a condition that does not fit, RangeTooLargeError. Where the rows are not in the
        ledger's database a page looks at 50,000 keys, `complete` says whether that was all it takes, and MovedOnError
        is raised where batches are published so fast that no page can be read at one of them.
        """
        query = RangeQuery(
            prefix=prefix, start=start, stop=stop, search=search, where=where, measures=measures, order_by=order_by,
            descending=descending, after=after, limit=limit, most_read=most_sorted, as_of=as_of,
        )  # fmt: skip
        return self.read_page(query)

    def read_page(self, query: RangeQuery) -> Snapshot:
        """Answer `page`."""

    def groups(
        self,
        by: Sequence[str],
        *,
        prefix: Key = (),
        start: Key | None = None,
        stop: Key | None = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 50,
        most_folded: int = MOST_SCANNED,
        measures: Sequence[str] | None = None,
        where: Where = (),
        as_of: int | None = None,
    ) -> Snapshot:
        """Answer the live entries of a range folded by key columns:
        `[{"key": [parts of `by`], "keys": how many were folded, "value": {..}}, ..]`, the first `limit` of them.

        by: one or more key columns; their order is that of the key. measures: those of each group, and `order_by`'s.
        prefix, start, stop, where, as_of, order_by: as of a page; the conditions are met by entries, not by groups.
        most_folded: rows that may be read and folded. The snapshot's `complete` is False where there are more groups.
        Raises SpecError for a name that is not a key column, and for a state of JSON values, which has no fold;
        RangeTooLargeError; otherwise what `page` does.
        """
        query = RangeQuery(
            prefix=prefix, start=start, stop=stop, where=where, measures=measures, order_by=order_by,
            descending=descending, limit=limit, most_read=most_folded, as_of=as_of,
        )  # fmt: skip
        return self.read_groups(by, query)

    def read_groups(self, by: Sequence[str], query: RangeQuery) -> Snapshot:
        """Answer `groups`."""

    def history(self, key: Key, *, limit: int = 100, before: int | None = None) -> Snapshot:
        """Answer the committed versions of a key, newest first:
        `[{"txid": T, "at": "..", "status": "found" | "removed", "value": {..} | null}, ..]`.

        From the changelog; without one the versions that the row still carries, up to two. before: only those of
        batches before this one. The snapshot's `complete` is False where the answer ends with the oldest version on
        hand and older ones may have been taken away. A state without txids answers null for one.
        Raises KeyShapeError.
        """

    def series(self, key: Key, *, since: datetime, until: datetime, step_seconds: float) -> Snapshot:
        """Answer the committed versions of a key from `since` (with it) to `until` (without it), oldest first.

        Of those in one step of time the last one, so their number is bounded; before them the last one that was written
        before `since`. The versions are as in `history`. Raises KeyShapeError.
        """

    def export(
        self,
        *,
        prefix: Key = (),
        start: Key | None = None,
        stop: Key | None = None,
        measures: Sequence[str] | None = None,
        where: Where = (),
        as_of: int | None = None,
        live_at: datetime | None = None,
    ) -> Export:
        """Begin an export of the live entries of a range, in key order, at one batch whatever is committed meanwhile.

        The reader's connection is the export's until that is closed: give the reader one of its own (`on`), outside a
        transaction. prefix, start, stop, measures, where: as of a page. Errors come here, before the first row; where
        the rows are not in the ledger's database MovedOnError may come on the way, unless it is read from the
        changelog, with `as_of`. live_at: with `as_of`, the time at which ttl is evaluated, instead of that batch's; a
        store beside the ledger evaluates it as it reads.
        """
        query = RangeQuery(prefix=prefix, start=start, stop=stop, where=where, measures=measures, as_of=as_of)
        return self.open_export(query, live_at)

    def open_export(self, query: RangeQuery, live_at: datetime | None = None) -> Export:
        """Answer `export`."""

    def committed(self) -> CommittedBatch:
        """Return the batch that a read would answer now."""

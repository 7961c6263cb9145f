"""Reader: the questions that a state answers, and the form of the answers, whatever store its rows are in."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import psycopg

from tidegauge.state_backends.errors import CapabilityError, UnknownStateError
from tidegauge.state_backends.reader.arrow import from_rows
from tidegauge.state_backends.reader.bounds import MOST_SCANNED
from tidegauge.state_backends.reader.filters import Where
from tidegauge.state_backends.reader.query import RangeQuery
from tidegauge.state_backends.reader.scanned import Published
from tidegauge.state_backends.reader.windows import Windows, check_tiled
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.steps import Steps

if TYPE_CHECKING:
    import pyarrow as pa

Result = TypeVar("Result")

# Rows per fetch of an export: enough that round trips do not matter, and so few that reading them holds Python's
# interpreter for less than a millisecond, because lookups in other threads need it some twenty times each.
FETCHED_ROWS = 1_000


@dataclass(frozen=True)
class Snapshot:
    """An answer and the batch it belongs to.

    txid: the committed batch, 0 before the first, or the earlier one that was requested. attempt: which attempt at it
    was committed. batch_time: the time of that batch. epoch: of the ledger; txids of two epochs cannot be compared.
    results: a JSON array, as bytes ready to send.
    complete: False if a bounded scan has read only a part of the state, or if a history has older versions that are out
    of reach.
    until: when the first of the found entries expires, so that the same question at the same batch has another answer;
    None if nothing expires, or if ttl was evaluated at a batch in the past.
    after: of a page, the argument `after` for the next page, which JSON holds without loss; None if no page follows.
    """

    txid: int
    attempt: int
    batch_time: datetime | None
    epoch: str
    results: bytes
    complete: bool = True
    until: datetime | None = None
    after: list[Any] | None = None

    def parsed(self) -> list[dict[str, Any]]:
        return json.loads(self.results)  # type: ignore[no-any-return]


def expiry(oldest: datetime | None, ttl: timedelta | None) -> datetime | None:
    """Return when a version that was written at `oldest` expires; None: never, or after the year 9999."""
    if oldest is None or ttl is None:
        return None
    try:
        # In UTC, because a day of a ttl is 24 hours, and in other zones Python adds it to local time.
        return oldest.astimezone(UTC) + ttl
    except OverflowError:
        return None


class CommittedBatch(NamedTuple):
    """The batch that a read would answer now: (0, 0, None, ..) before the first batch. See Snapshot."""

    txid: int
    attempt: int
    batch_time: datetime | None
    epoch: str


class Ask(NamedTuple):
    """A lookup as a statement over the ledger's database that returns one row.

    width: the number of its columns. read: turns the row into the answer.
    """

    statement: bytes
    parameters: list[Any]
    width: int
    read: Callable[[Sequence[Any]], Snapshot]


class LedgerRow(NamedTuple):
    """A step of a read asks for the first row of a statement over the ledger's database; None if there is none."""

    statement: bytes
    parameters: Sequence[Any]


class ShownRows(NamedTuple):
    """A step of a read asks a store outside of the ledger's database for what `multi_get_committed` returns.

    pinned: read this batch, of this attempt, and not the one that the store shows; for spread states only. The answer
    is of another batch if a row does not show it.
    """

    keys: Sequence[Key]
    pinned: Published | None = None

    def of(self, rows: Any) -> Any:
        """Return the answer of rows for threads, or await that of rows for an event loop."""
        more = {} if self.pinned is None else {"pinned": self.pinned}
        return rows.multi_get_committed(self.keys, **more)


ReadSteps: TypeAlias = Steps[LedgerRow | ShownRows, Result]


@dataclass
class Export:
    """Rows of one batch. columns: name to SQL type, first the key's, then the requested measures.

    Call `batches()` or `record_batches()` once, and close it when done, or use it as a context; then the connection is
    free again. copied: yields Arrow batches of the rows without making Python values, if the store supports that.
    """

    txid: int
    attempt: int
    batch_time: datetime | None
    epoch: str
    columns: Mapping[str, str]
    rows: Iterator[tuple[Any, ...]] = field(repr=False)
    resources: ExitStack = field(default_factory=ExitStack, repr=False)
    copied: Callable[["pa.Schema"], Iterator["pa.RecordBatch"]] | None = field(default=None, repr=False)

    def batches(self) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows in key order, up to 1,000 at a time, as Python values; JSON is parsed.

        Raises MovedOnError if the rows are in a store that publishes batches faster than they are read. The rows before
        are of one batch; rows of another export must not be appended to them.
        """
        with self:
            while rows := list(islice(self.rows, FETCHED_ROWS)):
                yield rows

    def record_batches(self, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
        """Yield the rows in key order as Arrow batches. schema: has the columns of this export in their order.

        JSON and uuids are text. Raises MovedOnError as `batches` does, ValueShapeError if a value does not fit.
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

    spec: the state's. isolation: `committed` if answers are of whole batches only, else `uncommitted`.
    Every call may raise UnknownStateError, for a state that no pipeline feeds. With `at_txid` it answers as after that
    batch, evaluates ttl at that batch's time, and may raise NotCommittedError, or OutOfReachError, which names the
    oldest batch at which the same question can be answered.
    """

    spec: StateSpec
    isolation: str

    def on(self, conn: psycopg.Connection) -> Self:
        """Return the same reader over another connection. It shares the statements that were composed already."""

    def multi_get(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, at_txid: int | None = None
    ) -> Snapshot:
        """Answer each key, in the order of `keys`; a repeated key is answered each time.

        keys: n tuples. measures: which ones to answer; None means all.
        Each result is `{"key": [..], "status": "found" | "missing" | "expired", "value": {measure: ..} | null}`. In the
        past an expired key may be answered as missing, and the other way round, because expiry has no history.
        Raises KeyShapeError naming the key's index, SpecError for an unknown measure.
        """

    def combine(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, at_txid: int | None = None
    ) -> Snapshot:
        """Answer with the values of all these keys folded into one: counts add, distinct counts are unions.

        The one result is `{"keys": found, "missing": n, "expired": n, "value": {measure: ..}}`. The value is folded
        from the found keys; if there are none, it is that of an empty state. A repeated key is folded once. Trident's
        aggregate after a state query.
        Raises what multi_get does; SpecError for a state of JSON values, which have no fold.
        """

    def ask(
        self,
        keys: Sequence[Key],
        measures: Sequence[str] | None = None,
        *,
        combine: bool = False,
        at_txid: int | None = None,
    ) -> Ask | None:
        """Return the query of `multi_get`, or of `combine`, for one statement over several states (see multi_state.py).

        None if the rows are not in the ledger's database. Raises what those two raise for keys and measures.
        """

    def multi_get_steps(self, keys: Sequence[Key], measures: Sequence[str] | None = None) -> ReadSteps[Snapshot]:
        """Return `multi_get` at the committed batch as work in steps, for an event loop. They raise what it raises."""
        ask = self.ask(keys, measures)
        if ask is None:
            raise CapabilityError(f"state {self.spec.name!r}: its reader answers lookups in threads only")
        row = yield LedgerRow(ask.statement, ask.parameters)
        if row is None:
            raise UnknownStateError(f"state {self.spec.name!r} is not registered with any pipeline")
        return ask.read(row)

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
        at_txid: int | None = None,
    ) -> Snapshot:
        """Answer a page of live entries: `[{"key": [..], "value": {..}, "txid": T, "updated_at": ".."}, ..]`.

        prefix, start, stop: the first parts of a key; keys under `prefix`, from `start` (inclusive) to `stop`
        (exclusive). search: keep keys with a part that begins with this text, whatever its case. order_by: a measure,
        nulls last and ties in key order, NaN the largest number; a key column; None: by key, and then every page costs
        the same, as in PostgreSQL by the first key column.
        after: the last entry of the previous page: its key, or `[value, key]` with `order_by`; JSON forms are accepted,
        and numbers as text. A snapshot has it as `after`, without loss.
        Pages in key order show each key that exists throughout exactly once, whatever is committed between them. By a
        measure, an entry whose value changes may come twice or not at all, except on pages `at_txid` one batch.
        where: conditions that an entry must all meet (see filters.py). In key order a page reads at most 50,000 keys to
        find entries that do. If it ends at that limit, `complete` is False, and `after` continues from there.
        most_sorted: keys that a page by a measure may read, because it reads its whole range; 0: no limit.
        at_txid: entries between `after` and the last one must be known as of that batch; by a measure, all entries.
        Raises KeyShapeError for a bound or `after` that does not fit, SpecError for a measure that is unknown or has
        no order, FilterError for a condition that does not fit, RangeTooLargeError. If the rows are not in the ledger's
        database, a page reads at most 50,000 keys in any order, `complete` says whether those were enough, and
        MovedOnError is raised if batches are published so fast that no page can be read at one of them.
        """
        query = RangeQuery(
            prefix=prefix, start=start, stop=stop, search=search, where=where, measures=measures, order_by=order_by,
            descending=descending, after=after, limit=limit, most_read=most_sorted, at_txid=at_txid,
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
        at_txid: int | None = None,
    ) -> Snapshot:
        """Answer the live entries of a range folded by key columns:
        `[{"key": [parts of `by`], "keys": how many were folded, "value": {..}}, ..]`, the first `limit` of them.

        by: one or more key columns; groups have them in key order. measures: which ones to answer; `order_by` is added.
        prefix, start, stop, where, at_txid, order_by: as for a page; conditions apply to entries, not to groups.
        most_folded: rows that may be read and folded. The snapshot's `complete` is False if there are more groups.
        Raises SpecError for a name that is not a key column, and for a state of JSON values, which has no fold;
        RangeTooLargeError; otherwise what `page` does.
        """
        query = RangeQuery(
            prefix=prefix, start=start, stop=stop, where=where, measures=measures, order_by=order_by,
            descending=descending, limit=limit, most_read=most_folded, at_txid=at_txid,
        )  # fmt: skip
        return self.read_groups(by, query)

    def read_groups(self, by: Sequence[str], query: RangeQuery) -> Snapshot:
        """Answer `groups`."""

    def windows(
        self,
        keys: Sequence[Key],
        lengths: Sequence[timedelta],
        measures: Sequence[str] | None = None,
        *,
        to: datetime | None = None,
        most_folded: int = MOST_SCANNED,
        at_txid: int | None = None,
    ) -> Windows:
        """Answer trailing windows of event time for keys of a state with tiles, folded as `combine` folds.

        keys: n tuples without the last key column, the start of the tile. lengths: of the windows, whole seconds.
        to: where they end; None: now, by the database's clock, or `at_txid` that batch's time. It is moved back to the
        start of a tile, as is each window's start. The result's `covered` says what each window covers, and the
        snapshot has a result per key, in order: `{"key": [..], "values": [{measure: ..}, ..]}`, a value per window. A
        key without events in a window has the value of an empty state.
        most_folded: tiles that may be read and folded.
        Raises SpecError for a state without tiles, and for wrong windows and measures; KeyShapeError;
        TilesGoneError if a window begins before the oldest tiles that are kept; RangeTooLargeError.
        """
        check_tiled(self.spec)
        raise CapabilityError(f"state {self.spec.name!r}: windows are answered in the ledger's database only")

    def history(self, key: Key, *, limit: int = 100, before: int | None = None) -> Snapshot:
        """Answer the committed versions of a key, newest first:
        `[{"txid": T, "at": "..", "status": "found" | "removed", "value": {..} | null}, ..]`.

        They come from the changelog; without one, from the row, which stores up to two. before: only versions of
        batches before this one. The snapshot's `complete` is False if the answer ends with the oldest stored version
        and older ones may have been deleted. A state without txids answers null as txid.
        Raises KeyShapeError.
        """

    def series(self, key: Key, *, since: datetime, until: datetime, step_seconds: float) -> Snapshot:
        """Answer the committed versions of a key from `since` (inclusive) to `until` (exclusive), oldest first.

        Only the last version of each step of time is answered, so that their number is bounded. The last version from
        before `since` comes first. The versions are as in `history`. Raises KeyShapeError.
        """

    def export(
        self,
        *,
        prefix: Key = (),
        start: Key | None = None,
        stop: Key | None = None,
        measures: Sequence[str] | None = None,
        where: Where = (),
        at_txid: int | None = None,
        live_at: datetime | None = None,
    ) -> Export:
        """Begin an export of the live entries of a range, in key order, at one batch whatever is committed meanwhile.

        The export uses the reader's connection until it is closed, so give the reader a connection of its own (`on`),
        outside a transaction. prefix, start, stop, measures, where: as for a page. Errors are raised here, before the
        first row. Only if the rows are not in the ledger's database may MovedOnError come later, unless they are read
        from the changelog, with `at_txid`. live_at: with `at_txid`, the time at which ttl is evaluated, instead of that
        batch's; a store outside of the ledger's database evaluates ttl at the time of reading.
        """
        query = RangeQuery(prefix=prefix, start=start, stop=stop, where=where, measures=measures, at_txid=at_txid)
        return self.open_export(query, live_at)

    def open_export(self, query: RangeQuery, live_at: datetime | None = None) -> Export:
        """Answer `export`."""

    def committed(self) -> CommittedBatch:
        """Return the batch that a read would answer now."""

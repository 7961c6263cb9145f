"""StateReader: look values up as of the committed batch, whole batches only, in one statement.

The statement joins the ledger's row with the state's, so every key of an answer comes from the same batch even while
executors write the next one. PostgreSQL builds the JSON; no Python object is made per row. A read as of an earlier
batch is the same over the ledger as it was then (see past).
"""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Self

import psycopg
from psycopg import sql

from tidegauge.state_backends.backends.postgres.combined import (
    asked_now,
    asked_then,
    combine_sql,
    combine_then_sql,
    folded,
    width,
)
from tidegauge.state_backends.backends.postgres.export import (
    begin_snapshot,
    copied_rows,
    fetched,
    json_places,
    reach_sql,
    rows_sql,
)
from tidegauge.state_backends.backends.postgres.grouped import groups_sql, reaches_by_row, rows_of
from tidegauge.state_backends.backends.postgres.pages import page_parameters, page_sql, range_parameters, shape_of
from tidegauge.state_backends.backends.postgres.sorted_ranges import check_size, has_over
from tidegauge.state_backends.backends.postgres.windows import tiles_of, windows_parameters, windows_sql
from tidegauge.state_backends.committed import (
    COMMITTED_BATCH,
    NOW,
    REACH,
    RESULTS,
    THEN,
    answer_now,
    answer_then,
    isolation,
    ledger_sql,
)
from tidegauge.state_backends.errors import NotCommittedError, OutOfReachError, UnknownStateError
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.reader.bounds import (
    MOST_SCANNED,
    KeyRange,
    check_after,
    check_folds,
    check_measures,
    check_order,
)
from tidegauge.state_backends.reader.filters import where_parameters
from tidegauge.state_backends.reader.groups import Grouping, too_many_to_group
from tidegauge.state_backends.reader.history import history_sql, key_repeats, series_key_repeats, series_sql
from tidegauge.state_backends.reader.json_sql import json_array, json_key, json_object, json_value
from tidegauge.state_backends.reader.query import RangeQuery
from tidegauge.state_backends.reader.reader import Ask, CommittedBatch, Export, Reader, Snapshot, columns_of, expiry
from tidegauge.state_backends.reader.windows import Windows, WindowsQuery, too_many_tiles
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable
from tidegauge.state_backends.spec.tiles import until_from
from tidegauge.state_backends.spec.types import TYPES

# Statements of one reader that are kept, once composed; the cap is for clients that ask for every order of measures.
KEPT_STATEMENTS = 64

COMMITTED = ledger_sql(COMMITTED_BATCH).as_bytes()
LEDGER_NOW = ledger_sql(COMMITTED_BATCH + ", s.ttl, NULL::bigint").as_bytes()


class StateReader(Reader):
    """Reads one state at its pipeline's committed batch, or an earlier one. conn: any connection to the database."""

    def __init__(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        self.spec = spec
        self.isolation = isolation(spec)
        self._conn = conn
        self._table = StateTable(spec)
        self._statements: dict[Hashable, bytes] = {}

    def on(self, conn: psycopg.Connection) -> Self:
        # copy() takes four times as long.
        other = object.__new__(type(self))
        vars(other).update(vars(self), _conn=conn)
        return other

    def multi_get(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, at_txid: int | None = None
    ) -> Snapshot:
        return self.answer(self.ask(keys, measures, at_txid=at_txid))

    def combine(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, at_txid: int | None = None
    ) -> Snapshot:
        ask = self.ask(keys, measures, combine=True, at_txid=at_txid)
        stored = self.spec.stored_columns(check_measures(self.spec, measures))
        return ask.read(self._row(ask.statement, ask.parameters, binary=_is_binary(stored)))

    def ask(
        self,
        keys: Sequence[Key],
        measures: Sequence[str] | None = None,
        *,
        combine: bool = False,
        at_txid: int | None = None,
    ) -> Ask:
        """Return the question that `multi_get`, or `combine`, puts; see multi_state.py for who else does."""
        if combine:
            return self._ask_combined(self.spec.check_keys(keys), measures, at_txid)
        arrays = self._table.arrays(self.spec.check_columns(keys), len(keys))
        asked = check_measures(self.spec, measures)
        if at_txid is None:
            statement = self._kept(("now", *asked), lambda: self._lookup_sql(asked))
            return Ask(statement, [*arrays, self.spec.name], 7, _found)
        statement = self._kept(("then", *asked), lambda: self._lookup_then_sql(asked))
        return Ask(statement, [at_txid, *arrays, self.spec.name], 7, partial(self._then, at_txid, _found_then))

    def read_page(self, query: RangeQuery) -> Snapshot:
        check_order(self.spec, query.order_by)
        asked, past = check_measures(self.spec, query.measures), query.at_txid is not None
        bounds, conditions = query.bounds(self.spec)
        place = check_after(self.spec, query.order_by, query.after)
        # The primary key gives the order by its first column, so that a page now reads little more than it shows,
        # unless it has to look for entries that match.
        is_searched = bool(conditions or query.search)
        is_indexed = query.order_by == next(iter(self.spec.key), "") and not past and not is_searched
        if query.order_by is not None and query.most_read and not is_indexed:
            check_size(self._conn, self._table, bounds, query.most_read, past=past)
        shape = shape_of(asked, bounds, query.order_by, query.descending, place, conditions, past=past)
        statement = self._kept(shape, lambda: page_sql(self._table, shape))
        parameters = [*page_parameters(self._table, shape, bounds, place, query.limit, conditions), self.spec.name]
        if query.at_txid is None:
            return _page_now(query.limit, self._row(statement, parameters))
        row = self._row(statement, [query.at_txid, *parameters])
        return self._then(query.at_txid, partial(_page_then, query.limit), row)

    def read_groups(self, by: Sequence[str], query: RangeQuery) -> Snapshot:
        grouping = Grouping.checked(self.spec, by, query.measures, query.order_by, query.descending, query.limit)
        (bounds, conditions), past = query.bounds(self.spec), query.at_txid is not None
        if has_over(self._conn, self._table, bounds, query.most_read, past=past):
            raise too_many_to_group(self.spec, query.most_read)
        stored, within = self.spec.stored_columns(grouping.measures), range_parameters(bounds)
        statement = groups_sql(self._table, grouping.by, stored, bounds, conditions, past=past).as_bytes()
        again = within if past and reaches_by_row(self._table) else []
        parameters = [*again, *within, *where_parameters(conditions), self.spec.name]
        values = [query.at_txid, *parameters] if past else parameters
        row = self._row(statement, values, binary=_is_binary(stored))
        txid, attempt, at, epoch, *arrays = row if query.at_txid is None else self._within_reach(query.at_txid, row)
        results, complete = grouping.results(self.spec, rows_of(grouping.by, stored, arrays))
        return Snapshot(txid, attempt, at, epoch, results, complete=complete)

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
        query, past = WindowsQuery.checked(self.spec, keys, lengths, measures, to), at_txid is not None
        stored = self.spec.stored_columns(query.measures)
        shape = ("windows", past, *query.measures)
        statement = self._kept(shape, lambda: windows_sql(self._table, stored, past=past))
        parameters = windows_parameters(query, self._table, most_folded)
        values = [at_txid, *parameters] if past else parameters
        row = self._row(statement, values, binary=_is_binary(stored))
        txid, attempt, at, epoch, in_use, starts, until, *arrays = (
            row if at_txid is None else self._within_reach(at_txid, row)
        )
        if len(arrays[0] or ()) > most_folded:
            raise too_many_tiles(self.spec, most_folded)
        covered = query.covered(self.spec, starts, until, until_from(json.loads(in_use)))
        results = query.results(self.spec, covered, tiles_of(stored, arrays))
        return Windows(Snapshot(txid, attempt, at, epoch, results), covered)

    def committed(self) -> CommittedBatch:
        return CommittedBatch(*self._row(COMMITTED, [self.spec.name]))

    def history(self, key: Key, *, limit: int = 100, before: int | None = None) -> Snapshot:
        typed = self._table.key_values(self.spec.check_key(key))
        onward = [] if before is None else [before]
        statement = self._kept(
            ("history", not onward),
            lambda: history_sql(self._table, check_measures(self.spec, None), before=bool(onward)),
        )
        # The condition that no version is gone comes first of all, where it asks for the row.
        parameters = [*typed * key_repeats(self._table), *onward, limit, self.spec.name]
        txid, attempt, at, epoch, results, shown, whole = self._row(statement, parameters)
        return Snapshot(txid, attempt, at, epoch, results.encode(), complete=whole or shown == limit)

    def series(self, key: Key, *, since: datetime, until: datetime, step_seconds: float) -> Snapshot:
        typed = self._table.key_values(self.spec.check_key(key))
        statement = self._kept("series", lambda: series_sql(self._table, check_measures(self.spec, None)))
        parameters = [*typed * series_key_repeats(self._table), since, step_seconds, until, self.spec.name]
        txid, attempt, at, epoch, results = self._row(statement, parameters)
        return Snapshot(txid, attempt, at, epoch, results.encode())

    def open_export(self, query: RangeQuery, live_at: datetime | None = None) -> Export:
        asked, at_txid = list(dict.fromkeys(check_measures(self.spec, query.measures))), query.at_txid
        bounds, conditions = query.bounds(self.spec)
        parameters, shown = range_parameters(bounds), columns_of(self.spec, asked)
        with ExitStack() as resources:
            begin_snapshot(self._conn, self._exported_tables(at_txid, live_at), resources)
            (txid, attempt, at, epoch, ttl, retried), past = self._ledger(bounds, parameters, at_txid, live_at)
            clock = None if at_txid is None else live_at or at
            liveness = NOW if at_txid is None else THEN
            statement = rows_sql(self._table, asked, bounds, conditions, past=past, clock=liveness)
            values = [ttl, txid, clock, retried, *parameters, *where_parameters(conditions)]
            rows = fetched(self._conn, statement, values, json_places(shown))
            copied = partial(copied_rows, self._conn, statement, values, shown)
            return Export(txid, attempt, at, epoch, shown, rows, resources.pop_all(), copied)

    def answer(self, ask: Ask) -> Snapshot:
        return ask.read(self._row(ask.statement, ask.parameters))

    def _ask_combined(self, keys: Sequence[Key], measures: Sequence[str] | None, at_txid: int | None) -> Ask:
        check_folds(self.spec)
        # Dicts, as a key may be written in several ways.
        arrays = self._table.key_columns(list(dict.fromkeys(keys)))
        asked = list(dict.fromkeys(check_measures(self.spec, measures)))
        columns = width(self.spec, asked) + 6
        if at_txid is None:
            statement = self._kept(("combined", *asked), lambda: combine_sql(self._table, asked))
            return Ask(statement, [*arrays, self.spec.name], columns, partial(self._combined, asked))
        statement = self._kept(("combined then", *asked), lambda: combine_then_sql(self._table, asked))
        read = partial(self._then, at_txid, partial(self._combined_then, asked))
        return Ask(statement, [at_txid, *arrays, self.spec.name], columns, read)

    def _combined(self, measures: Sequence[str], row: Sequence[Any]) -> Snapshot:
        txid, attempt, at, epoch, ttl, oldest, *parts = row
        results = folded(self.spec, measures, parts)
        return Snapshot(txid, attempt, at, epoch, results, until=expiry(oldest, ttl))

    def _combined_then(self, measures: Sequence[str], row: Sequence[Any]) -> Snapshot:
        txid, attempt, at, epoch, *parts = row
        return Snapshot(txid, attempt, at, epoch, folded(self.spec, measures, parts))

    def _has_committed(self, live_at: datetime | None) -> bool:
        """Tell whether the rows have the committed batch, whatever is written; `live_at` then says what is live."""
        return live_at is not None and self._table.keeps_previous and BACKENDS[self.spec.backend].tables is not None

    def _exported_tables(self, at_txid: int | None, live_at: datetime | None) -> list[sql.Identifier]:
        logged = at_txid is not None and self.spec.changelog
        rows = [self._table.name] if not logged or self._has_committed(live_at) else []
        return [*rows, *([self._table.changelog] if logged else [])]

    def _ledger(
        self, bounds: KeyRange, parameters: list[Any], at_txid: int | None, live_at: datetime | None
    ) -> tuple[Sequence[Any], bool]:
        """Return COMMITTED_BATCH of a batch, the ttl, the newest batch since that was tried again; and whether the
        batch is of the past.
        """
        now = self._row(LEDGER_NOW, [self.spec.name])
        # The rows have the committed batch as well as the changelog does, and are fewer.
        if at_txid is None or (at_txid == now[0] and self._has_committed(live_at)):
            return now, False
        within = [] if self.spec.changelog else parameters  # a changelog reaches as far back for every key
        row = self._row(reach_sql(self._table, bounds).as_bytes(), [at_txid, *within, self.spec.name])
        return self._within_reach(at_txid, row), True

    def _kept(self, question: Hashable, compose: Callable[[], sql.Composed]) -> bytes:
        # Composing takes longer than sending.
        statement = self._statements.get(question)
        if statement is None:
            statement = compose().as_bytes()
            if len(self._statements) < KEPT_STATEMENTS:
                self._statements[question] = statement
        return statement

    def _then(self, at_txid: int, read: Callable[[Sequence[Any]], Snapshot], row: Sequence[Any]) -> Snapshot:
        return read(self._within_reach(at_txid, row))

    def _within_reach(self, at_txid: int, row: Sequence[Any]) -> Sequence[Any]:
        *answer, newest, oldest = row
        if at_txid > newest:
            raise NotCommittedError(self.spec.name, at_txid, newest)
        if at_txid < oldest:
            raise OutOfReachError(self.spec.name, at_txid, oldest)
        return answer

    def _row(self, statement: bytes, parameters: Sequence[Any], *, binary: bool = False) -> tuple[Any, ...]:
        # Cursors that put parameters into the statement, such as Django's, read text alone.
        factory = getattr(self._conn, "cursor_factory", psycopg.Cursor)
        binary = binary and not issubclass(factory, psycopg.ClientCursor)
        try:
            row = self._conn.execute(statement, parameters, binary=binary).fetchone()
        except psycopg.errors.UndefinedTable:
            row = None
        if row is None:
            raise UnknownStateError(f"state {self.spec.name!r} is not registered with any pipeline")
        return row

    def _lookup_sql(self, measures: Sequence[str]) -> sql.Composed:
        results = sql.SQL(
            "SELECT {answers} AS results, min(v.updated_at) FILTER (WHERE r.status = 'found') AS oldest FROM {asked}"
        ).format(answers=self._answers_sql(measures), asked=asked_now(self._table))
        return answer_now(results, sql.SQL("{}, s.ttl, CASE WHEN s.ttl IS NOT NULL THEN f.oldest END").format(RESULTS))

    def _lookup_then_sql(self, measures: Sequence[str]) -> sql.Composed:
        results = sql.SQL("SELECT {answers} AS results, max(v.{reach}) AS {reach} FROM {asked}").format(
            answers=self._answers_sql(measures), reach=REACH, asked=asked_then(self._table)
        )
        return answer_then(self._table, results)

    def _answers_sql(self, measures: Sequence[str]) -> sql.Composed:
        value = sql.SQL("CASE WHEN r.status = 'found' THEN {} ELSE 'null' END")
        result = {
            "key": json_key(self.spec, "k"),
            "status": sql.SQL("""'"' || r.status || '"'"""),
            "value": value.format(json_value(self.spec, "v", measures)),
        }
        return json_array(json_object(result), "k.ordinality")


def _is_binary(stored: Mapping[str, str]) -> bool:
    """Return whether to read arrays of stored columns, name to SQL type, in binary form.

    As text, reading 100 sketches or the times of some thousand tiles holds the interpreter for milliseconds. Not for
    types of custom aggregators, of which psycopg may read only the text.
    """
    return {sql_type.partition("(")[0] for sql_type in stored.values()} <= TYPES.keys()


def _found(row: Sequence[Any]) -> Snapshot:
    txid, attempt, at, epoch, results, ttl, oldest = row
    return Snapshot(txid, attempt, at, epoch, results.encode(), until=expiry(oldest, ttl))


def _found_then(row: Sequence[Any]) -> Snapshot:
    txid, attempt, at, epoch, results = row
    return Snapshot(txid, attempt, at, epoch, results.encode())


def _page_now(limit: int, row: Sequence[Any]) -> Snapshot:
    *shown, oldest, ttl = row
    return replace(_page_then(limit, shown), until=expiry(oldest, ttl))


def _page_then(limit: int, row: Sequence[Any]) -> Snapshot:
    txid, attempt, at, epoch, results, shown, after, is_cut = row
    behind = json.loads(after) if (shown == limit or is_cut) and after is not None else None
    return Snapshot(txid, attempt, at, epoch, results.encode(), complete=not is_cut, after=behind)

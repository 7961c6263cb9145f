"""StateReader: look values up as of the committed batch, whole batches only, in one statement.

The statement joins the ledger's row with the state's, so every key of an answer comes from the same batch even while
executors write the next one. PostgreSQL builds the JSON; no Python object is made per row. A read as of an earlier
batch is the same over the ledger as it was then (see past).
"""

import json
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from state_backends.errors import NotCommittedError, OutOfReachError, SpecError, UnknownStateError
from state_backends.reader.asked import asked_now, asked_then
from state_backends.reader.combined import combine_sql, combine_then_sql, folded
from state_backends.reader.past import answer_then, live_then, page_then
from state_backends.spec import StateSpec
from state_backends.table import StateTable, columns, commas
from state_backends.versioned import Key
from state_backends.visible import isolation, visible_columns

KEPT_LOOKUPS = 64


@dataclass(frozen=True)
class Snapshot:
    """An answer and the batch it belongs to.

    txid: the committed batch, 0 before the first, or the earlier one that was asked for. attempt: which attempt at it
    was committed. as_of: its batch time.
    results: a JSON array, as bytes ready to send.
    complete: False where a bounded scan has looked at some of the state alone.
    """

    txid: int
    attempt: int
    as_of: datetime | None
    results: bytes
    complete: bool = True

    def parsed(self) -> list[dict[str, Any]]:
        return json.loads(self.results)  # type: ignore[no-any-return]


class StateReader:
    """Reads one state at its pipeline's committed batch, or an earlier one. conn: any connection to the database."""

    def __init__(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        self.spec = spec
        self.isolation = isolation(spec)
        self._conn = conn
        self._table = StateTable(spec)
        self._lookups: dict[tuple[bool, tuple[str, ...]], bytes] = {}

    def on(self, conn: psycopg.Connection) -> "StateReader":
        """Return the same reader over another connection; the statements it has composed come along."""
        other = copy(self)
        other._conn = conn
        return other

    def multi_get(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, as_of: int | None = None
    ) -> Snapshot:
        """Answer each key asked, in the order asked; a key asked twice is answered twice.

        keys: n tuples. measures: which ones to answer; None means all. as_of: answer as after this batch, at whose time
        ttl is reckoned; None means the committed one, now.
        Each result is `{"key": [..], "status": "found" | "missing" | "expired", "value": {measure: ..} | null}`. In the
        past an expired key may be answered as missing, and the other way round: cleaning up has no history.
        Raises KeyShapeError naming the key's index, SpecError for an unknown measure, UnknownStateError;
        OutOfReachError, naming the oldest batch from which on all keys can be told, NotCommittedError.
        """
        typed = [self.spec.check_key(key, index) for index, key in enumerate(keys)]
        arrays = self._table.key_columns(typed) if typed else [[] for _ in self._table.key]
        lookup = self._lookup(tuple(self._checked(measures)), past=as_of is not None)
        return self._snapshot(lookup, arrays) if as_of is None else self._snapshot_then(lookup, arrays, as_of)

    def combine(
        self, keys: Sequence[Key], measures: Sequence[str] | None = None, *, as_of: int | None = None
    ) -> Snapshot:
        """Answer with the values of all these keys folded into one: counts add, distinct counts are unions.

        The one result is `{"keys": found, "missing": n, "expired": n, "value": {measure: ..}}`; the value is over the
        keys found, and what an empty state would give where none is. A key asked twice folds once. Trident's aggregate
        behind a state query.
        keys, measures, as_of: as multi_get's, whose errors it raises, too; SpecError for a state of JSON values, which
        nothing says how to fold.
        """
        if not self.spec.measures:
            raise SpecError(
                f"state {self.spec.name!r}: holds JSON values, which nothing folds; look its keys up, or give it "
                "measures"
            )
        # A dict, as a key may be written in several ways.
        typed = list(dict.fromkeys(self.spec.check_key(key, index) for index, key in enumerate(keys)))
        arrays = self._table.key_columns(typed) if typed else [[] for _ in self._table.key]
        asked = list(dict.fromkeys(self._checked(measures)))
        if as_of is None:
            txid, attempt, at, *row = self._answer(combine_sql(self._table, asked), arrays)
        else:
            txid, attempt, at, *row = self._answer_as_of(combine_then_sql(self._table, asked), arrays, as_of)
        return Snapshot(txid, attempt, at, folded(self.spec, asked, row))

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
        """Answer a page of live entries: `[{"key": [..], "value": {..}, "txid": T, "updated_at": ".."}, ..]`.

        search: keep keys with a part that begins so, whatever its case. order_by: a measure; None orders by key.
        as_of: as multi_get's; every key of the state must be told then, not those of the page alone.
        Raises SpecError for an unknown measure, UnknownStateError, OutOfReachError, NotCommittedError.
        """
        if order_by is not None:
            self._checked([order_by])
        pattern = _like(search)
        parameters: list[Any] = [pattern] * (len(self.spec.key) if search else 0)
        parameters += [limit, offset]
        if as_of is None:
            page = self._entries_sql(self._table.live_view, bool(search), order_by, descending)
            return self._snapshot(self._answer_sql(page), parameters)
        page = self._entries_sql(live_then(self._table), bool(search), order_by, descending)
        return self._snapshot_then(answer_then(self._table, page_then(self._table, page)), parameters, as_of)

    def _checked(self, measures: Sequence[str] | None) -> Sequence[str]:
        known = list(self.spec.measures) or ["value"]
        for measure in measures or []:
            if measure not in known:
                raise SpecError(f"state {self.spec.name!r}: no measure {measure!r}; there are {', '.join(known)}")
        return known if measures is None else measures

    def _lookup(self, measures: tuple[str, ...], *, past: bool) -> bytes:
        # Composing takes longer than sending; the cap is for clients that ask for every order of the measures.
        statement = self._lookups.get((past, measures))
        if statement is None:
            composed = self._lookup_then_sql(measures) if past else self._answer_sql(self._lookup_sql(measures))
            statement = composed.as_bytes()
            if len(self._lookups) < KEPT_LOOKUPS:
                self._lookups[past, measures] = statement
        return statement

    def _answer_sql(self, results: sql.Composed) -> sql.Composed:
        return sql.SQL(
            "SELECT p.committed_txid, p.committed_attempt, p.committed_time, ({results})::text "
            "FROM tidemark.state s JOIN tidemark.pipeline p ON p.name = s.pipeline WHERE s.name = %s"
        ).format(results=results)

    def _snapshot(self, statement: sql.Composed | bytes, parameters: Sequence[Any]) -> Snapshot:
        txid, attempt, at, results = self._answer(statement, parameters)
        return Snapshot(txid, attempt, at, results.encode())

    def _snapshot_then(self, statement: sql.Composed | bytes, parameters: Sequence[Any], as_of: int) -> Snapshot:
        txid, attempt, at, results = self._answer_as_of(statement, parameters, as_of)
        return Snapshot(txid, attempt, at, results.encode())

    def _answer_as_of(self, statement: sql.Composed | bytes, parameters: Sequence[Any], as_of: int) -> tuple[Any, ...]:
        *answer, newest, oldest = self._answer(statement, [as_of, *parameters])
        if as_of > newest:
            raise NotCommittedError(self.spec.name, as_of, newest)
        if as_of < oldest:
            raise OutOfReachError(self.spec.name, as_of, oldest)
        return tuple(answer)

    def _answer(self, statement: sql.Composed | bytes, parameters: Sequence[Any]) -> tuple[Any, ...]:
        try:
            row = self._conn.execute(statement, [*parameters, self.spec.name]).fetchone()
        except psycopg.errors.UndefinedTable:
            row = None
        if row is None:
            raise UnknownStateError(f"state {self.spec.name!r} is not registered with any pipeline")
        return row

    def _lookup_sql(self, measures: Sequence[str]) -> sql.Composed:
        return sql.SQL("SELECT {} FROM {}").format(self._answers_sql(measures), asked_now(self._table))

    def _lookup_then_sql(self, measures: Sequence[str]) -> sql.Composed:
        results = sql.SQL("SELECT {} AS results, max(v.reach) AS reach FROM {}").format(
            self._answers_sql(measures), asked_then(self._table)
        )
        return answer_then(self._table, results)

    def _answers_sql(self, measures: Sequence[str]) -> sql.Composed:
        return sql.SQL(
            "coalesce(json_agg(json_build_object('key', {key}, 'status', r.status, "
            "'value', CASE WHEN r.status = 'found' THEN {value} END) ORDER BY k.ordinality), '[]')"
        ).format(key=self._json_key("k"), value=self._json_value(measures))

    def _entries_sql(
        self, entries: sql.Composable, searched: bool, order_by: str | None, descending: bool
    ) -> sql.Composed:
        names = list(self.spec.key)
        matches = [sql.SQL("e.{}::text ILIKE %s").format(sql.Identifier(name)) for name in names]
        where = sql.SQL(" OR ").join(matches) if searched and names else sql.SQL("true")
        direction = sql.SQL(" DESC NULLS LAST") if descending else sql.SQL("")
        first = [sql.Identifier("e", order_by) + direction] if order_by else []
        order = [*first, *(sql.Identifier("e", name) for name in names)] or [sql.SQL("1")]
        measures = list(self.spec.measures) or ["value"]
        return sql.SQL(
            "SELECT coalesce(json_agg(json_build_object('key', {key}, 'value', {value}, 'txid', r.txid, "
            "'updated_at', r.updated_at)), '[]') FROM (SELECT e.* FROM {entries} e WHERE {where} ORDER BY {order} "
            "LIMIT %s OFFSET %s) r"
        ).format(
            key=self._json_key("r"),
            value=_json_object({name: sql.Identifier("r", name) for name in measures}),
            entries=entries,
            where=where,
            order=commas(order),
        )

    def _json_key(self, row: str) -> sql.Composed:
        return sql.SQL("json_build_array({})").format(columns(self.spec.key, row))

    def _json_value(self, measures: Sequence[str]) -> sql.Composed:
        if not self.spec.measures:
            return sql.SQL("v.value::json")  # type: ignore[return-value]
        return _json_object(visible_columns(self.spec, "v", measures))


def _json_object(parts: dict[str, sql.Composable]) -> sql.Composed:
    return sql.SQL("json_build_object({})").format(
        commas(sql.SQL("{}, {}").format(sql.Literal(name), expression) for name, expression in parts.items())
    )


def _like(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"

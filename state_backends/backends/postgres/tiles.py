"""Compaction of tiles: rows of fine tiles are folded into the rows of the coarser tiles that are in use by then.

A page is folded in one transaction that holds the ledger's row of the pipeline. So no task writes meanwhile, and none
has read a row that the page removes. Only rows are folded that were written before the committed batch, because that
batch and the open one may be reverted and come again. A row that they have written stays as it is until a later run. It
counts all the same, because a window folds every row that begins in it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any

import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable
from psycopg.types.json import Jsonb

from tidegauge.state_backends.backends.postgres.rows import PostgresBackingMap
from tidegauge.state_backends.errors import FoldRangeError
from tidegauge.state_backends.ledger.batch_time import checked_clock
from tidegauge.state_backends.maintenance import PAGE_ROWS, Step, Walk, clock
from tidegauge.state_backends.spec.row import Key, Versioned
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable, columns, commas
from tidegauge.state_backends.spec.tiles import GONE, WIDTHS, Tiles, Until, until_from

# Rows that are folded in one transaction, for which tasks wait.
FOLDED_ROWS = 1_000

# A long task may hold the ledger's row; after this time, the run looks whether it should make room for other work.
LOCK_TIMEOUT = "1s"

FINE, OLD = "fine tiles", "old tiles"

LOCKED = """
SELECT p.committed_txid FROM tidegauge.pipeline p JOIN tidegauge.state s ON s.pipeline = p.name WHERE s.name = %s
FOR NO KEY UPDATE OF p
"""

# As-of reads reach back to the batch before the committed one: only rows that were written by then are folded.
SHORTENED = "UPDATE tidegauge.state SET oldest_txid = %(reach)s WHERE name = %(state)s AND oldest_txid < %(reach)s"


def compact_tiles(conn: psycopg.Connection, spec: StateSpec) -> Iterator[Step]:
    """Advance the times before which coarser tiles are in use, fold what is finer than that, and drop what is too old.

    conn: in autocommit mode; the caller holds the state's lock.
    """
    assert spec.tiling is not None
    until = _advanced(conn, spec, spec.tiling)
    yield from _Folding(conn, spec, spec.tiling, until).run()
    if GONE in until:
        yield from _old_tiles(spec, spec.tiling.column, until[GONE]).run(conn)


def _advanced(conn: psycopg.Connection, spec: StateSpec, tiles: Tiles) -> Until:
    """Record and return how far time has come, before a row is folded: who finds coarse rows must also find this.

    Time is that of the newest committed tile, but not later than now, because one event of the year 2999 would make
    all tiles coarse.
    """
    newest = sql.SQL(
        "SELECT max(t.{column}), s.tiles_until::text FROM tidegauge.state s "
        "JOIN tidegauge.pipeline p ON p.name = s.pipeline "
        "LEFT JOIN {table} t ON t.txid <= p.committed_txid AND NOT t.removed WHERE s.name = {name} GROUP BY s.name"
    ).format(column=sql.Identifier(tiles.column), table=StateTable(spec).name, name=sql.Literal(spec.name))
    row = conn.execute(newest).fetchone()
    assert row is not None
    at, until = row[0], until_from(json.loads(row[1]))
    if at is None:
        return until
    until = tiles.advanced(min(checked_clock(conn, f"state {spec.name!r}"), at + WIDTHS[tiles.finest]), until)
    conn.execute(
        "UPDATE tidegauge.state SET tiles_until = %s WHERE name = %s",
        [Jsonb({name: at.isoformat() for name, at in until.items()}), spec.name],
    )
    return until


@dataclass
class _Folding:
    """Folds the rows of a state into the tiles that are in use at their time."""

    conn: psycopg.Connection
    spec: StateSpec
    tiles: Tiles
    until: Until

    def run(self) -> Iterator[Step]:
        seen = removed = 0
        last: Key | None = None
        while page := self._page(last):
            seen, last = seen + len(page), page[-1]
            fine = [key for key in page if key != self._target(key)]
            for first in range(0, len(fine), FOLDED_ROWS):
                while (folded := self._fold_patiently(fine[first : first + FOLDED_ROWS])) is None:
                    yield Step(FINE, seen, removed)
                removed += folded
            yield Step(FINE, seen, removed)

    def _page(self, last: Key | None) -> list[Key]:
        table = StateTable(self.spec)
        key, after = columns(table.key), sql.SQL("true").format()
        if last is not None:
            after = sql.SQL("({}) > ({})").format(key, commas([sql.Placeholder()] * len(last)))
        page = sql.SQL("SELECT {key} FROM {table} WHERE {after} ORDER BY {key} LIMIT {rows}")
        statement = page.format(key=key, table=table.name, after=after, rows=sql.Literal(PAGE_ROWS))
        return [table.read_key(row) for row in self.conn.execute(statement, last or ())]

    def _target(self, key: Key) -> Key:
        return (*key[:-1], self.tiles.start(key[-1], self.until))

    def _fold_patiently(self, keys: Sequence[Key]) -> int | None:
        """Return how many rows have been folded into others; None if a task has held the ledger's row for too long."""
        try:
            with self.conn.transaction():
                self.conn.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
                row = self.conn.execute(LOCKED, [self.spec.name]).fetchone()
                assert row is not None
                return self._fold(keys, committed=row[0])
        except LockNotAvailable:
            return None

    def _fold(self, keys: Sequence[Key], committed: int) -> int:
        rows = PostgresBackingMap(self.conn, self.spec)
        targets: dict[Key, list[Key]] = {}
        for key in keys:
            targets.setdefault(self._target(key), []).append(key)
        asked = [*targets, *keys]
        stored = {key: row for key, row in zip(asked, rows.multi_get(asked), strict=True) if row is not None}
        settled = {key: row for key, row in stored.items() if row.txid is not None and row.txid < committed}
        folded: dict[Key, Versioned] = {}
        gone: list[Key] = []
        for target, members in targets.items():
            fine = [key for key in members if key in settled]
            if (target in stored and target not in settled) or not fine:
                continue
            parts = [settled[key] for key in [target, *fine] if key in settled]
            try:
                folded[target] = self._joined(parts)
            except FoldRangeError:
                continue  # a reader, whose result has no column, can still fold them
            gone += fine
        rows.multi_put(list(folded), list(folded.values()))
        rows.multi_remove(gone)
        if gone:
            self.conn.execute(SHORTENED, {"reach": committed - 1, "state": self.spec.name})
        return len(gone)

    def _joined(self, parts: Sequence[Versioned]) -> Versioned:
        """Return rows as one, as of the newest batch of them. Raises FoldRangeError."""
        values = [part.value for part in parts if part.value is not None]
        value = reduce(self.spec.fold, values) if values else None
        is_empty = value is None or self.spec.is_empty(value)
        return Versioned(
            None if is_empty else value,
            max(part.txid for part in parts if part.txid is not None),
            at=max(part.at for part in parts if part.at is not None),
        )


def _old_tiles(spec: StateSpec, column: str, until: datetime) -> Walk:
    table = StateTable(spec)
    old = sql.SQL("t.{} < {} AND t.txid < %(committed)s").format(sql.Identifier(column), sql.Literal(until))

    def note(conn: psycopg.Connection, page: dict[str, Any]) -> None:
        conn.execute(SHORTENED, {"reach": page["committed"] - 1, "state": spec.name})

    return Walk(OLD, table.name, list(table.key), old, open_page=lambda conn: clock(conn, spec.name), close_page=note)

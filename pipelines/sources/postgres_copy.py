"""The rows that a table held when its stream began: copied aside once, so that every replay reads the same ones.

A snapshot of a transaction would end with the process that holds it, and a batch that was cut short could never be
read again as it was. The copy, and what it had seen of the changes, are made in one transaction, after the slot: no
change lies between them, and those that the copy has seen are left out of the stream (see Seen). It takes the table's
room in `tidemark_source` until its last batch is done.
"""

import json
from contextlib import AbstractContextManager

import psycopg
from psycopg import sql

from pipelines.sources.errors import InputLostError
from pipelines.sources.pgoutput import as_number
from pipelines.sources.postgres_position import Position, Seen, position
from pipelines.sources.postgres_slot import START_ANEW, Slot
from pipelines.sources.postgres_table import Table

SCHEMA = "tidemark_source"
INSTALL = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS {SCHEMA}.beginning (slot text PRIMARY KEY, offset_ jsonb NOT NULL);
"""


class FirstCopy:
    """The copy of a table's rows for one slot. conn: in autocommit mode."""

    def __init__(self, conn: psycopg.Connection, slot: Slot) -> None:
        self._conn = conn
        self._slot = slot
        self._place = sql.Identifier(SCHEMA, slot.name)

    def begin(self, table: Table, *, truncates: bool) -> Position:
        """Return where the stream begins, the same at every call until its first batch is done.

        Makes publication, slot and copy where this is the first call; may be killed anywhere and called again.
        Raises InputLostError where the slot has been read from by somebody else, as by an earlier checkpoint.
        """
        self._conn.execute(INSTALL)
        known = self._conn.execute(
            sql.SQL("SELECT offset_ FROM {}.beginning WHERE slot = %s").format(sql.Identifier(SCHEMA)),
            [self._slot.name],
        ).fetchone()
        if known is None:
            self._slot.create(table, truncates=truncates)
            return self._take(table)
        first = position(known[0])
        self._slot.check(first.lsn)
        if first.pages and not self._exists():
            raise InputLostError(
                f"slot {self._slot.name!r}: has been read before, by another checkpoint; put that one back, give "
                f"this pipeline a slot of its own, or {START_ANEW}"
            )
        return first

    def _take(self, table: Table) -> Position:
        state = self._slot.state()
        assert state is not None
        with self._conn.transaction():
            self._conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            seen = self._seen()
            rows, pages = self._copy(table)
            first = Position(state.confirmed, seen[0], 0, pages, rows, seen[1])
            self._conn.execute(
                sql.SQL("INSERT INTO {}.beginning VALUES (%s, %s)").format(sql.Identifier(SCHEMA)),
                [self._slot.name, json.dumps(first.as_offset())],
            )
        return first

    def _seen(self) -> tuple[Seen, str]:
        """Return what this transaction sees, and since when."""
        # The log's end is looked at after the snapshot is taken: what the snapshot sees was committed before it.
        row = self._conn.execute("SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn(), now()").fetchone()
        assert row is not None
        return Seen(row[0], as_number(row[1])), row[2].isoformat()

    def _copy(self, table: Table) -> tuple[int, int]:
        columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
        rows = self._conn.execute(
            sql.SQL("CREATE TABLE {} AS SELECT {} FROM {}").format(self._place, columns, table.identifier)
        ).rowcount
        size = self._conn.execute(
            "SELECT pg_relation_size(to_regclass(%s)) / current_setting('block_size')::int",
            [self._place.as_string(self._conn)],
        ).fetchone()
        assert size is not None
        return rows, size[0]

    def read(self, columns: tuple[str, ...], first_page: int, end_page: int) -> AbstractContextManager[psycopg.Copy]:
        """Return an open COPY of some pages; its rows are values as text, or None."""
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        query = sql.SQL("COPY (SELECT {} FROM {} WHERE ctid >= {} AND ctid < {}) TO STDOUT").format(
            names, self._place, sql.Literal(f"({first_page},0)"), sql.Literal(f"({end_page},0)")
        )
        return self._conn.cursor().copy(query)

    def drop(self) -> None:
        self._conn.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._place))

    def forget(self) -> None:
        """Drop the copy and the note of where the stream began, where they are there."""
        self._conn.execute(INSTALL)
        self.drop()
        self._conn.execute(
            sql.SQL("DELETE FROM {}.beginning WHERE slot = %s").format(sql.Identifier(SCHEMA)), [self._slot.name]
        )

    def _exists(self) -> bool:
        row = self._conn.execute("SELECT to_regclass(%s) IS NOT NULL", [self._place.as_string(self._conn)]).fetchone()
        return row == (True,)

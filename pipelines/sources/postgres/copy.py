"""The first copy: the rows that a table held when its stream began, copied once, so that every replay reads the same.

It is a table, because a transaction's snapshot would end with its process, and an interrupted batch could not be read
again unchanged. One transaction after the slot makes the copy and records which transactions it has seen, so that no
change is lost in between; changes that the copy has seen are left out of the stream (see `Seen`). It takes as much disk
as the table, in `tidegauge_source`, until its last batch is done.
"""

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager

import psycopg
from psycopg import sql

from tidegauge.pipelines.errors import InputLostError, SourceSetupError
from tidegauge.pipelines.sources.postgres.batch import LogPosition, Seen, position
from tidegauge.pipelines.sources.postgres.pgoutput import as_number
from tidegauge.pipelines.sources.postgres.slot import START_AGAIN, Slot
from tidegauge.pipelines.sources.postgres.table import Table, column_types

SCHEMA = "tidegauge_source"
INSTALL = f"""
CREATE TABLE IF NOT EXISTS {SCHEMA}.beginning (slot text PRIMARY KEY, offset_ jsonb NOT NULL);
ALTER TABLE {SCHEMA}.beginning ADD COLUMN IF NOT EXISTS types jsonb;
"""


class FirstCopy:
    """The copy of a table's rows for one slot, `tidegauge_source.<slot>`. conn: in autocommit mode."""

    def __init__(self, conn: psycopg.Connection, slot: Slot) -> None:
        self._conn = conn
        self._slot = slot
        self._table_name = sql.Identifier(SCHEMA, slot.name)

    def begin(self, table: Table, *, truncates: bool) -> LogPosition:
        """Return where the stream begins, the same at every call until its first batch is done.

        The first call creates publication, slot and copy. If it is killed at any point, it can be called again.
        Raises InputLostError if the slot has been read by another reader, such as an earlier checkpoint.
        """
        if not self._conn.execute("SELECT FROM pg_namespace WHERE nspname = %s", [SCHEMA]).fetchone():
            # Where it exists, a role needs no privilege to create schemas.
            self._conn.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
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
        if first.pages:
            self.check()
        return first

    def check(self) -> None:
        """Raise InputLostError if the copy is gone, because no stream can begin with it after its last batch."""
        if not self._exists():
            raise InputLostError(
                f"slot {self._slot.name!r}: has been read before, by another checkpoint; restore that one, give "
                f"this pipeline a slot of its own, or {START_AGAIN}"
            )

    def types(self) -> dict[str, str]:
        """Return the columns that the table had when the stream began, name to type; none before that."""
        row = self._conn.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{SCHEMA}.beginning"]).fetchone()
        if row != (True,):
            return {}
        # Through jsonb, because the table of an earlier version does not have the column.
        found = self._conn.execute(
            sql.SQL("SELECT to_jsonb(b) -> 'types' FROM {}.beginning b WHERE slot = %s").format(sql.Identifier(SCHEMA)),
            [self._slot.name],
        ).fetchone()
        return (found and found[0]) or {}

    def check_types(self, table: Table, columns: Iterable[str]) -> None:
        """Raise SourceSetupError if columns have other types than when the stream began.

        PostgreSQL then rewrites the rows and logs no change of them, so they would be subtracted with other values
        than they were counted with.
        """
        first, now = self.types(), column_types(self._conn, table)
        changed = [
            f"{name} was {first.get(name, 'absent')}, and is {now.get(name, 'gone')}"
            for name in columns
            if first and first.get(name) != now.get(name)
        ]
        if changed:
            raise SourceSetupError(
                f"table {str(table)!r}: column {', '.join(changed)}: rows would be subtracted with other values than "
                f"they were counted with; leave the column out of the source's schema, or {START_AGAIN}"
            )

    def _take(self, table: Table) -> LogPosition:
        state = self._slot.state()
        assert state is not None
        with self._conn.transaction():
            self._conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            seen = self._seen()
            rows, pages = self._copy(table)
            first = LogPosition(state.confirmed, seen[0], 0, pages, rows, seen[1])
            self._conn.execute(
                sql.SQL("INSERT INTO {}.beginning (slot, offset_, types) VALUES (%s, %s, %s)").format(
                    sql.Identifier(SCHEMA)
                ),
                [self._slot.name, json.dumps(first.as_offset()), json.dumps(table.columns)],
            )
        return first

    def _seen(self) -> tuple[Seen, str]:
        """Return what this transaction sees, and its start, ISO."""
        # The log's end is read after the snapshot is taken, so that all that the snapshot sees is before that LSN.
        row = self._conn.execute("SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn(), now()").fetchone()
        assert row is not None
        return Seen(row[0], as_number(row[1])), row[2].isoformat()

    def _copy(self, table: Table) -> tuple[int, int]:
        columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
        rows = self._conn.execute(
            sql.SQL("CREATE TABLE {} AS SELECT {} FROM {}").format(self._table_name, columns, table.identifier)
        ).rowcount
        size = self._conn.execute(
            "SELECT pg_relation_size(to_regclass(%s)) / current_setting('block_size')::int",
            [self._table_name.as_string(self._conn)],
        ).fetchone()
        assert size is not None
        return rows, size[0]

    def read(self, columns: tuple[str, ...], first_page: int, end_page: int) -> AbstractContextManager[psycopg.Copy]:
        """Return an open COPY of some pages; its rows are values as text, or None."""
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        query = sql.SQL("COPY (SELECT {} FROM {} WHERE ctid >= {} AND ctid < {}) TO STDOUT").format(
            names, self._table_name, sql.Literal(f"({first_page},0)"), sql.Literal(f"({end_page},0)")
        )
        return self._conn.cursor().copy(query)

    def drop(self) -> None:
        self._conn.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._table_name))

    def forget(self) -> None:
        """Drop the copy and the record of where the stream began, if they exist."""
        if not self._conn.execute("SELECT FROM pg_namespace WHERE nspname = %s", [SCHEMA]).fetchone():
            # Where it exists, a role needs no privilege to create schemas.
            self._conn.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
        self._conn.execute(INSTALL)
        self.drop()
        self._conn.execute(
            sql.SQL("DELETE FROM {}.beginning WHERE slot = %s").format(sql.Identifier(SCHEMA)), [self._slot.name]
        )

    def _exists(self) -> bool:
        row = self._conn.execute(
            "SELECT to_regclass(%s) IS NOT NULL", [self._table_name.as_string(self._conn)]
        ).fetchone()
        return row == (True,)

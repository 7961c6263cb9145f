"""Timers of a state: the keys whose time has come, found by an index on that time.

The time is a stored column, or a field of a JSON value. The index is part of the table, so a revert, a rewind and a
swap need nothing of their own. An update of a row that has a time is no longer HOT; merging 30,000 of 300,000 rows took
the same time with the index as without.
"""

from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from tidegauge.state_backends.backends.postgres.tables import leaf_tables
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.table import StateTable, columns

# PostgreSQL has no room in an index for what it is on; the comment tells when a state's timers moved to another field.
FOUND = """
SELECT obj_description(c.oid, 'pg_class') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""


class Timers:
    """The timers of one state. due: the stored column or the JSON value's field that holds a key's time."""

    def __init__(self, conn: psycopg.Connection, table: StateTable, due: str) -> None:
        self._conn, self._table, self._due = conn, table, due

    def index(self) -> None:
        """Make the index unless it is there. Rows can be read meanwhile. It takes 1.5 s per million of them."""
        schema = self._table.schemas[0]
        for leaf in leaf_tables(self._table):
            name = f"{leaf}_due_idx"
            found = self._conn.execute(FOUND, [schema, name]).fetchone()
            if found is None or found[0] != self._due:
                self._create(sql.Identifier(schema, leaf), schema, name)

    def due_keys(self, before: datetime, most: int) -> list[Key]:
        """Return the keys, at most so many, whose time is `before` or earlier, the earliest first."""
        key = columns(self._table.spec.key, "t") if self._table.spec.key else sql.SQL("true")
        rows = self._ordered(key, sql.SQL("AND {} <= %s").format(self._time), most, [before])
        return [row if self._table.spec.key else () for row in rows]

    def next_due(self) -> datetime | None:
        """Return the earliest time, None if no key has one."""
        rows = self._ordered(self._time, sql.SQL("AND {} IS NOT NULL").format(self._time), 1, [])
        return rows[0][0] if rows else None

    def first_from(self, start: datetime | None) -> datetime | None:
        """Return the earliest time from `start` on, None if no key has one."""
        lower = sql.SQL("") if start is None else sql.SQL("AND {} >= %s").format(self._time)
        rows = self._ordered(self._time, lower, 1, [] if start is None else [start])
        return rows[0][0] if rows else None

    def _ordered(self, selected: sql.Composable, condition: sql.Composable, most: int, values: list[Any]) -> list[Any]:
        order = [self._time, *(sql.Identifier("t", name) for name in self._table.spec.key)]
        statement = sql.SQL("SELECT {} FROM {} t WHERE NOT t.removed {} ORDER BY {} LIMIT {}").format(
            selected, self._table.name, condition, sql.SQL(", ").join(order), sql.Literal(most)
        )
        with self._conn.transaction():
            # The planner knows nothing of times that move with every batch, and would read the whole table.
            self._conn.execute("SET LOCAL enable_seqscan = off")
            rows = self._conn.execute(statement, values).fetchall()
            self._conn.execute("SET LOCAL enable_seqscan TO DEFAULT")
        return rows

    def _create(self, table: sql.Identifier, schema: str, name: str) -> None:
        index = sql.Identifier(schema, name)
        # A table's index is in its schema, and is named without it.
        time = sql.Identifier(self._due) if self._is_column else self._field(sql.Identifier("value"))
        with self._conn.transaction():
            self._conn.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(index))
            self._conn.execute(
                sql.SQL("CREATE INDEX {} ON {} ({}) WHERE NOT removed").format(sql.Identifier(name), table, time)
            )
            self._conn.execute(sql.SQL("COMMENT ON INDEX {} IS {}").format(index, sql.Literal(self._due)))

    @property
    def _is_column(self) -> bool:
        return bool(self._table.spec.measures)

    @property
    def _time(self) -> sql.Composable:
        return sql.Identifier("t", self._due) if self._is_column else self._field(sql.Identifier("t", "value"))

    def _field(self, value: sql.Identifier) -> sql.Composed:
        return sql.SQL("tidegauge.due_at({}, {})").format(value, sql.Literal(self._due))

"""Trimming a table in small steps: walk it in key order, a page per transaction, so that writers hardly wait.

A walk may be stopped between pages and killed anywhere: each page is whole, and the next walk starts over.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from state_backends.table import columns

# About 30 ms of work here; a driver that wants to commit waits no longer than one page.
PAGE_ROWS = 5_000


# Row by row through the index: a hash join would read the whole table for every page, and the walk would take the
# square of its time (0.3 s a page against 0.1 s at 400,000 keys, and worse with partitions).
BY_INDEX = "SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)"


@dataclass(frozen=True)
class Step:
    """Progress of a run after one page. step: what is being done; seen, removed: rows of that step so far."""

    step: str
    seen: int
    removed: int


@dataclass
class Walk:
    """One walk over `table` in the order of `order` (unique, indexed).

    useless: which rows to trim, a condition on `t` that may use the parameters that `open_page` returns; it is checked
    under each row's lock. release: assignments that trim a row; None deletes it. open_page runs first in each page's
    transaction, close_page last in that of a page that lost rows, with the same parameters.
    """

    step: str
    table: sql.Composable
    order: list[str]
    useless: sql.Composable
    release: sql.Composable | None = None
    open_page: Callable[[psycopg.Connection], dict[str, Any]] = field(default=lambda conn: {})
    close_page: Callable[[psycopg.Connection, dict[str, Any]], None] = field(default=lambda conn, parameters: None)

    def run(self, conn: psycopg.Connection) -> Iterator[Step]:
        seen = removed = 0
        last: tuple[Any, ...] | None = None
        while True:
            with conn.transaction():
                page_rows, trimmed, *last_key = self._trim_page(conn, last)
            if not page_rows:
                return
            seen, removed, last = seen + page_rows, removed + trimmed, tuple(last_key)
            yield Step(self.step, seen, removed)

    def _trim_page(self, conn: psycopg.Connection, last: tuple[Any, ...] | None) -> tuple[Any, ...]:
        conn.execute(BY_INDEX)
        parameters = self.open_page(conn)
        bounds = {f"after_{i}": part for i, part in enumerate(last or ())}
        row = conn.execute(self._page_sql(last is not None), parameters | bounds).fetchone()
        assert row is not None
        if row[1]:
            self.close_page(conn, parameters)
        return row

    def _page_sql(self, onward: bool) -> sql.Composed:
        after = sql.SQL("true")
        order = columns(self.order)
        if onward:
            marks = sql.SQL(", ").join(sql.Placeholder(f"after_{i}") for i in range(len(self.order)))
            after = sql.SQL("({}) > ({})").format(order, marks)  # type: ignore[assignment]
        same = sql.SQL(" AND ").join(sql.SQL("t.{0} = k.{0}").format(sql.Identifier(name)) for name in self.order)
        # A row that a writer holds is about to change: it is passed over, not waited for, so the two cannot deadlock.
        return sql.SQL(
            "WITH page AS MATERIALIZED (SELECT {order} FROM {table} WHERE {after} ORDER BY {order} LIMIT {rows}), "
            "chosen AS MATERIALIZED (SELECT {keys} FROM {table} t JOIN page k ON {same} WHERE {useless} "
            "FOR UPDATE OF t SKIP LOCKED), "
            "trimmed AS ({trim} WHERE {same} AND {useless} RETURNING 1), "
            "last AS (SELECT * FROM page ORDER BY {descending} LIMIT 1) "
            "SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM trimmed), last.* "
            "FROM (SELECT) one LEFT JOIN last ON true"
        ).format(
            order=order,
            keys=columns(self.order, "t"),
            same=same,
            table=self.table,
            after=after,
            rows=sql.Literal(PAGE_ROWS),
            useless=self.useless,
            trim=self._trim_sql(),
            descending=sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(name)) for name in self.order),
        )

    def _trim_sql(self) -> sql.Composed:
        if self.release is None:
            return sql.SQL("DELETE FROM {} t USING chosen k").format(self.table)
        return sql.SQL("UPDATE {} t SET {} FROM chosen k").format(self.table, self.release)

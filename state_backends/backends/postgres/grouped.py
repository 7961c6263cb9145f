"""Grouped: the statement that sends the rows of a range column by column, for Python to fold into groups."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from psycopg import sql

from tidegauge.state_backends.backends.postgres.combined import loaded
from tidegauge.state_backends.backends.postgres.pages import range_sql
from tidegauge.state_backends.committed import (
    NOW,
    REACH,
    THEN,
    TTL,
    answer_now,
    answer_then,
    carried_rows,
    live_sql,
    rows_now,
    rows_then,
)
from tidegauge.state_backends.reader.bounds import KeyRange
from tidegauge.state_backends.reader.filters import Where, where_sql
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.table import StateTable, commas


def groups_sql(
    table: StateTable, by: Sequence[str], stored: Mapping[str, str], bounds: KeyRange, where: Where, *, past: bool
) -> sql.Composed:
    """Return the statement: COMMITTED_BATCH, an array for each column of `by` and of `stored`, and what `answer_then`
    ends with if `past`. Its parameters: the range once, or twice where `reaches_by_row`; then of `where`."""
    within = range_sql(table, len(bounds.prefix), len(bounds.start), len(bounds.stop))
    rows = rows_then(table, within) if past else rows_now(table, within)
    names = [*by, *stored]
    arrays = [
        # JSON travels as text: connections differ in how they load it.
        sql.SQL("array_agg(v.{}{}) AS {}").format(
            sql.Identifier(name), sql.SQL("::text" if stored.get(name) == "jsonb" else ""), _place(place)
        )
        for place, name in enumerate(names)
    ]
    if past:
        reach = sql.SQL("NULL::bigint AS {}").format(REACH)
        if reaches_by_row(table):
            # Any row of the range might have been in a group.
            reach = sql.SQL("(SELECT max(r.{0}) FROM {1} r) AS {0}").format(REACH, carried_rows(table, within))
        arrays = [reach, *arrays]
    results = sql.SQL("SELECT {arrays} FROM {rows} v WHERE {live} AND {conditions}").format(
        arrays=commas(arrays),
        rows=rows,
        live=live_sql("v", TTL, THEN if past else NOW),
        conditions=where_sql(table, where, "v"),
    )
    shown = commas(sql.SQL("f.{}").format(_place(place)) for place in range(len(names)))
    return answer_then(table, results, shown) if past else answer_now(results, shown)


def reaches_by_row(table: StateTable) -> bool:
    return not table.spec.changelog


def rows_of(
    by: Sequence[str], stored: Mapping[str, str], arrays: Sequence[list[Any] | None]
) -> Iterator[tuple[Key, dict[str, Any]]]:
    """Yield the parts of each key that are grouped by, and its stored columns by name."""
    values_of = [loaded(array or [], stored.get(name, "")) for name, array in zip([*by, *stored], arrays, strict=True)]
    for values in zip(*values_of, strict=True):
        yield values[: len(by)], dict(zip(stored, values[len(by) :], strict=True))


def _place(place: int) -> sql.Identifier:
    return sql.Identifier(f"c{place}")

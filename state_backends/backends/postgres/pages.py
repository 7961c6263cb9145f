"""Pages: the statement for a page of entries, in key order or by a measure, now or as of an earlier batch.

A page begins behind a key and ends after so many entries, and in key order it walks the primary key from the one to the
other: so page 1,000 costs what page 1 costs. By a measure the whole range is sorted for each page.

Where entries are searched, or must meet conditions, a page in key order looks at so many rows at most; if it ends for
that reason, it ends at the last row that it has looked at.
"""

from collections.abc import Iterable
from typing import Any, LiteralString, NamedTuple

from psycopg import sql

from tidegauge.state_backends.committed import (
    NOW,
    REACH,
    THEN,
    TTL,
    answer_now,
    answer_then,
    carried_rows,
    finished,
    live_sql,
    logged_row,
    logged_rows,
    rows_now,
)
from tidegauge.state_backends.reader.bounds import MOST_SCANNED, KeyRange, Place, comparable
from tidegauge.state_backends.reader.filters import Filter, Where, where_parameters, where_sql
from tidegauge.state_backends.reader.json_sql import json_array, json_key, json_object, json_part, json_value
from tidegauge.state_backends.spec.table import StateTable, columns, commas
from tidegauge.state_backends.spec.types import type_of

TRUE, FALSE = sql.SQL("true"), sql.SQL("false")

# The measure that orders; a name that no column can have.
BY = sql.Identifier("ordered by")

# Of a row that a filtered page looks at: whether it is an entry of the page, and the how manyth one it is.
MEETS, NUMBER = sql.Identifier("meets the conditions"), sql.Identifier("number of row")

# What an answer shows of a page: the entries, how many rows the page has ended with, where, and whether it ended as it
# has looked at so many rows.
SHOWN = sql.SQL("f.results, f.shown, f.after::text, f.is_cut")


class Shape(NamedTuple):
    """What the text of a page's statement depends on.

    prefix, start, stop: how many parts each has. after: whether the page begins behind a place, `key` in key order;
    `value` or `null` where a measure orders, as its value there is. where: the filters, without their values.
    """

    measures: tuple[str, ...]
    prefix: int
    start: int
    stop: int
    searched: bool
    order_by: str | None
    descending: bool
    after: str
    past: bool
    where: tuple[Filter, ...] = ()

    @property
    def is_bounded(self) -> bool:
        """Whether the page looks at so many rows at most."""
        return (bool(self.where) or self.searched) and self.order_by is None


def shape_of(
    measures: Iterable[str],
    bounds: KeyRange,
    order_by: str | None,
    descending: bool,
    after: Place | None,
    where: Where = (),
    *,
    past: bool,
) -> Shape:
    behind = "" if after is None else "key" if order_by is None else "null" if after.value is None else "value"
    parts = (len(bounds.prefix), len(bounds.start), len(bounds.stop), bool(bounds.search))
    conditions = tuple(Filter(each.column, each.operator) for each in where)
    return Shape(tuple(measures), *parts, order_by, descending, behind, past, conditions)


def page_sql(table: StateTable, shape: Shape) -> sql.Composed:
    """Return the statement. Columns: COMMITTED_BATCH, what is SHOWN; then of a page now its oldest
    version and the state's ttl, of one in the past what `answer_then` ends with.
    """
    if shape.past:
        return answer_then(table, _results(table, shape), SHOWN)
    return answer_now(_results(table, shape), sql.SQL("{}, f.oldest, s.ttl").format(SHOWN))


def page_parameters(
    table: StateTable, shape: Shape, bounds: KeyRange, after: Place | None, limit: int, where: Where = ()
) -> list[Any]:
    """Return the parameters that go between the batch of a page in the past and the name of the state."""
    searched = search_parameters(table, bounds)
    within = [*range_parameters(bounds), *([] if shape.is_bounded else searched)]
    conditions = [*(searched if shape.is_bounded else []), *where_parameters(where)]
    key = [] if after is None else [*table.key_values(after.key)]
    if shape.order_by is None:
        again = within if _is_walked(table, shape) else []
        rows = [*within, *key, *again]
        if not shape.is_bounded:
            return [*rows, limit]
        return [MOST_SCANNED, *conditions, *rows, MOST_SCANNED, MOST_SCANNED, limit]
    value = [after.value] * 2 if after is not None and after.value is not None else []
    first = within if _reaches_by_row(table, shape) else []
    return [*first, *within, *value, *key, *conditions, limit]


def range_sql(table: StateTable, prefix: int, start: int, stop: int) -> sql.Composed:
    """Return the condition on row `t`; its parameters are `range_parameters`."""
    names = list(table.key)
    bounds = [(names[:prefix], "="), (names[:start], ">="), (names[:stop], "<")]
    conditions = [_compared(table, some, operator) for some, operator in bounds if some]
    return sql.SQL(" AND ").join(conditions) if conditions else sql.Composed([TRUE])


def range_parameters(bounds: KeyRange) -> list[Any]:
    return [*bounds.prefix, *bounds.start, *bounds.stop]


def search_sql(table: StateTable, row: str) -> sql.Composed:
    """Return the condition that a key has a part that begins so; its parameters are `search_parameters`."""
    parts = [sql.SQL("{}::text ILIKE %s").format(sql.Identifier(row, name)) for name in table.spec.key]
    return sql.SQL("({})").format(sql.SQL(" OR ").join(parts)) if parts else sql.Composed([FALSE])


def search_parameters(table: StateTable, bounds: KeyRange) -> list[Any]:
    return [begins_with(bounds.search)] * len(table.spec.key) if bounds.search else []


def _results(table: StateTable, shape: Shape) -> sql.Composed:
    cut = sql.SQL("coalesce(bool_or(r.{} >= %s), false)").format(NUMBER) if shape.is_bounded else FALSE
    entry = json_object(
        {
            "key": json_key(table.spec, "r"),
            "value": json_value(table.spec, "r", shape.measures),
            "txid": json_part(sql.SQL("r.txid"), "bigint"),
            "updated_at": json_part(sql.SQL("r.updated_at"), "timestamptz"),
        }
    )
    return sql.SQL(
        "SELECT {entries} AS results, count(*) AS shown, "
        "CASE WHEN count(*) > 0 THEN {place} END AS after, {cut} AS is_cut, {last} FROM ({page}) r"
    ).format(
        entries=json_array(entry, only=_entries_only(shape)),
        place=_place(table, shape),
        cut=cut,
        last=_oldest_or_reach(table, shape),
        page=_bounded_page(table, shape) if shape.is_bounded else _page(table, shape),
    )


def _place(table: StateTable, shape: Shape) -> sql.Composed:
    """Return the place after the last row `r`, as JSON, which is written for that row alone."""
    key = sql.SQL("json_build_array({})").format(commas(_of_last_row(sql.Identifier(name)) for name in table.spec.key))
    if shape.order_by is None:
        return key
    return sql.SQL("json_build_array(to_json({}) #>> '{{}}', {})").format(_of_last_row(BY), key)


def _of_last_row(column: sql.Identifier) -> sql.Composed:
    return sql.SQL("(array_agg(r.{}))[count(*)::int]").format(column)


def _entries_only(shape: Shape) -> sql.Composable:
    return sql.SQL("FILTER (WHERE r.{})").format(MEETS) if shape.is_bounded else sql.SQL("")


def _oldest_or_reach(table: StateTable, shape: Shape) -> sql.Composable:
    if not shape.past:
        return sql.SQL("min(r.updated_at) {} AS oldest").format(_entries_only(shape))
    if not _reaches_by_row(table, shape):
        return sql.SQL("max(r.{0}) AS {0}").format(REACH)
    # Any row of the range might have been on this page.
    return sql.SQL("(SELECT max(v.{0}) FROM {1} v) AS {0}").format(REACH, carried_rows(table, _range(table, shape)))


def _page(table: StateTable, shape: Shape) -> sql.Composed:
    by = sql.SQL("") if shape.order_by is None else sql.SQL(", {} AS {}").format(_column(table, shape.order_by), BY)
    return sql.SQL("SELECT v.*{by} FROM {rows} v WHERE {shown} AND {behind} AND {conditions} {order} LIMIT %s").format(
        by=by,
        rows=_rows(table, shape),
        shown=_shown(table, shape),
        behind=_behind_value(table, shape),
        conditions=where_sql(table, shape.where, "v"),
        order=_ordered(table, shape),
    )


def _bounded_page(table: StateTable, shape: Shape) -> sql.Composed:
    """Return a page of which no more than so many rows are read; the last one of them is on it, entry or not.

    Each step takes row by row from the one within, until the page is full.
    """
    return sql.SQL(
        "SELECT w.* FROM (SELECT v.*, ({shown}) IS TRUE AS {meets}, row_number() OVER () AS {number} "
        "FROM (SELECT v.* FROM {rows} v {order} LIMIT %s) v) w WHERE w.{meets} OR w.{number} >= %s LIMIT %s"
    ).format(
        shown=_shown(table, shape),
        meets=MEETS,
        number=NUMBER,
        rows=_rows(table, shape),
        order=_ordered(table, shape),
    )


def _ordered(table: StateTable, shape: Shape) -> sql.Composable:
    # Walked keys come in their order, and sorting them would fetch them all first.
    return sql.SQL("") if _is_walked(table, shape) else sql.SQL("ORDER BY {}").format(_order(table, shape))


def _rows(table: StateTable, shape: Shape) -> sql.Composed:
    onward = sql.SQL("{} AND {}").format(_range(table, shape), _behind_key(table, shape))
    if not shape.past:
        return rows_now(table, onward)
    if not table.spec.changelog:
        return carried_rows(table, onward)
    return _walked(table, onward, _range(table, shape)) if _is_walked(table, shape) else logged_rows(table, onward)


def _walked(table: StateTable, first: sql.Composable, within: sql.Composable) -> sql.Composed:
    """Return the newest version of each key up to that batch, one key after the other as the page asks for them.

    A hop along the index per key, however many versions it has; nothing is read beyond the page.
    """
    key = columns(table.key, "t")
    return sql.SQL(
        "(WITH RECURSIVE hops AS ((SELECT {key} FROM {log} t WHERE {first} ORDER BY {key} LIMIT 1) UNION ALL "
        "SELECT n.* FROM hops h CROSS JOIN LATERAL (SELECT {key} FROM {log} t WHERE ({key}) > ({hop}) AND {within} "
        "ORDER BY {key} LIMIT 1) n) SELECT {hop}, n.* FROM hops h CROSS JOIN LATERAL {newest} n)"
    ).format(
        key=key,
        hop=columns(table.key, "h"),
        log=table.changelog,
        first=first,
        within=within,
        newest=logged_row(table, "h"),
    )


def _shown(table: StateTable, shape: Shape) -> sql.Composed:
    shown = live_sql("v", TTL, THEN if shape.past else NOW)
    if shape.is_bounded:
        shown = sql.SQL("{} AND {}").format(shown, where_sql(table, shape.where, "v"))
    if shape.past and shape.order_by is None and not table.spec.changelog:
        # A row that cannot be told may have been on this page: it takes a place, and its reach makes the page an error.
        shown = sql.SQL("({} OR v.{} > p.committed_txid)").format(shown, REACH)
    if shape.is_bounded and shape.searched:
        return sql.SQL("{} AND {}").format(search_sql(table, "v"), shown)
    return shown


def _behind_key(table: StateTable, shape: Shape) -> sql.Composed:
    return _compared(table, list(table.key), ">") if shape.after == "key" else sql.Composed([TRUE])


def _behind_value(table: StateTable, shape: Shape) -> sql.Composed:
    if shape.after not in ("value", "null") or shape.order_by is None:
        return sql.Composed([TRUE])
    by, key = _column(table, shape.order_by), _compared(table, list(table.key), ">", "v")
    if shape.after == "null":
        return sql.SQL("({by} IS NULL AND {key})").format(by=by, key=key)
    return sql.SQL("({by} {beyond} {value} OR {by} IS NULL OR ({by} = {value} AND {key}))").format(
        by=by,
        beyond=sql.SQL("<" if shape.descending else ">"),
        value=sql.SQL("%s::{}").format(_type(table, shape.order_by)),
        key=key,
    )


def _order(table: StateTable, shape: Shape) -> sql.Composed:
    key = columns(table.key, "v")
    if shape.order_by is None:
        return key
    direction = sql.SQL("DESC" if shape.descending else "ASC")
    # Without `NULLS LAST` the primary key can give the order by its first column, and a page then reads few rows.
    nulls = sql.SQL("" if shape.order_by in table.key else " NULLS LAST")
    return sql.SQL("{} {}{}, {}").format(_column(table, shape.order_by), direction, nulls, key)


def _range(table: StateTable, shape: Shape) -> sql.Composed:
    within = range_sql(table, shape.prefix, shape.start, shape.stop)
    if shape.searched and not shape.is_bounded:
        return sql.SQL("{} AND {}").format(within, search_sql(table, "t"))
    return within


def _is_walked(table: StateTable, shape: Shape) -> bool:
    return shape.past and shape.order_by is None and table.spec.changelog


def _reaches_by_row(table: StateTable, shape: Shape) -> bool:
    return shape.past and shape.order_by is not None and not table.spec.changelog


def _column(table: StateTable, name: str) -> sql.Composable:
    return sql.Identifier("v", name) if name in table.key else finished(name, table.spec.measures[name], "v")


def _type(table: StateTable, column: str) -> sql.SQL:
    return sql.SQL(type_of(comparable(table.spec)[column]).name)


def _compared(table: StateTable, names: list[str], operator: LiteralString, row: str = "t") -> sql.Composed:
    values = commas(sql.SQL("%s::{}").format(sql.SQL(table.key[name])) for name in names)
    return sql.SQL("({}) {} ({})").format(columns(names, row), sql.SQL(operator), values)


def begins_with(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"

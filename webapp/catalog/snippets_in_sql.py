"""Writes a snippet's question as SQL on the live view of a state, which shows the committed batch.

There is no SQL for an earlier batch, or for states in other stores.
"""

from collections.abc import Sequence
from typing import Any

from psycopg import sql

from tidegauge.state_backends import BACKENDS, StateSpec
from tidegauge.state_backends.reader.filters import IN, IS_NOT_NULL, IS_NULL, SQL_OF, Filter, check_where


def of_keys(spec: StateSpec, keys: Sequence[Sequence[Any]], measures: Sequence[str] = ()) -> dict[str, str]:
    """Return the language and the program that looks keys up; empty for a state in another store."""
    return _sql(spec, measures, _is_one_of(spec, keys))


def of_entries(
    spec: StateSpec,
    prefix: Sequence[Any],
    search: str,
    where: Sequence[str],
    order_by: str,
    limit: int,
    measures: Sequence[str] = (),
) -> dict[str, str]:
    """Return the language and the program that lists entries. The parameters are those of `Wanted` in snippets.py."""
    conditions = [_is(column, part) for column, part in zip(spec.key, prefix, strict=False)]
    conditions += [_begins(spec, search)] if search else []
    conditions += [_condition(spec, each) for each in check_where(spec, [Filter.parse(text) for text in where])]
    rest = sql.SQL("\nWHERE {}").format(sql.SQL("\n  AND ").join(conditions)) if conditions else sql.SQL("")
    columns: list[sql.Composable] = [sql.Identifier(column) for column in spec.key]
    if order_by:
        direction = " DESC NULLS LAST" if order_by.startswith("-") else " ASC NULLS LAST"
        columns = [sql.SQL("{}" + direction).format(sql.Identifier(order_by.removeprefix("-"))), *columns]
    if columns:
        rest += sql.SQL("\nORDER BY {}").format(sql.SQL(", ").join(columns))
    return _sql(spec, measures, rest + sql.SQL(f"\nLIMIT {limit}" if limit else ""))


def _is(column: str, part: Any) -> sql.Composable:
    return sql.SQL("{} = {}").format(sql.Identifier(column), sql.Literal(part))


def _begins(spec: StateSpec, text: str) -> sql.Composable:
    begins = sql.SQL("starts_with(lower({}::text), lower({}))")
    parts = [begins.format(sql.Identifier(column), sql.Literal(text)) for column in spec.key]
    return sql.SQL("({})").format(sql.SQL(" OR ").join(parts))


def _condition(spec: StateSpec, condition: Filter) -> sql.Composable:
    # COLLATE "C", because the API compares text by its bytes. Key columns are stored with that collation.
    is_other_text = isinstance(condition.value, str) and condition.column not in spec.key
    column = sql.SQL('{} COLLATE "C"' if is_other_text else "{}").format(sql.Identifier(condition.column))
    if condition.operator in (IS_NULL, IS_NOT_NULL):
        return sql.SQL("{} {}").format(column, sql.SQL(condition.operator.upper()))
    if condition.operator == IN:
        listed = sql.SQL(", ").join(map(sql.Literal, condition.value)) if condition.value else sql.SQL("NULL")
        return sql.SQL("{} IN ({})").format(column, listed)
    return sql.SQL("{} {} {}").format(column, sql.SQL(SQL_OF[condition.operator]), sql.Literal(condition.value))


def _is_one_of(spec: StateSpec, keys: Sequence[Sequence[Any]]) -> sql.Composable:
    if not spec.key:
        return sql.SQL("")
    columns = sql.SQL(", ").join(map(sql.Identifier, spec.key))
    rows = sql.SQL(", ").join(
        sql.SQL("({})").format(sql.SQL(", ").join(sql.Literal(part) for part in key)) for key in keys
    )
    return sql.SQL("\nWHERE ({}) IN ({})").format(columns, rows)


def _sql(spec: StateSpec, measures: Sequence[str], rest: sql.Composable) -> dict[str, str]:
    if BACKENDS[spec.backend].tables is None:
        return {}
    names = [*spec.key, *(measures or spec.measures or ["value"])]
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    view = sql.Identifier("tidegauge_live", spec.name)
    return {"SQL": sql.SQL("SELECT {}\nFROM {}{}").format(columns, view, rest).as_string()}

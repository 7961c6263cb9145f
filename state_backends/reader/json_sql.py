"""SQL that writes keys and values as JSON in the database, so that Python makes no object per row.

The JSON is text that is joined from parts. `json_build_object` and `json_agg` write the same bytes, but look up the
type of each argument for every row, which took half of the time of a page of 1,000 entries.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import LiteralString

from psycopg import sql

from tidegauge.state_backends.committed import NOTHING, finished_columns
from tidegauge.state_backends.spec.state_spec import StateSpec

# Types whose values PostgreSQL writes as text as it does in JSON.
SAME_AS_TEXT = ("bigint", "integer", "boolean", "jsonb", "json")


def json_key(spec: StateSpec, row: str) -> sql.Composed:
    """Return the key of `row` as a JSON array."""
    parts = [json_part(sql.Identifier(row, name), sql_type) for name, sql_type in spec.key.items()]
    before = ["[", *[", "] * len(parts)][: len(parts)]
    return _joined(before, parts, "]" if parts else "[]")


def json_value(spec: StateSpec, row: str, measures: Iterable[str]) -> sql.Composed:
    """Return the value of `row` as a lookup shows it: an object of measures by name, or the JSON value itself."""
    if not spec.measures:
        return json_part(sql.Identifier(row, "value"), "jsonb")
    found = finished_columns(spec, row, measures)
    return json_object({name: json_part(value, spec.measures[name].result_type) for name, value in found.items()})


def json_part(value: sql.Composable, sql_type: str) -> sql.Composed:
    """Return an SQL expression of this type as JSON."""
    is_same = sql_type in SAME_AS_TEXT
    return sql.SQL("coalesce(({})::text, 'null')" if is_same else "coalesce(to_json({})::text, 'null')").format(value)


def json_object(parts: Mapping[str, sql.Composable]) -> sql.Composed:
    """Return a JSON object of name to SQL expression of JSON, in that order. Names have no character to escape."""
    before = [f'{", " if place else "{"}"{name}" : ' for place, name in enumerate(parts)]
    return _joined(before, parts.values(), "}" if parts else "{}")


def json_array(element: sql.Composable, order: LiteralString = "", only: sql.Composable = NOTHING) -> sql.Composed:
    """Return the JSON array of an aggregation. element: an SQL expression of JSON. only: a FILTER clause."""
    ordered = sql.SQL(f" ORDER BY {order}" if order else "")
    return sql.SQL("'[' || coalesce(string_agg({}, ', '{}) {}, '') || ']'").format(element, ordered, only)


def _joined(before: Iterable[str], parts: Iterable[sql.Composable], end: str) -> sql.Composed:
    """Return the text of the parts, each behind the text before it, and of the end."""
    texts = chain.from_iterable((sql.Literal(text), part) for text, part in zip(before, parts, strict=True))
    return sql.SQL("({})").format(sql.SQL(" || ").join([*texts, sql.Literal(end)]))

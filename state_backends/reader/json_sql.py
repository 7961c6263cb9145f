"""SQL that builds keys and values as JSON in the database, so that Python makes no object per row."""

from collections.abc import Iterable, Mapping

from psycopg import sql

from tidegauge.state_backends.committed import finished_columns
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import columns, commas


def json_key(spec: StateSpec, row: str) -> sql.Composed:
    """Return the key of `row` as a JSON array."""
    return sql.SQL("json_build_array({})").format(columns(spec.key, row))


def json_value(spec: StateSpec, row: str, measures: Iterable[str]) -> sql.Composed:
    """Return the value of `row` as a lookup shows it: an object of measures by name, or the JSON value itself."""
    if not spec.measures:
        return sql.SQL("{}::json").format(sql.Identifier(row, "value"))
    return json_object(finished_columns(spec, row, measures))


def json_object(parts: Mapping[str, sql.Composable]) -> sql.Composed:
    """Return a JSON object of name to SQL expression, in that order."""
    return sql.SQL("json_build_object({})").format(
        commas(sql.SQL("{}, {}").format(sql.Literal(name), expression) for name, expression in parts.items())
    )

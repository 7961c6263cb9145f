"""The live view of a state, `tidegauge_live.<name>`: committed, unexpired rows with their measures finished.

It is replaced in place, which keeps what was granted on it and the views that users have made on top of it. PostgreSQL
allows that while every column keeps its place and its type, so new measures come last.
"""

from collections.abc import Iterator, Sequence

import psycopg
from psycopg import sql

from tidegauge.state_backends.backends.postgres import privileges
from tidegauge.state_backends.committed import NOW, finished_columns, live_sql, rows_and_ledger
from tidegauge.state_backends.schema.dependents import check_dependents
from tidegauge.state_backends.schema.roles import LIVE, as_owner
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable, commas


def replace_view(conn: psycopg.Connection, table: StateTable) -> None:
    """Make the view, or point it at `table`, in the caller's transaction.

    Raises DependentObjectsError where a column changes its type or goes, and views of users stand on the view.
    """
    shown, kept = _columns(conn, table.live_view), privileges.read(conn, table.live_view)
    options = kept.options if kept else []
    try:
        with as_owner(conn, LIVE):
            conn.execute(_view_sql(table, shown, options))
    except psycopg.errors.InvalidTableDefinition:
        check_dependents(conn, table.spec.name, [table.live_view], "its view gets columns of other types")
        conn.execute(sql.SQL("DROP VIEW {}").format(table.live_view))
        with as_owner(conn, LIVE):
            conn.execute(_view_sql(table, [], options))
        privileges.restore(conn, table.live_view, kept)


def shows_all(old: StateSpec, new: StateSpec) -> bool:
    """Return whether a view of `new` has all columns of that of `old`, by name and type."""
    return _results(old).items() <= _results(new).items()


def _results(spec: StateSpec) -> dict[str, tuple[str, str]]:
    keys = {name: ("", sql_type) for name, sql_type in spec.key.items()}
    finished = {name: (measure.finish_sql, measure.result_type) for name, measure in spec.measures.items()}
    return keys | (finished or {"value": ("", "jsonb")})


def _columns(conn: psycopg.Connection, view: sql.Identifier) -> list[str]:
    rows = conn.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 ORDER BY attnum",
        [view.as_string(conn)],
    )
    return [name for (name,) in rows]


def _view_sql(table: StateTable, shown: Sequence[str], options: Sequence[str]) -> sql.Composed:
    """Return the statement. shown: the columns of the view that it replaces, which stay where they are."""
    expressions: dict[str, sql.Composable] = {name: sql.Identifier("v", name) for name in table.spec.key}
    expressions |= finished_columns(table.spec, "v")
    expressions |= {name: sql.Identifier("v", name) for name in ("txid", "updated_at")}
    order = [name for name in shown if name in expressions]
    order += [name for name in expressions if name not in order]
    return sql.SQL("CREATE OR REPLACE VIEW {view}{options} AS SELECT {columns} FROM {rows} v WHERE {live}").format(
        view=table.live_view,
        options=sql.SQL(" WITH ({})").format(commas(_options(options))) if options else sql.SQL(""),
        columns=commas(sql.SQL("{} AS {}").format(expressions[name], sql.Identifier(name)) for name in order),
        rows=rows_and_ledger(table),
        live=live_sql("v", sql.SQL("v.ttl"), NOW),
    )


def _options(options: Sequence[str]) -> Iterator[sql.Composed]:
    for option in options:
        name, _, value = option.partition("=")
        yield sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value))

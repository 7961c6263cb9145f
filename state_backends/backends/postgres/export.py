"""Export: every entry of a state, or of a range of it, as rows of one batch, however many there are.

A cursor on the server keeps the place, under a snapshot of the database: what is committed, compacted or expired
meanwhile changes nothing. Until the export is closed its connection is taken, and PostgreSQL keeps old rows for it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from tidegauge.state_backends.backends.postgres.pages import range_sql
from tidegauge.state_backends.committed import (
    REACH,
    TTL,
    answer_then,
    carried_rows,
    finished_columns,
    live_sql,
    rows_now,
    rows_then,
)
from tidegauge.state_backends.reader.arrow import csv_sql, from_csv
from tidegauge.state_backends.reader.bounds import KeyRange
from tidegauge.state_backends.reader.filters import Where, where_sql
from tidegauge.state_backends.reader.reader import FETCHED_ROWS, columns_of
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.table import StateTable, columns, commas

if TYPE_CHECKING:
    import pyarrow as pa

# Pages of a sample per part that a table is divided into: some thousand rows.
SAMPLED_PAGES = 50


def begin_snapshot(conn: psycopg.Connection, tables: Sequence[sql.Identifier], resources: ExitStack) -> None:
    """Open a transaction that sees one state of the database until `resources` close.

    tables: what will be read. A snapshot does not cover names: a table that is swapped behind it would be read under
    the ledger of before. So they are locked first, which takes no snapshot.
    """
    resources.enter_context(conn.transaction(force_rollback=True))
    conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    # The ledger, read next, says that there is no such state.
    with suppress(psycopg.errors.UndefinedTable), conn.transaction():
        conn.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(commas(tables)))


def split_keys(conn: psycopg.Connection, table: StateTable, parts: int) -> list[Key]:
    """Return at most `parts` - 1 keys that divide the table into about equal parts, in key order."""
    sample = sql.SQL("SELECT {key} FROM {table} TABLESAMPLE SYSTEM ({percent}) ORDER BY {key}").format(
        key=columns(table.key), table=table.name, percent=sql.Literal(_percent(conn, table, SAMPLED_PAGES * parts))
    )
    keys = conn.execute(sample).fetchall()
    chosen = (keys[len(keys) * part // parts] for part in range(1, parts)) if keys else ()
    return list(dict.fromkeys(chosen))


def _percent(conn: psycopg.Connection, table: StateTable, pages: int) -> float:
    """Return which percentage of a table's pages so many are."""
    row = conn.execute(
        "SELECT sum(pg_relation_size(relid)) / current_setting('block_size')::int FROM pg_partition_tree(%s::regclass)",
        [table.name.as_string(conn)],
    ).fetchone()
    return min(100.0, 100.0 * pages / max(1.0, float((row and row[0]) or 1)))


def reach_sql(table: StateTable, bounds: KeyRange) -> sql.Composed:
    """Return the statement that tells whether the range can be told as of an earlier batch, see `answer_then`."""
    rows = sql.SQL("SELECT NULL::bigint AS {}").format(REACH)
    if not table.spec.changelog:
        within = carried_rows(table, _range(table, bounds))
        rows = sql.SQL("SELECT max(v.{0}) AS {0} FROM {1} v").format(REACH, within)
    return answer_then(table, rows, sql.SQL("s.ttl, p.retried_txid"))


def rows_sql(
    table: StateTable, measures: list[str], bounds: KeyRange, where: Where = (), *, past: bool, clock: sql.SQL
) -> sql.Composed:
    """Return the statement of all rows; its parameters are of `rows_parameters`. clock: NOW or THEN, what ttl goes by.

    What the ledger says comes as parameters: joined, it would make the planner sort what an index has in order.
    """
    rows = rows_then(table, _range(table, bounds)) if past else rows_now(table, _range(table, bounds))
    return sql.SQL(
        "SELECT {shown} FROM (SELECT %s::interval AS ttl) s CROSS JOIN (SELECT %s::bigint AS committed_txid, "
        "%s::timestamptz AS committed_time, %s::bigint AS retried_txid) p CROSS JOIN LATERAL {rows} v "
        "WHERE {live} AND {conditions} ORDER BY {key}"
    ).format(
        shown=_shown(table, measures),
        rows=rows,
        live=live_sql("v", TTL, clock),
        conditions=where_sql(table, where, "v"),
        key=columns(table.key, "v"),
    )


def fetched(
    conn: psycopg.Connection, statement: sql.Composed, parameters: list[Any], json_places: list[int]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a statement as a cursor on the server gives them. json_places: which columns are JSON text."""
    with psycopg.ServerCursor(conn, "tidegauge_export") as cursor:
        cursor.itersize = FETCHED_ROWS
        cursor.execute(statement, parameters)
        yield from (cursor if not json_places else (_parsed(row, json_places) for row in cursor))


def copied_rows(
    conn: psycopg.Connection,
    statement: sql.Composed,
    parameters: list[Any],
    columns: Mapping[str, str],
    schema: "pa.Schema",
) -> Iterator["pa.RecordBatch"]:
    """Yield the rows of the same statement as Arrow batches, by COPY. columns: of the rows, name to SQL type."""
    named = sql.SQL("SELECT * FROM ({}) AS named ({})").format(statement, commas(map(sql.Identifier, columns)))
    # COPY takes no parameters, so this cursor writes them into the statement.
    with psycopg.ClientCursor(conn) as cursor, cursor.copy(csv_sql(named, columns), parameters) as copy:
        yield from from_csv(copy, schema)


def json_places(columns: Mapping[str, str]) -> list[int]:
    return [place for place, sql_type in enumerate(columns.values()) if sql_type == "jsonb"]


def _shown(table: StateTable, measures: list[str]) -> sql.Composable:
    finished = finished_columns(table.spec, "v", measures)
    types = columns_of(table.spec, measures)
    # JSON travels as text: connections differ in how they load it.
    values = [
        sql.SQL("({})::text" if types[name] == "jsonb" else "{}").format(value) for name, value in finished.items()
    ]
    return commas([*(sql.Identifier("v", name) for name in table.spec.key), *values])


def _range(table: StateTable, bounds: KeyRange) -> sql.Composed:
    return range_sql(table, len(bounds.prefix), len(bounds.start), len(bounds.stop))


def _parsed(row: tuple[Any, ...], places: list[int]) -> tuple[Any, ...]:
    values = list(row)
    for place in places:
        values[place] = None if values[place] is None else json.loads(values[place])
    return tuple(values)

"""Windows in SQL: the statement that sends the tiles of keys column by column, for Python to fold into windows.

One statement reads the batch, the tiles in use, and the rows, so that all are of one snapshot.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg import sql

from tidegauge.state_backends.backends.postgres.combined import loaded
from tidegauge.state_backends.committed import NOW, REACH, THEN, answer_now, answer_then, rows_now, rows_then
from tidegauge.state_backends.reader.windows import WindowsQuery
from tidegauge.state_backends.spec.table import StateTable, commas

# The ends of the windows: `w.until` is common to all, `w.starts` has one start for each, `w.first` is the earliest.
ENDS = """
SELECT u.until, g.starts, g.first FROM (
    SELECT tidegauge.tile_start(s.name, coalesce(%s::timestamptz, {clock})) AS until
) u CROSS JOIN LATERAL (
    SELECT array_agg(b.start ORDER BY b.place) AS starts, min(b.start) AS first FROM (
        SELECT l.place, tidegauge.tile_start(s.name, u.until - l.seconds * interval '1 second') AS start
        FROM unnest(%s::bigint[]) WITH ORDINALITY AS l (seconds, place)
    ) b
) g
"""

RESULTS = "SELECT w.starts, w.until, a.* FROM ({ends}) w CROSS JOIN LATERAL (SELECT {arrays} FROM ({rows}) r) a"
ROWS = "SELECT {picked} FROM {keys} CROSS JOIN LATERAL {versions} v WHERE NOT v.removed LIMIT %s"


def windows_sql(table: StateTable, stored: Mapping[str, str], *, past: bool) -> sql.Composed:
    """Return the statement: COMMITTED_BATCH, `tiles_until`, the start of each window, their common end, an array for
    the number of the key, the tile, and each of `stored`; and what `answer_then` ends with if `past`.

    Its parameters are those of `windows_parameters`, after the batch if `past`.
    """
    assert table.spec.tiling is not None
    tile, keys = table.spec.tiling.column, StateTable(table.spec.untiled)
    same = [sql.SQL("t.{0} = k.{0}").format(sql.Identifier(name)) for name in keys.spec.key]
    inside = sql.SQL("t.{0} >= w.first AND t.{0} < w.until").format(sql.Identifier(tile))
    within = sql.SQL(" AND ").join([*same, inside])
    # JSON travels as text: connections differ in how they load it.
    values = [
        sql.SQL("v.{}{}").format(sql.Identifier(name), sql.SQL("::text" if kind == "jsonb" else ""))
        for name, kind in stored.items()
    ]
    picked = [sql.SQL("k.ordinality"), sql.Identifier("v", tile), *values]
    named = [sql.SQL("{} AS {}").format(value, _place(place)) for place, value in enumerate(picked)]
    arrays = [sql.SQL("array_agg(r.{0}) AS {0}").format(_place(place)) for place in range(len(picked))]
    if past:
        named.append(sql.SQL("v.{}").format(REACH))
        arrays.append(sql.SQL("max(r.{0}) AS {0}").format(REACH))
    results = sql.SQL(RESULTS).format(
        ends=sql.SQL(ENDS).format(clock=THEN if past else NOW),
        arrays=commas(arrays),
        rows=sql.SQL(ROWS).format(
            picked=commas(named),
            keys=keys.unnest(with_ordinality=True),
            versions=rows_then(table, within) if past else rows_now(table, within),
        ),
    )
    places = [sql.SQL("f.{}").format(_place(place)) for place in range(len(picked))]
    shown = commas([sql.SQL("s.tiles_until::text, f.starts, f.until"), *places])
    return answer_then(table, results, shown) if past else answer_now(results, shown)


def windows_parameters(query: WindowsQuery, table: StateTable, most: int) -> list[Any]:
    """most: tiles that may be read; one more is, if there are more."""
    keys = StateTable(table.spec.untiled).key_columns(query.keys)
    seconds = [int(length.total_seconds()) for length in query.lengths]
    return [query.to, seconds, *keys, most + 1, table.spec.name]


def tiles_of(
    stored: Mapping[str, str], arrays: Sequence[list[Any] | None]
) -> Iterator[tuple[int, datetime, dict[str, Any]]]:
    """Yield the number of the key, from 1, the start of the tile, and its stored columns by name."""
    columns = [loaded(array or [], kind) for array, kind in zip(arrays, ["", "", *stored.values()], strict=True)]
    for number, tile, *values in zip(*columns, strict=True):
        yield number, tile, dict(zip(stored, values, strict=True))


def _place(place: int) -> sql.Identifier:
    return sql.Identifier(f"c{place}")

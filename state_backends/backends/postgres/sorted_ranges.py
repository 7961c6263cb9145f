"""How many rows a page by a measure reads: its whole range, because no index leads to the largest values.

An index on a measure would have to be written with each changed value. So a page is refused where its range is too
large.
"""

import psycopg
from psycopg import sql

from tidegauge.state_backends.backends.postgres.pages import range_parameters, range_sql
from tidegauge.state_backends.errors import RangeTooLargeError
from tidegauge.state_backends.reader.bounds import KeyRange
from tidegauge.state_backends.spec.table import StateTable

# The planner knows a table's size and guesses that of its rows before they are analyzed.
ESTIMATE_IS_WITHIN = 4


def check_size(conn: psycopg.Connection, table: StateTable, bounds: KeyRange, most: int, *, past: bool) -> None:
    """Raise RangeTooLargeError if a range that is to be sorted has more rows than `most`. past: as of `has_over`."""
    if has_over(conn, table, bounds, most, past=past):
        raise RangeTooLargeError(
            f"state {table.spec.name!r}: to sort by a measure all of a range is read, and this one has over {most:,} "
            "rows; give a prefix or a smaller range, or read it in key order"
        )


def has_over(conn: psycopg.Connection, table: StateTable, bounds: KeyRange, most: int, *, past: bool) -> bool:
    """Return whether a range has more rows than `most`. past: the rows are those of the changelog, if any.

    So many rows are counted, unless the planner takes the whole table to be far smaller.
    """
    rows = table.changelog if past and table.spec.changelog else table.name
    explained = conn.execute(sql.SQL("EXPLAIN (FORMAT JSON) SELECT FROM {}").format(rows)).fetchone()
    if explained is None or explained[0][0]["Plan"]["Plan Rows"] * ESTIMATE_IS_WITHIN <= most:
        return False
    within = range_sql(table, len(bounds.prefix), len(bounds.start), len(bounds.stop))
    counted = sql.SQL("SELECT count(*) FROM (SELECT FROM {} t WHERE {} LIMIT %s) t").format(rows, within)
    found = conn.execute(counted, [*range_parameters(bounds), most + 1]).fetchone()
    return found is not None and bool(found[0] > most)

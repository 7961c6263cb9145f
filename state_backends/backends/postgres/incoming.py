"""Incoming rows: what a task brings for one state, in a temporary table of its session, until they are merged."""

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from tidegauge.state_backends.extras import OptionalModule
from tidegauge.state_backends.spec.table import StateTable, columns, commas

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv as pa_csv
else:
    pa, pa_csv = OptionalModule("pyarrow"), OptionalModule("pyarrow.csv")

# Rows that Arrow sorts at once, which takes a third of PostgreSQL's time. PostgreSQL sorts more, because it can use the
# disk.
SORTED_ROWS = 100_000


class Incoming:
    """The rows that a task copies into the table `StateTable.incoming`, which each commit empties.

    conn: a psycopg connection; the caller manages transactions. in_order: whether the rows lie there in key order.
    """

    def __init__(self, conn: psycopg.Connection, table: StateTable) -> None:
        self.in_order = False
        self._conn = conn
        self._table = table
        self._names = [*table.key, *table.values]

    def empty(self) -> None:
        """Create the table unless the session has it, and empty it."""
        types = self._table.key | self._table.values
        self._conn.execute(
            sql.SQL("CREATE TEMPORARY TABLE IF NOT EXISTS {} ({}) ON COMMIT DELETE ROWS").format(
                self._table.incoming,
                commas(sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in types.items()),
            )
        )
        self._conn.execute(sql.SQL("DELETE FROM {}").format(self._table.incoming))

    def copy_batches(self, batches: Iterable["pa.RecordBatch"]) -> int:
        """Copy Arrow batches, which are written by Arrow's CSV writer; return the number of rows."""
        received = chunks = 0
        order = [(name, "ascending") for name in self._table.key]
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(self._table.incoming, columns(self._names))
        with self._conn.cursor() as cursor, cursor.copy(statement) as copy:
            for chunk in _joined(batch.select(self._names) for batch in batches):
                copy.write(csv_rows(chunk.sort_by(order)))
                received += chunk.num_rows
                chunks += 1
        self.in_order = chunks < 2
        return received

    def copy_rows(self, rows: Iterable[Sequence[Any]]) -> int:
        """Copy rows of the key and every stored column; return the number of rows."""
        return copy_rows(self._conn, self._table.incoming, self._names, rows)

    def has_key_twice(self) -> bool:
        twice = sql.SQL("SELECT FROM {} GROUP BY {} HAVING count(*) > 1 LIMIT 1").format(
            self._table.incoming, columns(self._table.key)
        )
        return self._conn.execute(twice).fetchone() is not None


def copy_rows(
    conn: psycopg.Connection, table: sql.Identifier, names: Sequence[str], rows: Iterable[Sequence[Any]]
) -> int:
    """Copy rows of these columns into a table; return the number of rows."""
    received = 0
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(table, columns(names))
    with conn.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)
            received += 1
    return received


def csv_rows(rows: "pa.RecordBatch | pa.Table") -> bytes:
    """Return the rows as `COPY .. (FORMAT csv)` reads them."""
    text = io.BytesIO()
    pa_csv.write_csv(rows, text, pa_csv.WriteOptions(include_header=False))
    return text.getvalue()


def _joined(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.Table"]:
    """Yield the rows of some batches together, at least SORTED_ROWS unless they are the last."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= SORTED_ROWS:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)

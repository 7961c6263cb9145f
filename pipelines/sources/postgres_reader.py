"""The rows that a table held when its stream began: copied aside once, so that every replay reads the same ones.

A snapshot of a transaction would end with the process that holds it, and a batch that was cut short could never be
read again as it was. The copy, and what it had seen of the changes, are made in one transaction, after the slot: no
change lies between them, and those that the copy has seen are left out of the stream (see Seen). It takes the table's
room in `tidemark_source` until its last batch is done.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pipelines.errors import InputLostError
from pipelines.sources.pgoutput import as_number, decode
from pipelines.sources.postgres_rows import Row, Wanted, rows
from pipelines.sources.postgres_slot import START_ANEW, Slot, connect, log_end
from pipelines.sources.postgres_table import Position, Seen, Table, position

SCHEMA = "tidemark_source"
INSTALL = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS {SCHEMA}.beginning (slot text PRIMARY KEY, offset_ jsonb NOT NULL);
"""


class FirstCopy:
    """The copy of a table's rows for one slot. conn: in autocommit mode."""

    def __init__(self, conn: psycopg.Connection, slot: Slot) -> None:
        self._conn = conn
        self._slot = slot
        self._place = sql.Identifier(SCHEMA, slot.name)

    def begin(self, table: Table, *, truncates: bool) -> Position:
        """Return where the stream begins, the same at every call until its first batch is done.

        Makes publication, slot and copy where this is the first call; may be killed anywhere and called again.
        Raises InputLostError where the slot has been read from by somebody else, as by an earlier checkpoint.
        """
        self._conn.execute(INSTALL)
        known = self._conn.execute(
            sql.SQL("SELECT offset_ FROM {}.beginning WHERE slot = %s").format(sql.Identifier(SCHEMA)),
            [self._slot.name],
        ).fetchone()
        if known is None:
            self._slot.create(table, truncates=truncates)
            return self._take(table)
        first = position(known[0])
        self._slot.check(first.lsn)
        if first.pages and not self._exists():
            raise InputLostError(
                f"slot {self._slot.name!r}: has been read before, by another checkpoint; put that one back, give "
                f"this pipeline a slot of its own, or {START_ANEW}"
            )
        return first

    def _take(self, table: Table) -> Position:
        state = self._slot.state()
        assert state is not None
        with self._conn.transaction():
            self._conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            seen = self._seen()
            rows, pages = self._copy(table)
            first = Position(state.confirmed, seen[0], 0, pages, rows, seen[1])
            self._conn.execute(
                sql.SQL("INSERT INTO {}.beginning VALUES (%s, %s)").format(sql.Identifier(SCHEMA)),
                [self._slot.name, json.dumps(first.as_offset())],
            )
        return first

    def _seen(self) -> tuple[Seen, str]:
        """Return what this transaction sees, and since when."""
        # The log's end is looked at after the snapshot is taken: what the snapshot sees was committed before it.
        row = self._conn.execute("SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn(), now()").fetchone()
        assert row is not None
        return Seen(row[0], as_number(row[1])), row[2].isoformat()

    def _copy(self, table: Table) -> tuple[int, int]:
        columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
        rows = self._conn.execute(
            sql.SQL("CREATE TABLE {} AS SELECT {} FROM {}").format(self._place, columns, table.identifier)
        ).rowcount
        size = self._conn.execute(
            "SELECT pg_relation_size(to_regclass(%s)) / current_setting('block_size')::int",
            [self._place.as_string(self._conn)],
        ).fetchone()
        assert size is not None
        return rows, size[0]

    def read(self, columns: tuple[str, ...], first_page: int, end_page: int) -> AbstractContextManager[psycopg.Copy]:
        """Return an open COPY of some pages; its rows are values as text, or None."""
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        query = sql.SQL("COPY (SELECT {} FROM {} WHERE ctid >= {} AND ctid < {}) TO STDOUT").format(
            names, self._place, sql.Literal(f"({first_page},0)"), sql.Literal(f"({end_page},0)")
        )
        return self._conn.cursor().copy(query)

    def drop(self) -> None:
        self._conn.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._place))

    def forget(self) -> None:
        """Drop the copy and the note of where the stream began, where they are there."""
        self._conn.execute(INSTALL)
        self.drop()
        self._conn.execute(
            sql.SQL("DELETE FROM {}.beginning WHERE slot = %s").format(sql.Identifier(SCHEMA)), [self._slot.name]
        )

    def _exists(self) -> bool:
        row = self._conn.execute("SELECT to_regclass(%s) IS NOT NULL", [self._place.as_string(self._conn)]).fetchone()
        return row == (True,)


# How Spark reads a table's rows and changes: where a batch ends, and what is between two positions.
#
# A batch ends where a transaction does. Reading consumes nothing, so a batch that is read again is the same; Spark
# says that a batch is done (`commit`) once it has noted where the next one ends, and no sooner may PostgreSQL forget
# it.


CHANGE, LSN, AT = "_change", "_lsn", "_at"

ROWS_PER_ARROW_BATCH = 10_000
COPY_TASKS = 4
# What other tables write is passed over by an empty batch, so that the slot need not keep it; one segment of the log.
IDLE_BYTES = 16 * 1024 * 1024
# A look that finds nothing has decoded what other tables wrote; looks take a tenth of the time at most.
REST_FACTOR = 9
FLUSH_SECONDS = 10
MAX_MESSAGES = 2**31 - 1


@dataclass(frozen=True)
class ChangeSettings:
    """What a reader needs to know. url: with its password, and so never shown."""

    slot: str
    publication: str
    wanted: Wanted
    max_changes: int
    url: str = field(repr=False)

    def raw(self) -> StructType:
        schema = StructType()
        for name in self.wanted.columns:
            schema = schema.add(name, "string")
        return schema.add(CHANGE, "string").add(LSN, "long").add(AT, "timestamp")


class CopyPages(InputPartition):
    """Pages of the copy, from the first and up to before the end; at: when the copy was taken, ISO."""

    def __init__(self, first: int, end: int, at: str) -> None:
        self.first, self.end, self.at = first, end, at


class Changes(InputPartition):
    """The changes between two positions, as offsets."""

    def __init__(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        self.start, self.end = start, end


class PostgresChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver, and reads them on executors."""

    def __init__(self, settings: ChangeSettings) -> None:
        self.settings = settings
        self._target: int | None = None
        self._rest_until = 0.0
        self._copy_is_there = True

    @cached_property
    def _conn(self) -> psycopg.Connection:
        return connect(self.settings.url, self.settings.slot)

    @cached_property
    def _slot(self) -> Slot:
        return Slot(self._conn, self.settings.slot, self.settings.publication)

    @cached_property
    def _copy(self) -> FirstCopy:
        return FirstCopy(self._conn, self._slot)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        return ReadMaxRows(self.settings.max_changes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        self._target, is_flushed = log_end(self._conn)
        deadline = time.monotonic() + FLUSH_SECONDS
        # What was committed asynchronously cannot be decoded before it is on disk.
        while not is_flushed and time.monotonic() < deadline:
            time.sleep(0.02)
            is_flushed = _is_flushed(self._conn, self._target)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        wanted = self.settings.wanted
        return self._copy.begin(wanted.table, truncates=wanted.truncates).as_offset()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        at_most = limit.max_rows if isinstance(limit, ReadMaxRows) else MAX_MESSAGES
        before = position(start)
        self._slot.check(before.lsn)
        if before.is_copying:
            pages = max(1, before.pages * at_most // max(before.rows, 1))
            return before.turned(pages).as_offset()
        end = self._end(before, at_most)
        return start if end is None else before.moved(end).as_offset()

    def _end(self, start: Position, at_most: int) -> int | None:
        """Return the LSN where the next batch ends, or None where there is nothing to read."""
        if (self._target is not None and self._target <= start.lsn) or time.monotonic() < self._rest_until:
            return None
        began = time.monotonic()
        log, is_flushed = log_end(self._conn) if self._target is None else (self._target, True)
        found = self._last_commit(start.lsn, at_most)
        if found is not None:
            return found
        if self._target is None:
            self._rest_until = time.monotonic() + REST_FACTOR * (time.monotonic() - began)
        return log if is_flushed and log - start.lsn >= IDLE_BYTES else None

    def _last_commit(self, start: int, at_most: int) -> int | None:
        """Return the end of the last transaction that fits into a batch, or of the first where none does."""
        messages = 2 * at_most
        while True:
            messages = min(messages, MAX_MESSAGES)
            commits = self._slot.commits(self._target, messages)
            passed = max((number for number, lsn in commits if lsn <= start), default=0)
            ends = [(number - passed, lsn) for number, lsn in commits if lsn > start]
            if ends:
                return max((lsn for number, lsn in ends if number <= at_most), default=ends[0][1])
            # All that was looked at had been read before: the slot stands a batch behind, or more after a crash.
            if not commits or commits[-1][0] < messages:
                return None
            messages *= 4

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = position(start), position(end)
        if before.is_copying:
            return _shares(before.page, after.page, before.at)
        return [Changes(start, end)] if before.lsn < after.lsn else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        found = self._read_copy(partition) if isinstance(partition, CopyPages) else self._read_changes(partition)
        try:
            while chunk := list(islice(found, ROWS_PER_ARROW_BATCH)):
                yield _as_arrow(chunk, self.settings.raw().names)
        finally:
            self.stop()

    def _read_copy(self, pages: CopyPages) -> Iterator[Row]:
        at = int(datetime.fromisoformat(pages.at).timestamp() * 1_000_000)
        with self._copy.read(self.settings.wanted.columns, pages.first, pages.end) as copy:
            for values in copy.rows():
                # Before every change of the row: those of the log come after 0.
                yield [*values, "snapshot", 0, at]

    def _read_changes(self, partition: InputPartition) -> Iterator[Row]:
        assert isinstance(partition, Changes)
        start, end = position(partition.start), position(partition.end)
        self._slot.check(start.lsn)
        yield from rows(decode(self._slot.messages(end.lsn)), self.settings.wanted, start, end)

    def commit(self, end: dict[str, Any]) -> None:
        """Forget what the batch that ends here was made of: it is done, and Spark has noted where the next one ends."""
        done = position(end)
        if done.is_copying:
            return
        if self._copy_is_there:
            self._copy.drop()
            self._copy_is_there = False
        self._slot.advance(done.lsn)

    def stop(self) -> None:
        if "_conn" in self.__dict__:
            self._conn.close()


def _shares(first: int, end: int, at: str) -> list[InputPartition]:
    step = max(1, -(-(end - first) // COPY_TASKS))
    return [CopyPages(page, min(page + step, end), at) for page in range(first, end, step)]


def _as_arrow(chunk: list[Row], names: list[str]) -> pa.RecordBatch:
    *texts, lsns, times = zip(*chunk, strict=True)
    columns = [pa.array(values, pa.string()) for values in texts]
    at = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays([*columns, pa.array(lsns, pa.int64()), at], names=names)


def _is_flushed(conn: psycopg.Connection, lsn: int) -> bool:
    row = conn.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn >= %s", [lsn]).fetchone()
    return row == (True,)

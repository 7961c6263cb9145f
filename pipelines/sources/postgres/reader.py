"""The Spark reader of a table's rows and changes.

A batch ends at the end of a transaction. Reading consumes nothing, so a batch that is read again is the same. Spark
calls `commit` once it has stored where the next batch ends; only then may PostgreSQL forget the changes.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidegauge.pipelines.sources.postgres.batch import LogPosition, Row, Wanted, position, rows
from tidegauge.pipelines.sources.postgres.copy import FirstCopy
from tidegauge.pipelines.sources.postgres.pgoutput import decode
from tidegauge.pipelines.sources.postgres.slot import Slot, connect, log_end
from tidegauge.pipelines.sources.python_reader import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

CHANGE, LSN, AT = "_change", "_lsn", "_at"
UNCHANGED = "_unchanged"

ROWS_PER_ARROW_BATCH = 10_000
COPY_TASKS = 4
# One segment. An empty batch skips this much log of other tables, so that the slot need not keep it.
IDLE_BYTES = 16 * 1024 * 1024
# Polls take at most a tenth of the time, because one that finds nothing has decoded the changes of other tables.
REST_FACTOR = 9
FLUSH_SECONDS = 10
MAX_MESSAGES = 2**31 - 1


@dataclass(frozen=True)
class ChangeSettings:
    """Settings of a reader. url: contains the password, so it is never shown."""

    slot: str
    publication: str
    wanted: Wanted
    max_changes: int
    url: str = field(repr=False)

    def raw(self) -> StructType:
        schema = StructType()
        for name in self.wanted.columns:
            schema = schema.add(name, "string")
        if self.wanted.old_rows == "key":
            schema = schema.add(UNCHANGED, "string")
        return schema.add(CHANGE, "string").add(LSN, "long").add(AT, "timestamp")


class CopyPages(InputPartition):
    """Pages of the copy, from `first` to before `end`. at: when the copy was taken, ISO."""

    def __init__(self, first: int, end: int, at: str) -> None:
        self.first, self.end, self.at = first, end, at


class ChangeRange(InputPartition):
    """The changes between two positions, as offsets."""

    def __init__(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        self.start, self.end = start, end


class PostgresChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver, and reads them on executors."""

    def __init__(self, settings: ChangeSettings) -> None:
        self.settings = settings
        self._target: int | None = None
        self._rest_until = 0.0
        self._copy_exists = True

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
        # Waits, because asynchronous commits cannot be decoded before they are on disk.
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
            return before.after_pages(pages).as_offset()
        end = self._end(before, at_most)
        if end is None:
            return start
        if self.settings.wanted.old_rows:
            # After the end is known, so that no type can change before it unnoticed.
            self._copy.check_types(self.settings.wanted.table, self.settings.wanted.columns)
        return before.after_changes(end).as_offset()

    def _end(self, start: LogPosition, at_most: int) -> int | None:
        """Return the LSN where the next batch ends, or None if there is nothing to read."""
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
        """Return the end of the last transaction that fits into a batch, or of the first if none does."""
        messages = 2 * at_most
        while True:
            messages = min(messages, MAX_MESSAGES)
            commits = self._slot.commits(self._target, messages)
            passed = max((number for number, lsn in commits if lsn <= start), default=0)
            ends = [(number - passed, lsn) for number, lsn in commits if lsn > start]
            if ends:
                return max((lsn for number, lsn in ends if number <= at_most), default=ends[0][1])
            # All of these were read before, because the slot is a batch behind, or more after a crash. So peek further.
            if not commits or commits[-1][0] < messages:
                return None
            messages *= 4

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = position(start), position(end)
        if before.is_copying:
            return _shares(before.page, after.page, before.at)
        return [ChangeRange(start, end)] if before.lsn < after.lsn else []

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
            unchanged = [None] if self.settings.wanted.old_rows == "key" else []
            for values in copy.rows():
                # LSN 0, so that it sorts before every change of the row.
                yield [*values, *unchanged, "snapshot", 0, at]

    def _read_changes(self, partition: InputPartition) -> Iterator[Row]:
        assert isinstance(partition, ChangeRange)
        start, end = position(partition.start), position(partition.end)
        self._slot.check(start.lsn)
        yield from rows(decode(self._slot.messages(end.lsn)), self.settings.wanted, start, end)

    def commit(self, end: dict[str, Any]) -> None:
        """Release the input of the batches up to `end`: they are done once Spark has stored where the next one ends."""
        done = position(end)
        if done.is_copying:
            return
        if self._copy_exists:
            self._copy.drop()
            self._copy_exists = False
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

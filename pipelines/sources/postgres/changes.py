"""Reads a PostgreSQL table as a stream: first the rows it has, then every change to them, by logical decoding.

The stream is exact, because the slot is created first, then the table is copied in one transaction, and the changes of
transactions that the copy has seen are left out. So nothing is lost between the two, and nothing comes twice.

It is a transactional spout, because a batch holds the same rows each time it is read. The copy does not change. A batch
of changes has the transactions that committed between two positions of the log. They are peeked at and never consumed,
and the slot keeps them until Spark has stored the batch as done.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator
from functools import cached_property, partial
from typing import Any, get_args

import psycopg
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from tidegauge.pipelines.checkpoint.files import CheckpointPath
from tidegauge.pipelines.errors import InputLostError, PipelineError, SourceSetupError
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.pipelines.sources.parsing import by_cast, check_types, why_unreadable
from tidegauge.pipelines.sources.pending import Pending
from tidegauge.pipelines.sources.postgres.batch import OldRows, Wanted, position
from tidegauge.pipelines.sources.postgres.copy import FirstCopy
from tidegauge.pipelines.sources.postgres.pgoutput import as_text
from tidegauge.pipelines.sources.postgres.reader import AT, CHANGE, LSN, UNCHANGED, ChangeSettings, PostgresChangeReader
from tidegauge.pipelines.sources.postgres.slot import IDENTITY, Slot, connect
from tidegauge.pipelines.sources.postgres.table import Table, check_old_rows, find_table
from tidegauge.pipelines.sources.python_reader import python_stream
from tidegauge.pipelines.sources.source import SIGN, Parsed, offsets_held
from tidegauge.pipelines.spark.rows import read_rows
from tidegauge.pipelines.spark.versions import LIMITED_READERS, require_spark
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger.source_input import Identity, SourceInput
from tidegauge.state_backends.schema.counted import CountedSource

DELETED, BAD, REASON = "_deleted", "_bad", "_reason"
OWN = (CHANGE, DELETED, LSN, AT, SIGN, UNCHANGED)
MAX_NAME_BYTES = 63


class PostgresChanges:
    """The rows of a table, then its changes.

    table: `schema.table`; a partitioned one is read as a whole. It needs a primary key or REPLICA IDENTITY FULL, its
    server `wal_level = logical`, and the URL's user the right to create a publication, a slot and a schema.
    schema: the columns to read, as Spark DDL or a StructType; default all that are not generated; with `old_rows`,
    only those that the table had when the stream began. Types are the nearest that Spark has: numeric without digits,
    json, uuid, arrays, enums, times and intervals come as the text that PostgreSQL writes; declare `decimal(38,9)` or
    another type that this text can be read as.
    An event also has `_change` (`snapshot`, `insert`, `update` or `delete`), `_deleted` (true for a delete: its
    key is set, and the rest is null unless the replica identity is FULL), `_lsn` (bigint: orders the changes of a row;
    0 in the snapshot) and `_at` (timestamp: of the commit; of the copy in the snapshot). An update of a key is a
    delete and an insert. A value that its column cannot hold, such as `infinity` in a date,
    makes the row a dead letter.
    url: default `DATABASE_URL`. It travels with the tasks, and appears in no plan, checkpoint, log or error.
    slot, publication: created if absent; default `tidegauge_` and the table's name. A slot belongs to one pipeline.
    max_changes_per_batch: approximate; each transaction counts as two more, and a larger one is a batch of its own:
    PostgreSQL then holds it on disk, and a task reads it in chunks.
    max_bad_share: a batch with more than this share of bad rows (and more than 10) stops the pipeline.
    max_slot_bytes: if the slot keeps more of the server's log, the pipeline's progress has an alarm.
    ignore_truncate: skip a TRUNCATE, which does not list rows and so removes none; otherwise it stops the pipeline.
    old_rows: `full` emits the old row before each update, with `_change` `update_before`, and adds `_sign`: -1 for that
    and for a delete, else 1, for `Stream.retract`. The table needs REPLICA IDENTITY FULL. `key` is for `with_old_rows`,
    which keeps the rows in a state: `update_before` has only the key, and `_unchanged` names the columns that the log
    leaves out because their large values did not change. See docs/changing-tables.md.

    A slot keeps the server's log as long as it exists. `drop()` removes it when the pipeline is abandoned; in SQL,
    `SELECT pg_drop_replication_slot('<slot>'); DROP PUBLICATION <publication>; DROP TABLE IF EXISTS
    tidegauge_source.<slot>; DELETE FROM tidegauge_source.beginning WHERE slot = '<slot>'`.
    """

    spout: Spout = "transactional"
    packages: tuple[str, ...] = ()

    def __init__(
        self,
        table: str,
        *,
        schema: str | StructType | None = None,
        url: str | None = None,
        slot: str | None = None,
        publication: str | None = None,
        max_changes_per_batch: int = 100_000,
        max_slot_bytes: int = 1_000_000_000,
        ignore_truncate: bool = False,
        old_rows: OldRows | None = None,
        max_bad_share: float = 0.5,
    ) -> None:
        self.table = table
        self.slot = slot or _slot_name(table)
        self.publication = publication or self.slot
        if max_changes_per_batch < 1:
            raise PipelineError(f"{self}: max_changes_per_batch is {max_changes_per_batch}; it must be 1 or more")
        if self.slot != _slot_name(self.slot, prefix=""):
            raise PipelineError(f"{self}: slot {self.slot!r} is not a valid name; use a-z, 0-9 and _, at most 63")
        if old_rows not in (None, *get_args(OldRows)):
            raise PipelineError(f"{self}: old_rows {old_rows!r} is not one of {', '.join(get_args(OldRows))}")
        if old_rows and ignore_truncate:
            raise PipelineError(
                f"{self}: ignore_truncate would leave the rows of a truncated table counted, but old_rows has to "
                "subtract them; leave one of the two out"
            )
        self.old_rows = old_rows
        self.max_changes_per_batch = max_changes_per_batch
        self.max_slot_bytes = max_slot_bytes
        self.max_bad_share = max_bad_share
        self._ignore_truncate = ignore_truncate
        self._declared = schema
        self._url = url
        self._monitor: psycopg.Connection | None = None

    def __str__(self) -> str:
        return f"changes of table {self.table!r}"

    @cached_property
    def _table(self) -> Table:
        with self._connect() as conn:
            return find_table(conn, self.table)

    @cached_property
    def fields(self) -> StructType:
        """The columns that come from the table."""
        fields = self._all_fields() if self._declared is None else _parsed(self._declared)
        check_types(str(self), fields, (*OWN, BAD, REASON))
        unknown = [name for name in fields.names if name not in self._table.columns]
        if unknown:
            columns = ", ".join(self._table.columns)
            raise PipelineError(f"{self}: unknown or generated column {', '.join(unknown)}; it has {columns}")
        return fields

    def _all_fields(self) -> StructType:
        fields = self._table.spark_schema()
        if not self.old_rows:
            return fields
        # Without columns added since, because rows that were counted without them must be subtracted without them.
        with self._connect() as conn:
            first = FirstCopy(conn, Slot(conn, self.slot, self.publication)).types() or self._table.columns
        return StructType([field for field in fields if field.name in first])

    @cached_property
    def schema(self) -> StructType:
        own = StructType().add(CHANGE, "string").add(DELETED, "boolean").add(LSN, "long").add(AT, "timestamp")
        if self.old_rows:
            own = own.add(SIGN, "integer", False)
        if self.old_rows == "key":
            own = own.add(UNCHANGED, ArrayType(StringType()))
        return StructType([*self.fields, *own])

    def load(self, spark: SparkSession, *, waits: bool = False) -> DataFrame:
        require_spark(LIMITED_READERS, "PostgresChanges")
        settings = self.reader_settings(tuple(self.fields.names))
        if self.old_rows:
            self._check_old_rows()
        reader = partial(PostgresChangeReader, settings)
        return python_stream(spark, "postgres_changes", settings.raw(), reader, waits=waits)

    def load_waiting(self, spark: SparkSession) -> DataFrame:
        return self.load(spark, waits=True)

    def parse(self, batch: DataFrame) -> Parsed:
        # All nullable, because a delete has only its key, even if the schema requires other columns.
        fields = StructType([StructField(field.name, field.dataType, True) for field in self.fields])
        values = [_value(_text(field.name), field).alias(field.name) for field in fields]
        reason = why_unreadable(fields, _text, _value)
        bad = F.when(F.col(REASON).isNotNull(), F.to_json(F.struct(*map(_text, fields.names))))
        is_old = F.col(CHANGE).isin("delete", "update_before")
        deleted = (is_old if self.old_rows == "key" else F.col(CHANGE) == "delete").alias(DELETED)
        own = [F.col(CHANGE), deleted, F.col(LSN), F.col(AT)]
        if self.old_rows:
            own.append(F.when(is_old, -1).otherwise(1).alias(SIGN))
        if self.old_rows == "key":
            own.append(F.from_json(UNCHANGED, "array<string>").alias(UNCHANGED))
        rows = batch.withColumn(REASON, reason).select(*values, *own, REASON, bad.alias(BAD))
        return Parsed(rows, tuple(self.schema.names), BAD)

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        bad = parsed.where(F.col(REASON).isNotNull()).select(LSN, CHANGE, BAD, REASON)
        for lsn, change, line, reason in read_rows(bad):
            yield DeadLetter(f"table {self.table}, {change} at LSN {as_text(lsn)}", line, reason)

    def pending(self, checkpoint: CheckpointPath, place: int = 0) -> Pending | None:
        """Return the bytes of the server's log that the slot keeps: an upper bound of unread input, never quite 0.

        None if the server is unavailable, or the slot does not exist yet.
        """
        try:
            state = Slot(self._monitoring(), self.slot, self.publication).state()
        except (psycopg.Error, InputLostError):
            return None
        if state is None:
            return None
        return Pending(state.retained_bytes, "bytes of log", None, self._alarm(state.retained_bytes))

    def held(self, checkpoint: CheckpointPath, batch_id: int, place: int = 0) -> SourceInput | None:
        """Return the positions [from, to] in the copy or in the server's log."""
        return offsets_held(checkpoint, batch_id, place, f"slot {self.slot}")

    def offset_text(self, offset: Any) -> str:
        return json.dumps(offset)

    def check_from(self, offset: Any, again: Collection[str], spark: Callable[[], SparkSession]) -> None:
        with self._connect() as conn:
            slot = Slot(conn, self.slot, self.publication)
            start = position(offset)
            slot.check(start.lsn)
            if start.is_copying:
                FirstCopy(conn, slot).check()

    def identity(self) -> Identity:
        """Return the ids of the server's data, database and table, because positions mean nothing elsewhere."""
        row = self._monitoring().execute(IDENTITY, [self.table]).fetchone()
        assert row is not None
        names = ("server", "database", f"table {self.table}")
        return {name: str(number) for name, number in zip(names, row, strict=True) if number is not None}

    def _monitoring(self) -> psycopg.Connection:
        if self._monitor is None or self._monitor.closed:
            self._monitor = self._connect()
        return self._monitor

    def missing(self, spark: SparkSession, counted: CountedSource) -> str:
        """Return nothing, because a table has fewer rows than it had changes, even if nothing is missing."""
        return ""

    def _alarm(self, retained_bytes: int) -> str | None:
        if retained_bytes <= self.max_slot_bytes:
            return None
        return (
            f"slot {self.slot!r} keeps {retained_bytes / 1e6:.0f} MB of the server's log, more than "
            f"{self.max_slot_bytes / 1e6:.0f} MB (max_slot_bytes): the pipeline falls behind, and the disk fills; "
            "let it catch up, or drop the slot"
        )

    def drop(self) -> None:
        """Remove slot, publication and copy, before a pipeline is abandoned or starts again. Repeatable."""
        with self._connect() as conn:
            slot = Slot(conn, self.slot, self.publication)
            slot.drop()
            FirstCopy(conn, slot).forget()

    def reader_settings(self, columns: tuple[str, ...]) -> ChangeSettings:
        wanted = Wanted(self._table, columns, truncates=not self._ignore_truncate, old_rows=self.old_rows)
        return ChangeSettings(self.slot, self.publication, wanted, self.max_changes_per_batch, self._known_url())

    def _check_old_rows(self) -> None:
        with self._connect() as conn:
            check_old_rows(conn, self._table, full=self.old_rows == "full")
        missing = [name for name in self._table.key if name not in self.fields.names]
        if self.old_rows == "key" and missing:
            raise SourceSetupError(f"{self}: old_rows='key' needs the key column {', '.join(missing)} in the schema")

    def _connect(self) -> psycopg.Connection:
        return connect(self._known_url(), self.slot)

    def _known_url(self) -> str:
        url = self._url or os.environ.get("DATABASE_URL")
        if not url:
            raise SourceSetupError(f"{self}: no database to read from; set DATABASE_URL or give the source a url")
        return url


def _text(name: str) -> Column:
    return F.col(quoted(name))


def _value(text: Column, field: StructField) -> Column:
    if isinstance(field.dataType, BinaryType):
        return F.unhex(F.regexp_extract(text, r"^\\x(.*)$", 1))
    return by_cast(text, field)


def _parsed(schema: str | StructType) -> StructType:
    parsed = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    assert isinstance(parsed, StructType)
    return parsed


def _slot_name(table: str, prefix: str = "tidegauge_") -> str:
    kept = "".join(c if c in "abcdefghijklmnopqrstuvwxyz0123456789" else "_" for c in table.lower())
    return f"{prefix}{kept}"[:MAX_NAME_BYTES]

"""Redis streams: entries added by `XADD`, read by id.

Spark stores which ids a batch holds before the batch runs, so a replay reads the same entries. But Redis may have
trimmed some by then, so this is an opaque spout. Lost entries are reported: see `on_loss`. Needs Redis 6.2 or later.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from tidegauge.pipelines.checkpoint.files import CheckpointPath
from tidegauge.pipelines.checkpoint.folder import committed_offset, offset_range
from tidegauge.pipelines.errors import InputLostError, PipelineError, SourceSetupError
from tidegauge.pipelines.sources.bad_lines import why_bad
from tidegauge.pipelines.sources.exact import json_misfit
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.pipelines.sources.parsing import (
    CORRUPT,
    by_cast,
    check_types,
    is_one_json_value,
    json_row,
    why_unreadable,
)
from tidegauge.pipelines.sources.pending import Pending
from tidegauge.pipelines.sources.python_reader import python_batch, python_stream
from tidegauge.pipelines.sources.redis.reader import (
    ENTRY,
    ID,
    PROBLEM,
    RAW,
    START,
    STREAM,
    OnLoss,
    RedisStreamReader,
    StreamSettings,
    check_nothing_lost,
    count_entries,
    last_id,
)
from tidegauge.pipelines.sources.source import Parsed, Span
from tidegauge.pipelines.spark.rows import read_rows
from tidegauge.pipelines.spark.versions import LIMITED_READERS, require_spark
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger.source_input import Identity, SourceInput
from tidegauge.state_backends.schema.counted import CountedSource

AT, BAD, REASON = "_at", "_bad", "_reason"
OWN = (STREAM, ID, AT)

# A limit, because counting more of a stream would block the server each time.
COUNTED_ENTRIES = 10_000


class RedisStreams:
    """Entries of one or more Redis streams, from the oldest there is.

    schema: the columns, as Spark DDL or a StructType; `NOT NULL` makes one required. Each is the entry's field of that
    name, read as the column's type; absent fields are null, others are ignored. With `json_field` they come from the
    JSON object in that one field instead. An entry whose values do not fit is bad: it goes to the dead letters.
    An event also has `_stream`, `_id` and `_at` (timestamp: the time in the id, in ms).
    url: default `REDIS_URL`. It travels with the tasks, and appears in no plan, checkpoint, log or error.
    max_entries_per_batch: over all streams, each getting its share; a stream is read by one task, in chunks.
    on_loss: `error` stops the pipeline if entries were trimmed, or a stream deleted, before they were read, and also if
    that cannot be ruled out: once the last entry read is itself trimmed and newer ones have come, Redis 6.2 does not
    say. `continue` reads what is left. Also detected is a stream that was deleted and created again; if it has explicit
    ids around the last one read, only if there is a different entry under that id.
    max_bad_share: a batch with more than this share of bad entries (and more than 10) stops the pipeline.
    Raises PipelineError if the declaration is invalid.
    """

    spout: Spout = "opaque"
    records = "entry of a stream"
    packages: tuple[str, ...] = ()

    def __init__(
        self,
        streams: str | Sequence[str],
        *,
        schema: str | StructType,
        json_field: str | None = None,
        url: str | None = None,
        max_entries_per_batch: int = 50_000,
        on_loss: OnLoss = "error",
        max_bad_share: float = 0.5,
    ) -> None:
        self.streams = (streams,) if isinstance(streams, str) else tuple(streams)
        if not self.streams or len(set(self.streams)) < len(self.streams):
            raise PipelineError(f"source of Redis streams {self.streams!r}: name at least one, and none twice")
        if max_entries_per_batch < 1:
            raise PipelineError(f"{self}: max_entries_per_batch is {max_entries_per_batch}; it must be 1 or more")
        self.max_entries_per_batch = max_entries_per_batch
        self.on_loss: OnLoss = on_loss
        self.max_bad_share = max_bad_share
        self._fields = schema
        self._json_field = json_field
        self._url = url

    def __str__(self) -> str:
        return f"Redis streams {', '.join(self.streams)}"

    @cached_property
    def fields(self) -> StructType:
        """The columns that are read from an entry."""
        fields = self._fields if isinstance(self._fields, StructType) else StructType.fromDDL(self._fields)
        assert isinstance(fields, StructType)
        if self._json_field is None:
            check_types(str(self), fields, (*OWN, BAD, REASON))
        return fields

    @cached_property
    def schema(self) -> StructType:
        own = StructType().add(STREAM, "string").add(ID, "string").add(AT, "timestamp")
        return StructType([*self.fields, *own])

    def load(self, spark: SparkSession, *, waits: bool = False) -> DataFrame:
        require_spark(LIMITED_READERS, "RedisStreams")
        return python_stream(spark, "redis_streams", RAW, partial(RedisStreamReader, self._settings()), waits=waits)

    def load_waiting(self, spark: SparkSession) -> DataFrame:
        return self.load(spark, waits=True)

    def reread(self, spark: SparkSession, span: Span) -> DataFrame:
        # `error` in any case, because entries that are gone must not be taken for entries that were never counted.
        settings = replace(self._settings(), on_loss="error")
        reader = partial(RedisStreamReader, settings)
        start = span.start or reader().initialOffset()
        with settings.connect() as client:
            for stream, end in span.end.items():
                before = start.get(stream, {"id": START, "read": 0})
                found, _ = count_entries(client, stream, before["id"], end["id"])
                if found != end["read"] - before["read"]:
                    raise InputLostError(
                        f"stream {stream!r}: has {found} entries up to {end['id']}, but "
                        f"{end['read'] - before['read']} were counted"
                    )
        return python_batch(spark, "redis_streams_again", RAW, reader, start, span.end)

    def parse(self, batch: DataFrame) -> Parsed:
        rows = self._from_fields(batch) if self._json_field is None else self._from_json(batch)
        at = F.timestamp_millis(F.substring_index(ID, "-", 1).cast("bigint"))
        bad = F.when(F.col(REASON).isNotNull(), F.col(ENTRY))
        rows = rows.select(*map(quoted, self.fields.names), STREAM, ID, at.alias(AT), PROBLEM, REASON, bad.alias(BAD))
        return Parsed(rows, tuple(self.schema.names), BAD)

    def _from_fields(self, batch: DataFrame) -> DataFrame:
        texts = StructType()
        for name in self.fields.names:
            texts = texts.add(name, StringType())
        given = batch.withColumn("_text", F.from_json(ENTRY, texts))
        text = F.col("_text").getField
        values = [by_cast(text(field.name), field).alias(field.name) for field in self.fields]
        return given.select(
            *values, STREAM, ID, ENTRY, PROBLEM, F.coalesce(PROBLEM, why_unreadable(self.fields, text)).alias(REASON)
        )

    def _from_json(self, batch: DataFrame) -> DataFrame:
        line = F.from_json(ENTRY, "map<string,string>")[self._json_field]
        rows = batch.withColumn("_line", line).withColumn("_row", json_row("_line", self.fields))
        bad = F.col("_line").isNull() | F.col("_row").getField(CORRUPT).isNotNull() | ~is_one_json_value(F.col("_line"))
        misfit = json_misfit("_line", F.col("_row"), self.fields)
        bad = bad if misfit is None else bad | misfit
        for field in self.fields:
            bad = bad | (F.lit(not field.nullable) & F.col("_row").getField(field.name).isNull())
        # Empty, because the reason is found in Python, only for the few that are bad.
        reason = F.coalesce(PROBLEM, F.when(bad, F.lit("")))
        return rows.select("_row.*", STREAM, ID, ENTRY, PROBLEM, reason.alias(REASON))

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        bad = parsed.where(F.col(REASON).isNotNull()).select(STREAM, ID, BAD, REASON, PROBLEM)
        for stream, entry_id, entry, reason, problem in read_rows(bad):
            where, why = f"stream {stream}, entry {entry_id}", reason or self._why_bad_json(entry)
            # No record of an entry with a problem, because its bytes are escaped here.
            record = {"record": self.records, "stream": stream, "id": entry_id, "entry": entry}
            yield DeadLetter(where, entry, why, record=None if problem else record)

    def parse_again(self, spark: SparkSession, records: Sequence[Mapping[str, Any]]) -> Parsed:
        rows = [(record["stream"], record["id"], record["entry"], None) for record in records]
        return self.parse(spark.createDataFrame(rows, RAW))

    def _why_bad_json(self, entry: str) -> str:
        line = json.loads(entry).get(self._json_field)
        return f"field {self._json_field!r}: {'absent' if line is None else why_bad(line, self.fields)}"

    def pending(self, checkpoint: CheckpointPath, place: int = 0) -> Pending | None:
        """Return the entries that no committed batch has read; a stream's count stops at 10 000.

        None if Redis is unavailable.
        """
        read = committed_offset(checkpoint, place) or {}
        count, oldest = 0, []
        try:
            with self._settings().connect() as client:
                for stream in self.streams:
                    after = read.get(stream, {"id": START})["id"]
                    if last_id(client, stream) == after:
                        continue
                    count += count_entries(client, stream, after, at_most=COUNTED_ENTRIES)[0]
                    oldest += [entry_id for entry_id, _ in client.xrange(stream, min=f"({after}", count=1)]
        except redis.RedisError:
            return None
        return Pending(count, "entries", _time_of(oldest))

    def held(self, checkpoint: CheckpointPath, batch_id: int, place: int = 0) -> SourceInput | None:
        """Return the ids (from, to] of each stream that the batch reads."""
        offsets = offset_range(checkpoint, batch_id, place)
        if offsets is None or offsets[1] is None:
            return None
        start, end = offsets[0] or {}, offsets[1]
        ids = {stream: [start.get(stream, {"id": START})["id"], end[stream]["id"]] for stream in end}
        return SourceInput("streams", {stream: ends for stream, ends in ids.items() if ends[0] != ends[1]})

    def offset_text(self, offset: Any) -> str:
        return json.dumps(offset)

    def check_from(self, offset: Any, again: Collection[str], spark: Callable[[], SparkSession]) -> None:
        with self._settings().connect() as client:
            for stream in self.streams if self.on_loss == "error" else ():
                check_nothing_lost(client, stream, (offset or {}).get(stream, {"id": START})["id"])

    def identity(self) -> Identity:
        """Return nothing, because a stream has no id. The reader compares the last entry read instead."""
        return {}

    def missing(self, spark: SparkSession, counted: CountedSource) -> str:
        """Count what is left of the first batch's entries, because streams are trimmed from their start."""
        first = counted.offsets if counted.unit == "streams" else None
        lost = []
        with self._settings().connect() as client:
            for stream in self.streams:
                end = (first or {}).get(stream, {"id": START, "read": 0})
                left = count_entries(client, stream, START, end["id"], end["read"])[0] if end["read"] else 0
                if left < end["read"]:
                    lost.append(f"stream {stream!r} has {left} of the {end['read']} entries of the first batch")
        return "; ".join(lost)

    def _settings(self) -> StreamSettings:
        url = self._url or os.environ.get("REDIS_URL")
        if not url:
            raise SourceSetupError(f"{self}: no Redis to read from; set REDIS_URL or give the source a url")
        return StreamSettings(self.streams, self.max_entries_per_batch, self.on_loss, url)


def _time_of(ids: list[bytes]) -> str | None:
    if not ids:
        return None
    milliseconds = min(int(entry_id.partition(b"-")[0]) for entry_id in ids)
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()

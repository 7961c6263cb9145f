"""The Spark reader of Redis streams: which entries a batch holds, and how lost entries are detected.

An offset holds, per stream, the id of the last entry, a digest of that entry, and how many entries have been read so
far. So a task knows how many it must find between two ids, trimming is detected both before a batch is planned and
after, and a different entry under the same id shows that the stream was created again.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import redis
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidegauge.pipelines.errors import InputLostError, PipelineError, SourceSetupError
from tidegauge.pipelines.sources.python_reader import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

STREAM, ID, ENTRY, PROBLEM = "_stream", "_id", "_entry", "_problem"
RAW = StructType().add(STREAM, "string").add(ID, "string").add(ENTRY, "string").add(PROBLEM, "string")
RAW_ARROW = pa.schema([(name, pa.string()) for name in RAW.names])

# Entries per call: few enough not to block a single-threaded server, many enough that round trips cost little.
CHUNK = 1_000
TIMEOUT_SECONDS = 30
START = "0-0"

# Returns the number of entries and the last id, without the entries themselves.
COUNT_SCRIPT = """
local entries = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])
return {#entries, #entries > 0 and entries[#entries][1]}
"""

CONTINUE_HINT = "to continue with what is left, set on_loss='continue'"

Offset = dict[str, dict[str, Any]]
OnLoss = Literal["error", "continue"]


@dataclass(frozen=True)
class StreamSettings:
    """Settings of a reader. url: contains the password, so it is never shown."""

    streams: tuple[str, ...]
    max_entries: int
    on_loss: OnLoss
    url: str = field(repr=False)

    def connect(self) -> redis.Redis:
        try:
            return redis.Redis.from_url(self.url, socket_timeout=TIMEOUT_SECONDS, decode_responses=False)
        except ValueError:
            # Without the cause, because it may quote a part of the URL, and so of the password.
            raise SourceSetupError("the URL of the Redis to read from is invalid; see REDIS_URL") from None


class EntryRange(InputPartition):
    """The `entries` entries of one stream after one id and up to another."""

    def __init__(self, stream: str, after: str, up_to: str, entries: int) -> None:
        self.stream, self.after, self.up_to, self.entries = stream, after, up_to, entries


class RedisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver and reads their entries on executors."""

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings
        self._targets: dict[str, str] = {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        return ReadMaxRows(self._settings.max_entries)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        with self._settings.connect() as client:
            self._targets = {stream: last_id(client, stream) for stream in self._settings.streams}

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's name
        return {stream: {"id": START, "read": 0} for stream in self._settings.streams}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802  Spark's name
        """Return where the next batch ends. Each stream gets its share of the limit, plus what others leave."""
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end: Offset = {}
        with self._settings.connect() as client:
            for place, stream in enumerate(self._settings.streams):
                share = None if left is None else max(1, left // (len(self._settings.streams) - place))
                end[stream] = self._end(client, stream, start.get(stream, {"id": START, "read": 0}), share)
                if left is not None:
                    left -= end[stream]["read"] - start.get(stream, {"read": 0})["read"]
        return end

    def _end(self, client: redis.Redis, stream: str, start: dict[str, Any], at_most: int | None) -> dict[str, Any]:
        found, last = count_entries(client, stream, start["id"], self._targets.get(stream, "+"), at_most)
        # Checked after counting, because the oldest entries are trimmed first: what is there now was there then.
        if self._settings.on_loss == "error":
            check_nothing_lost(client, stream, start["id"], start.get("entry"))
        if not found:
            return start
        return {"id": last, "read": start["read"] + found, "entry": entry_digest(client, stream, last)}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        ranges = []
        for stream, position in end.items():
            before = start.get(stream, {"id": START, "read": 0})
            if before["id"] != position["id"]:
                ranges.append(EntryRange(stream, before["id"], position["id"], position["read"] - before["read"]))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the entries, a chunk at a time. Raises InputLostError at the end if there are fewer than planned."""
        assert isinstance(partition, EntryRange)
        found = 0
        with self._settings.connect() as client:
            for entries in chunks(client, partition.stream, partition.after, partition.up_to):
                found += len(entries)
                yield _as_arrow(partition.stream, entries)
        if found != partition.entries and self._settings.on_loss == "error":
            raise InputLostError(
                f"stream {partition.stream!r}: only {found} of the {partition.entries} entries after {partition.after} "
                f"and up to {partition.up_to}, which a batch was planned to read, are left; the others were trimmed or "
                f"deleted since; keep more of the stream (a larger MAXLEN); {CONTINUE_HINT}"
            )


def chunks(client: redis.Redis, stream: str, after: str, up_to: str) -> Iterator[list[tuple[bytes, Any]]]:
    """Yield the entries after one id and up to another, `CHUNK` at a time."""
    while entries := _xrange(client, stream, after, up_to):
        yield entries
        after = entries[-1][0].decode()


def _xrange(client: redis.Redis, stream: str, after: str, up_to: str) -> list[tuple[bytes, Any]]:
    entries: Any = client.xrange(stream, min=f"({after}", max=up_to, count=CHUNK)  # bytes, because nothing is decoded
    return list(entries)


def count_entries(
    client: redis.Redis, stream: str, after: str, up_to: str = "+", at_most: int | None = None
) -> tuple[int, str]:
    """Return how many entries there are after an id, counted up to `at_most`, and the id of the last one counted."""
    script = client.register_script(COUNT_SCRIPT)
    found = 0
    while at_most is None or found < at_most:
        wanted = CHUNK if at_most is None else min(CHUNK, at_most - found)
        number, last = _call(stream, lambda: script(keys=[stream], args=[f"({after}", up_to, wanted]))  # noqa: B023
        if number:
            after = last.decode()
        found += number
        if number < wanted:
            break
    return found, after


def entry_digest(client: redis.Redis, stream: str, entry_id: str) -> str | None:
    """Return a digest of an entry's fields, None if the entry is gone."""
    entries: Any = client.xrange(stream, min=entry_id, max=entry_id)
    return hashlib.sha256(repr(entries[0][1]).encode()).hexdigest()[:32] if entries else None


def check_nothing_lost(client: redis.Redis, stream: str, start: str, entry: str | None = None) -> None:
    """Raise InputLostError unless it is certain that every entry after `start` is still there.

    It is certain if an entry as old as `start` is left, because the oldest are trimmed first, or if none was added
    after it. entry: the digest of `start` when it was read; if it differs now, the stream was created again.
    """
    if start == START:
        return
    info = _info(client, stream)
    if info is None:
        raise InputLostError(f"stream {stream!r}: was deleted after it had been read up to {start}; {CONTINUE_HINT}")
    last = info["last-generated-id"].decode()
    if number(last) < number(start):
        raise InputLostError(
            f"stream {stream!r}: its last id is {last}, but it had been read up to {start}; it was created "
            f"again, or the server lost data; {CONTINUE_HINT}"
        )
    if entry is not None and entry_digest(client, stream, start) not in (entry, None):
        raise InputLostError(
            f"stream {stream!r}: entry {start} is not the one that was read; the stream was created again, and its "
            f"entries up to there would be left out; give it another name; {CONTINUE_HINT}"
        )
    oldest = info["first-entry"]
    if number(last) > number(start) and (oldest is None or number(oldest[0].decode()) > number(start)):
        since = "no entry is left" if oldest is None else f"the oldest entry left is {oldest[0].decode()}"
        raise InputLostError(
            f"stream {stream!r}: {since}, but it had been read up to {start}; entries between may have been trimmed "
            f"unread; trim by XTRIM MINID with the last id read, or keep more (a larger MAXLEN); {CONTINUE_HINT}"
        )


def last_id(client: redis.Redis, stream: str) -> str:
    """Return the newest id that a stream has given, even if its entry is gone; `0-0` if there is no such stream."""
    info = _info(client, stream)
    return START if info is None else str(info["last-generated-id"].decode())


def number(entry_id: str) -> tuple[int, int]:
    """Return the pair of numbers by which Redis orders ids."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)


def _info(client: redis.Redis, stream: str) -> dict[str, Any] | None:
    try:
        info: dict[str, Any] = _call(stream, lambda: client.xinfo_stream(stream))
        return info
    except redis.ResponseError as error:
        if "no such key" in str(error):
            return None
        raise


def _call(stream: str, command: Callable[[], Any]) -> Any:
    try:
        return command()
    except redis.ResponseError as error:
        if "WRONGTYPE" in str(error):
            raise PipelineError(f"stream {stream!r}: the key of that name does not hold a stream") from None
        raise


def _as_arrow(stream: str, entries: list[tuple[bytes, Any]]) -> pa.RecordBatch:
    ids = [entry_id.decode() for entry_id, _ in entries]
    read = [_as_json(fields) for _, fields in entries]
    columns = [[stream] * len(ids), ids, [text for text, _ in read], [problem for _, problem in read]]
    return pa.RecordBatch.from_arrays([pa.array(values, pa.string()) for values in columns], schema=RAW_ARROW)


def _as_json(fields: dict[bytes, bytes]) -> tuple[str, str | None]:
    """Return an entry as a JSON object of texts, and the reason why it is bad, or None."""
    try:
        return json.dumps({name.decode(): value.decode() for name, value in fields.items()}), None
    except UnicodeDecodeError:
        escaped = {_escaped(name): _escaped(value) for name, value in fields.items()}
        return json.dumps(escaped), "holds bytes that are not UTF-8 text, shown as \\xNN"


def _escaped(held: bytes) -> str:
    return held.decode(errors="backslashreplace")

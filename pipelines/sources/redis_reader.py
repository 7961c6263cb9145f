"""How Spark reads Redis streams: what a batch holds, and how it is noticed that entries are gone.

An offset holds, per stream, the id of the last entry and how many entries have been read so far. So a task knows how
many it must find between two ids, and trimming can go unnoticed neither before a batch is planned nor after.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import redis
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pipelines.errors import InputLostError, PipelineError, SourceSetupError

STREAM, ID, ENTRY, PROBLEM = "_stream", "_id", "_entry", "_problem"
RAW = StructType().add(STREAM, "string").add(ID, "string").add(ENTRY, "string").add(PROBLEM, "string")
RAW_ARROW = pa.schema([(name, pa.string()) for name in RAW.names])

# Entries per call: small enough not to hold up a server of one thread, large enough for the way to cost little.
CHUNK = 1_000
TIMEOUT_SECONDS = 30
START = "0-0"

# Answers with a number and an id where the entries themselves are not wanted.
COUNT_SCRIPT = """
local entries = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])
return {#entries, #entries > 0 and entries[#entries][1]}
"""

Offset = dict[str, dict[str, Any]]
OnLoss = Literal["error", "continue"]


@dataclass(frozen=True)
class StreamSettings:
    """What a reader needs to know. url: with its password, and so never shown."""

    streams: tuple[str, ...]
    max_entries: int
    on_loss: OnLoss
    url: str = field(repr=False)

    def connect(self) -> redis.Redis:
        try:
            return redis.Redis.from_url(self.url, socket_timeout=TIMEOUT_SECONDS, decode_responses=False)
        except ValueError:
            # The cause may quote a piece of the URL, and so of the password.
            raise SourceSetupError("the URL of the Redis to read from is none; see REDIS_URL") from None


class Range(InputPartition):
    """The entries of one stream after one id and up to another, of which there are `entries`."""

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
        """Return where the next batch ends. Each stream gets its share of the limit, and what others leave."""
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
        # Looked at after counting: what is there now was there then, as entries go from the old end.
        if self._settings.on_loss == "error":
            check_nothing_lost(client, stream, start["id"])
        return {"id": last, "read": start["read"] + found}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        ranges = []
        for stream, position in end.items():
            before = start.get(stream, {"id": START, "read": 0})
            if before["id"] != position["id"]:
                ranges.append(Range(stream, before["id"], position["id"], position["read"] - before["read"]))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the entries, a chunk at a time. Raises InputLostError in the end where there are fewer than planned."""
        assert isinstance(partition, Range)
        found = 0
        with self._settings.connect() as client:
            for entries in chunks(client, partition.stream, partition.after, partition.up_to):
                found += len(entries)
                yield _as_arrow(partition.stream, entries)
        if found != partition.entries and self._settings.on_loss == "error":
            raise InputLostError(
                f"stream {partition.stream!r}: {found} of the {partition.entries} entries after {partition.after} and "
                f"up to {partition.up_to} are left of a batch that was planned with all of them; they were trimmed or "
                "deleted meanwhile. Keep more of the stream (a larger MAXLEN), and go on without the lost ones by "
                "on_loss='continue'"
            )


def chunks(client: redis.Redis, stream: str, after: str, up_to: str) -> Iterator[list[tuple[bytes, Any]]]:
    """Yield the entries after one id and up to another, `CHUNK` at a time."""
    while entries := _xrange(client, stream, after, up_to):
        yield entries
        after = entries[-1][0].decode()


def _xrange(client: redis.Redis, stream: str, after: str, up_to: str) -> list[tuple[bytes, Any]]:
    entries: Any = client.xrange(stream, min=f"({after}", max=up_to, count=CHUNK)  # bytes, as nothing is decoded
    return list(entries)


def count_entries(
    client: redis.Redis, stream: str, after: str, up_to: str = "+", at_most: int | None = None
) -> tuple[int, str]:
    """Return how many entries there are after an id, `at_most` being enough, and the id of the last one counted."""
    script = client.register_script(COUNT_SCRIPT)
    found = 0
    while at_most is None or found < at_most:
        wanted = CHUNK if at_most is None else min(CHUNK, at_most - found)
        number, last = _of_a_stream(stream, lambda: script(keys=[stream], args=[f"({after}", up_to, wanted]))  # noqa: B023
        if number:
            after = last.decode()
        found += number
        if number < wanted:
            break
    return found, after


def check_nothing_lost(client: redis.Redis, stream: str, start: str) -> None:
    """Raise InputLostError unless it is certain that every entry after `start` is there still.

    It is where an entry as old as `start` is left, for entries go from the old end, or where none came after it.
    """
    if start == START:
        return
    shown = _shown(client, stream)
    if shown is None:
        raise InputLostError(f"stream {stream!r}: is gone, and had been read up to {start}; {_WAYS_ON}")
    last = shown["last-generated-id"].decode()
    if number(last) < number(start):
        raise InputLostError(
            f"stream {stream!r}: its last id is {last}, and it had been read up to {start}; it was made anew, "
            f"or the server lost what it had; {_WAYS_ON}"
        )
    oldest = shown["first-entry"]
    if number(last) > number(start) and (oldest is None or number(oldest[0].decode()) > number(start)):
        since = "no entry is left" if oldest is None else f"the oldest entry left is {oldest[0].decode()}"
        raise InputLostError(
            f"stream {stream!r}: {since} and it had been read up to {start}; entries between may have been trimmed "
            f"unread; {_WAYS_ON}, and trim by XTRIM MINID with the last id read, or keep more (a larger MAXLEN)"
        )


_WAYS_ON = "go on with what there is by on_loss='continue'"


def last_id(client: redis.Redis, stream: str) -> str:
    """Return the newest id that a stream has given, whether or not its entry is left; `0-0` where there is none."""
    shown = _shown(client, stream)
    return START if shown is None else str(shown["last-generated-id"].decode())


def number(entry_id: str) -> tuple[int, int]:
    """Return an id as what Redis orders ids by."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)


def _shown(client: redis.Redis, stream: str) -> dict[str, Any] | None:
    try:
        shown: dict[str, Any] = _of_a_stream(stream, lambda: client.xinfo_stream(stream))
        return shown
    except redis.ResponseError as error:
        if "no such key" in str(error):
            return None
        raise


def _of_a_stream(stream: str, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except redis.ResponseError as error:
        if "WRONGTYPE" in str(error):
            raise PipelineError(f"stream {stream!r}: the key of that name holds no stream") from None
        raise


def _as_arrow(stream: str, entries: list[tuple[bytes, Any]]) -> pa.RecordBatch:
    ids = [entry_id.decode() for entry_id, _ in entries]
    read = [_as_json(fields) for _, fields in entries]
    columns = [[stream] * len(ids), ids, [text for text, _ in read], [problem for _, problem in read]]
    return pa.RecordBatch.from_arrays([pa.array(values, pa.string()) for values in columns], schema=RAW_ARROW)


def _as_json(fields: dict[bytes, bytes]) -> tuple[str, str | None]:
    """Return an entry as a JSON object of texts, and what is wrong with it."""
    try:
        return json.dumps({name.decode(): value.decode() for name, value in fields.items()}), None
    except UnicodeDecodeError:
        shown = {_shown_text(name): _shown_text(value) for name, value in fields.items()}
        return json.dumps(shown), "holds bytes that are no UTF-8 text, shown as \\xNN"


def _shown_text(held: bytes) -> str:
    return held.decode(errors="backslashreplace")

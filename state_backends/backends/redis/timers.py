"""Timers of a state in Redis: the keys whose time has come, found in a sorted set of times.

The set is one batch behind the rows: after a batch is committed, the driver sets the times of the keys that it has
written, which are on record for revert anyway. So a batch that fails has nothing to undo in the set. The guard records
up to which batch the times are complete. If that is not the batch before, for example after its revert or a rebuild,
the set is made again from all rows.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from tidegauge.state_backends.backends.external_session import due_at
from tidegauge.state_backends.backends.redis.guard import RedisGuard
from tidegauge.state_backends.backends.redis.keys import Buckets, KeyNames
from tidegauge.state_backends.backends.redis.row_codec import text_of
from tidegauge.state_backends.backends.redis.scripts import Client, ScriptCalls
from tidegauge.state_backends.spec.key_bytes import KeyBytes, from_microseconds
from tidegauge.state_backends.spec.row import Key, Versioned
from tidegauge.state_backends.spec.state_spec import StateSpec

# Keys whose rows are read, and whose times are set, at once.
CHUNK_KEYS = 1_000

# The rows of keys, given as bytes, in their order.
ReadRows = Callable[[Sequence[bytes]], Iterable[Versioned | None]]


class RedisTimers:
    """The timers of an opaque state. due: the stored column or the JSON value's field that holds a key's time."""

    def __init__(
        self, client: Client, scripts: ScriptCalls, buckets: Buckets, guard: RedisGuard, rows: ReadRows, due: str
    ) -> None:
        self._buckets = [_BucketTimers(client, scripts, names, guard, rows, due) for names in buckets.names]

    def due_keys(self, spec: StateSpec, before: datetime, most: int, committed: int) -> list[Key]:
        """Return at most `most` keys whose time, as of the committed batch, is `before` or earlier; the earliest
        first."""
        decode = KeyBytes(spec).decode
        found = [due for timers in self._buckets for due in timers.due(before, most, committed)]
        return [decode(key) for _, key in sorted(found)[:most]]

    def next_due(self, committed: int) -> datetime | None:
        """Return the earliest time of any key as of the committed batch; it is too early if the key's row is gone."""
        times = [timers.next_due(committed) for timers in self._buckets]
        return min((time for time in times if time is not None), default=None)


class _BucketTimers:
    """The timers of one bucket."""

    def __init__(
        self, client: Client, scripts: ScriptCalls, names: KeyNames, guard: RedisGuard, rows: ReadRows, due: str
    ) -> None:
        self._client: Any = client
        self._scripts, self._names, self._guard, self._rows, self._due = scripts, names, guard, rows, due

    def due(self, before: datetime, most: int, committed: int) -> list[tuple[datetime, bytes]]:
        self._complete(committed)
        found: list[tuple[datetime, bytes]] = []
        while len(found) < most:
            size = min(CHUNK_KEYS, most - len(found))
            keys = self._client.zrangebyscore(self._names.timers, "-inf", text_of(before), start=len(found), num=size)
            if not keys:
                break
            times = list(self._times(keys, committed))
            # Keys without a time are taken out, because their rows are gone, for example expired.
            self._set([(key, None) for key, time in times if time is None])
            found += [(time, key) for key, time in times if time is not None]
        return [(time, key) for time, key in found if time <= before]

    def next_due(self, committed: int) -> datetime | None:
        self._complete(committed)
        first = self._client.zrange(self._names.timers, 0, 0, withscores=True)
        return from_microseconds(int(first[0][1])) if first else None

    def _complete(self, committed: int) -> None:
        note = b"%d %s" % (committed, self._due.encode())
        noted = self._client.hget(self._names.guard, "timers")
        if noted == note:
            return
        keys: Iterator[bytes]
        if noted == b"%d %s" % (committed - 1, self._due.encode()):
            keys = self._client.sscan_iter(self._names.written(committed), count=CHUNK_KEYS)
        else:
            keys = (key for key, _ in self._client.zscan_iter(self._names.keys, count=CHUNK_KEYS))
            self._set([], begin=True)
        while chunk := list(islice(keys, CHUNK_KEYS)):
            self._set(self._times(chunk, committed))
        self._set([], note=note)

    def _times(self, keys: Sequence[bytes], committed: int) -> Iterator[tuple[bytes, datetime | None]]:
        for key, row in zip(keys, self._rows(keys), strict=True):
            # The version before, if a failed attempt at the next batch has written the row and was not reverted yet.
            value = None if row is None else row.prev if (row.txid or 0) > committed else row.value
            yield key, due_at(value, self._due)

    def _set(self, times: Iterable[tuple[bytes, datetime | None]], *, begin: bool = False, note: bytes = b"") -> None:
        pairs = [part for key, time in times for part in (text_of(time), key)]
        if pairs or begin or note:
            arguments = [self._guard.argument(), b"begin" if begin else b"", note, *pairs]
            self._guard.refuse(self._scripts.call("timers", [self._names.guard, self._names.timers], arguments))

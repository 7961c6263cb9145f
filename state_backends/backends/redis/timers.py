"""Timers of a state in Redis: the keys whose time has come, found in a sorted set of times in each bucket.

The set is one batch behind the rows: after a batch is committed, the driver sets the times of the keys that it has
written, which are on record for revert anyway. So a batch that fails has nothing to undo in the set. The guard records
up to which batch the times are complete. If that is not the batch before, for example after its revert or a rebuild,
the set is made again from all rows. All buckets are asked at once.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from tidegauge.state_backends.backends.external_session import due_at
from tidegauge.state_backends.backends.redis.guard import RedisGuard
from tidegauge.state_backends.backends.redis.keys import Buckets, KeyNames
from tidegauge.state_backends.backends.redis.pages import PAGE_ROWS, scanned, written
from tidegauge.state_backends.backends.redis.row_codec import text_of
from tidegauge.state_backends.backends.redis.scripts import Client, ScriptCalls, on_each_bucket
from tidegauge.state_backends.spec.key_bytes import KeyBytes, from_microseconds
from tidegauge.state_backends.spec.row import Key, Versioned
from tidegauge.state_backends.spec.state_spec import StateSpec

# The rows of keys, given as bytes, in their order.
ReadRows = Callable[[Sequence[bytes]], Iterable[Versioned | None]]


class RedisTimers:
    """The timers of an opaque state. due: the stored column or the JSON value's field that holds a key's time."""

    def __init__(
        self, client: Client, scripts: ScriptCalls, buckets: Buckets, guard: RedisGuard, rows: ReadRows, due: str
    ) -> None:
        self._client: Any = client
        self._scripts, self._buckets, self._guard, self._rows, self._due = scripts, buckets, guard, rows, due

    def due_keys(self, spec: StateSpec, before: datetime, most: int, committed: int) -> list[Key]:
        """Return at most `most` keys whose time, as of the committed batch, is `before` or earlier; the earliest
        first."""
        decode = KeyBytes(spec).decode
        self._complete(committed)
        while True:
            times = list(self._times(self._earliest(before, most), committed))
            # Keys without a time are taken out, because their rows are gone, for example expired; others may follow.
            gone = [(key, None) for key, time in times if time is None]
            if not gone:
                due = sorted((time, key) for key, time in times if time is not None and time <= before)
                return [decode(key) for _, key in due]
            self._set(gone)

    def next_due(self, committed: int) -> datetime | None:
        """Return the earliest time of any key as of the committed batch; it is too early if the key's row is gone."""
        self._complete(committed)
        firsts = self._on_each(lambda pipe, names: pipe.zrange(names.timers, 0, 0, withscores=True))
        scores = [int(score) for first in firsts for _, score in first]
        return from_microseconds(min(scores)) if scores else None

    def _earliest(self, before: datetime, most: int) -> list[bytes]:
        """Return at most `most` keys whose time is set and `before` or earlier; the earliest first."""
        end, size = text_of(before), max(2 * most // len(self._buckets.names), PAGE_ROWS)
        while True:
            found = self._on_each(
                lambda pipe, names: pipe.zrangebyscore(names.timers, "-inf", end, 0, size, withscores=True)  # noqa: B023
            )
            times = sorted((score, key) for each in found for key, score in each)
            # Times after the end of a page that may not be the bucket's last are not known to be the next ones.
            last = min(((score, key) for each in found if len(each) == size for key, score in each[-1:]), default=None)
            known = times if last is None else times[: bisect_right(times, last)]
            if last is None or len(known) >= most:
                return [key for _, key in known[:most]]
            size *= 2

    def _complete(self, committed: int) -> None:
        note, one_behind = (b"%d %s" % (txid, self._due.encode()) for txid in (committed, committed - 1))
        noted = self._on_each(lambda pipe, names: pipe.hget(names.guard, "timers"))
        found = dict(zip(self._buckets.names, noted, strict=True))
        behind = [names for names in found if found[names] == one_behind]
        without = [names for names in found if found[names] not in (note, one_behind)]
        self._call((names, [b"begin", b""]) for names in without)
        for keys in chain(self._written(behind, committed), self._every(without)):
            self._set(list(self._times(keys, committed)))
        self._call((names, [b"", note]) for names in [*behind, *without])

    def _written(self, buckets: Sequence[KeyNames], txid: int) -> Iterator[list[bytes]]:
        for found in written(self._client, buckets, txid):
            yield [key for _, keys in found for key in keys]

    def _every(self, buckets: Sequence[KeyNames]) -> Iterator[list[bytes]]:
        for found in scanned(
            self._client,
            buckets,
            lambda pipe, names: pipe.zcard(names.keys),
            lambda pipe, names, cursor: pipe.zscan(names.keys, cursor, count=PAGE_ROWS),
        ):
            yield [key for _, keys in found for key, _ in keys]

    def _times(self, keys: Sequence[bytes], committed: int) -> Iterator[tuple[bytes, datetime | None]]:
        for key, row in zip(keys, self._rows(keys), strict=True):
            # The version before, if a failed attempt at the next batch has written the row and was not reverted yet.
            value = None if row is None else row.prev if (row.txid or 0) > committed else row.value
            yield key, due_at(value, self._due)

    def _set(self, times: Sequence[tuple[bytes, datetime | None]]) -> None:
        chunks = self._buckets.encoded_chunks([key for key, _ in times], PAGE_ROWS)
        pairs = [(text_of(time), key) for key, time in times]
        self._call(
            (chunk.names, [b"", b"", *(part for place in chunk.positions for part in pairs[place])]) for chunk in chunks
        )

    def _call(self, calls: Iterable[tuple[KeyNames, Sequence[bytes]]]) -> None:
        """calls: a bucket and what follows the attempt in the arguments of timers.lua."""
        attempt = self._guard.argument()
        made = ((None, [names.guard, names.timers], [attempt, *arguments]) for names, arguments in calls)
        for _, reply in self._scripts.run("timers", made):
            self._guard.refuse(reply)

    def _on_each(self, call: Callable[[Any, KeyNames], Any]) -> list[Any]:
        return on_each_bucket(self._client, self._buckets.names, call)

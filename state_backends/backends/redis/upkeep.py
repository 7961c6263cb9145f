"""Maintenance of a state in Redis outside its batches: pages of rows to free, its size, and its deletion."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from tidegauge.state_backends.backends.redis.keys import Buckets, KeyNames
from tidegauge.state_backends.backends.redis.pages import RowPage, pages, recorded
from tidegauge.state_backends.backends.redis.row_codec import text_of
from tidegauge.state_backends.backends.redis.scripts import Client, ScriptCalls, on_each_bucket
from tidegauge.state_backends.spec.state_spec import StateSpec

# Rows whose memory is measured, spread evenly over the keys; the size of the rest is extrapolated from them.
SAMPLED_ROWS = 50


class RedisUpkeep:
    """Maintains the rows of one state. client, spec: as RedisBackingMap takes them. RedisError passes through."""

    def __init__(self, client: Client, spec: StateSpec) -> None:
        self._client: Any = client
        self._scripts = ScriptCalls(client, spec)
        self._buckets = Buckets(spec).names

    def pages(self) -> Iterator[RowPage]:
        """Yield all rows in pages; rows that are freed meanwhile do not make it skip others."""
        return pages(self._client, self._buckets)

    def expire(self, page: RowPage, settled: int | None, clock: datetime, ttl: timedelta | None) -> int:
        """Free the rows that are past `ttl` at `clock`, of batch `settled` or before. Returns their number."""
        return self._trim(page, settled, text_of(clock), text_of(ttl))

    def drop_tombstones(self, page: RowPage, settled: int | None) -> int:
        """Free the rows that batch `settled` or an earlier one removed; None: any batch. Returns their number."""
        return self._trim(page, settled, b"")

    def sizes(self) -> tuple[int, int]:
        """Return how many rows are stored, live or not, and about how many bytes they take, from a sample of them."""
        counts = on_each_bucket(self._client, self._buckets, lambda pipe, names: pipe.zcard(names.keys))
        orders = on_each_bucket(self._client, self._buckets, lambda pipe, names: pipe.memory_usage(names.keys))
        count = sum(counts)
        sampled = self._sample(counts)
        return count, sum(sampled) * count // max(1, len(sampled)) + sum(size or 0 for size in orders)

    def clear(self) -> None:
        """Delete the state, page by page: rows, order and guard. No driver may feed it and no reader read it."""
        # The rows before the order of keys, so that a run that was killed finds the rest again.
        for page in self.pages():
            self._unlink(dict(page.parts))
        self._unlink(recorded(self._client, self._buckets))

    def _unlink(self, keys: Mapping[KeyNames, Sequence[bytes]]) -> None:
        # Spelled out, because the method of redis-py's pipelines of a cluster takes one key.
        on_each_bucket(self._client, list(keys), lambda pipe, names: pipe.execute_command("UNLINK", *keys[names]))

    def _trim(self, page: RowPage, settled: int | None, clock: bytes, ttl: bytes = b"") -> int:
        arguments = [text_of(settled), clock, ttl]
        calls = ((None, [names.guard, names.keys, *rows], [names.row, *arguments]) for names, rows in page.parts)
        return sum(int(freed) for _, freed in self._scripts.run("trim", calls))

    def _sample(self, counts: Sequence[int]) -> list[int]:
        step = max(1, sum(counts) // SAMPLED_ROWS)
        ends = list(accumulate(counts))
        pipe = self._client.pipeline(transaction=False)
        sampled = []
        for place in range(0, sum(counts), step)[:SAMPLED_ROWS]:
            bucket = bisect_right(ends, place)
            rank = place - (ends[bucket] - counts[bucket])
            sampled.append(self._buckets[bucket])
            pipe.zrange(sampled[-1].keys, rank, rank)
        rows = [names.row + key for names, found in zip(sampled, pipe.execute(), strict=True) for key in found]
        pipe = self._client.pipeline(transaction=False)
        for row in rows:
            pipe.memory_usage(row)
        return [size for size in pipe.execute() if size is not None]

"""Upkeep of a state in Redis beside its batches: where it stands, how large it is, rows freed, everything forgotten."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from state_backends.backends.redis.keys import HashTag, HashTags
from state_backends.backends.redis.row_codec import text_of
from state_backends.backends.redis.scripts import Client, ScriptCalls
from state_backends.spec import StateSpec

# Rows per page: the server does nothing else for some milliseconds.
PAGE_ROWS = 1_000

# Rows whose memory is measured, spread evenly over the keys; the rest is taken to be like them.
SAMPLED_ROWS = 50


class RedisUpkeep:
    """Looks after the rows of one state. client, spec: as RedisBackingMap takes them. RedisError passes through."""

    def __init__(self, client: Client, spec: StateSpec) -> None:
        self._client: Any = client
        self._scripts = ScriptCalls(client, spec)
        self._tags = HashTags(spec)

    def pages(self) -> Iterator["Page"]:
        """Yield all rows in pages, to be trimmed or looked at; what is trimmed meanwhile leaves nothing out."""
        for tag in self._tags:
            after = b"-"
            while keys := self._client.zrangebylex(tag.keys, after, b"+", start=0, num=PAGE_ROWS):
                yield Page(tag, [tag.row + key for key in keys])
                after = b"(" + keys[-1]

    def expire(self, page: "Page", settled: int | None, clock: datetime, ttl: timedelta | None) -> int:
        """Free the rows that are past `ttl` at `clock`, of batch `settled` or before. Returns their number."""
        return self._trim(page, settled, text_of(clock), text_of(ttl))

    def drop_tombstones(self, page: "Page", settled: int | None) -> int:
        """Free the rows that batch `settled` or an earlier one removed; None: whichever did. Returns their number."""
        return self._trim(page, settled, b"")

    def sizes(self) -> tuple[int, int]:
        """Return how many rows are stored, live or not, and about how many bytes they take, from a sample of them."""
        rows = size = 0
        for tag in self._tags:
            count = self._client.zcard(tag.keys)
            sampled = self._sample(tag, count)
            rows += count
            size += sum(sampled) * count // max(1, len(sampled)) + (self._client.memory_usage(tag.keys) or 0)
        return rows, size

    def clear(self) -> None:
        """Forget the state, page by page: rows, order and guard. No driver may feed it and no reader read it."""
        for page in self.pages():
            self._client.unlink(*page.rows)
        for tag in self._tags:
            written = [tag.written(int(txid)) for txid in self._client.zrange(tag.batches, 0, -1)]
            self._client.unlink(tag.keys, tag.batches, tag.guard, *written)

    def _trim(self, page: "Page", settled: int | None, clock: bytes, ttl: bytes = b"") -> int:
        arguments = [page.tag.row, text_of(settled), clock, ttl]
        ((_, freed),) = self._scripts.run("trim", [(page, [page.tag.keys, *page.rows], arguments)])
        return int(freed)

    def _sample(self, tag: HashTag, count: int) -> list[int]:
        step = max(1, count // SAMPLED_ROWS)
        pipe = self._client.pipeline(transaction=False)
        for place in range(0, count, step)[:SAMPLED_ROWS]:
            pipe.zrange(tag.keys, place, place)
        keys = [key for found in pipe.execute() for key in found]
        pipe = self._client.pipeline(transaction=False)
        for key in keys:
            pipe.memory_usage(tag.row + key)
        return [size for size in pipe.execute() if size is not None]


@dataclass(frozen=True)
class Page:
    """Some rows of a state, under one hash tag."""

    tag: HashTag
    rows: Sequence[bytes]

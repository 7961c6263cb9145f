"""Walks over the rows of a state in Redis, page by page and in all buckets at once.

A state that is spread over many buckets may have few rows in each. Asked one after the other, each bucket would cost a
round trip or two, however little it has.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidegauge.state_backends.backends.redis.keys import KeyNames
from tidegauge.state_backends.backends.redis.scripts import KEYS_PER_ROUND_TRIP, on_each_bucket

# Rows per page. Few, because the server does nothing else meanwhile, for some milliseconds.
PAGE_ROWS = 1_000


@dataclass(frozen=True)
class RowPage:
    """Some rows, by bucket and by the names of their hashes."""

    parts: Sequence[tuple[KeyNames, Sequence[bytes]]]

    @property
    def rows(self) -> list[bytes]:
        return [row for _, rows in self.parts for row in rows]


def pages(client: Any, buckets: Sequence[KeyNames]) -> Iterator[RowPage]:
    """Yield all rows of some buckets in pages of at most PAGE_ROWS. Rows that are freed meanwhile skip no others.

    A page is of several buckets if they have few rows, and takes one round trip to each node.
    """
    counts = on_each_bucket(client, buckets, lambda pipe, names: pipe.zcard(names.keys))
    for group in _groups(buckets, counts, PAGE_ROWS):
        after = dict.fromkeys(group, b"-")
        while after:
            found = on_each_bucket(
                client,
                list(after),
                lambda pipe, names: pipe.zrangebylex(names.keys, after[names], b"+", start=0, num=PAGE_ROWS),  # noqa: B023
            )
            parts = [(names, keys) for names, keys in zip(after, found, strict=True) if keys]
            if parts:
                yield RowPage([(names, names.rows(keys)) for names, keys in parts])
            after = {names: b"(" + keys[-1] for names, keys in parts if len(keys) == PAGE_ROWS}


def scanned(
    client: Any,
    buckets: Sequence[KeyNames],
    size: Callable[[Any, KeyNames], Any],
    scan: Callable[[Any, KeyNames, int], Any],
) -> Iterator[list[tuple[KeyNames, list[Any]]]]:
    """Yield what SSCAN or ZSCAN finds, in as many buckets at once as have few members.

    size, scan: send SCARD or ZCARD, and the command from a cursor on, by a client or a pipeline, for a bucket. Every
    member that is there from the start to the end is found, and one may be found twice.
    """
    counts = on_each_bucket(client, buckets, size)
    for group in _groups(buckets, counts, KEYS_PER_ROUND_TRIP):
        cursors = dict.fromkeys(group, 0)
        while cursors:
            replies = on_each_bucket(client, list(cursors), lambda pipe, names: scan(pipe, names, cursors[names]))  # noqa: B023
            found = dict(zip(cursors, replies, strict=True))
            yield [(names, list(members)) for names, (_, members) in found.items() if members]
            cursors = {names: int(cursor) for names, (cursor, _) in found.items() if int(cursor)}


def written(client: Any, buckets: Sequence[KeyNames], txid: int) -> Iterator[list[tuple[KeyNames, list[bytes]]]]:
    """Yield the keys that a batch has written, as `scanned` does. Some of them may be removed meanwhile."""
    return scanned(
        client,
        buckets,
        lambda pipe, names: pipe.scard(names.written(txid)),
        lambda pipe, names, cursor: pipe.sscan(names.written(txid), cursor, count=PAGE_ROWS),
    )


def recorded(client: Any, buckets: Sequence[KeyNames]) -> dict[KeyNames, list[bytes]]:
    """Return the names of what each bucket has besides rows: their order, timers, records of batches and the guard."""
    batches = on_each_bucket(client, buckets, lambda pipe, names: pipe.zrange(names.batches, 0, -1))
    return {
        names: [names.keys, names.timers, names.batches, names.guard, *(names.written(int(txid)) for txid in txids)]
        for names, txids in zip(buckets, batches, strict=True)
    }


def _groups(buckets: Sequence[KeyNames], counts: Sequence[int], most: int) -> Iterator[list[KeyNames]]:
    """Yield the buckets that have anything, as many at once as have `most` together, or one that has more."""
    group: list[KeyNames] = []
    rows = 0
    for names, count in zip(buckets, counts, strict=True):
        if group and rows + count > most:
            yield group
            group, rows = [], 0
        if count:
            group.append(names)
            rows += count
    if group:
        yield group

"""The names of a state's keys in Redis, and the buckets over which a state of several partitions is spread.

A script may touch keys of one hash tag only, because a cluster requires that they are on one node. A state of one
partition has one hash tag. One of several has a bucket for each, with a hash tag of its own, so the cluster's slots
spread the buckets over its nodes, and move them. A key's bucket is computed from its bytes, and never stored.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, TypeVar

from tidegauge.state_backends.spec.key_bytes import KeyBytes, bucket_of
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec

Found = TypeVar("Found")


class KeyNames:
    """The names under one hash tag: `tidegauge:{views}:..`, or `tidegauge:{views.17}:..` of bucket 17.

    guard: a hash of the admitted attempt and the committed txid. keys: a sorted set of every key, in key order.
    row: what the name of a row's hash begins with; the key's bytes follow.
    timers: a sorted set of keys by the time of their timer.
    batches: the txids whose written keys are on record, each in a set of its own (`written`).
    """

    def __init__(self, spec: StateSpec, bucket: int | None = None) -> None:
        tag = spec.name if bucket is None else f"{spec.name}.{bucket}"
        root = f"tidegauge:{{{tag}}}:".encode()
        self.guard, self.batches = root + b"guard", root + b"batches"
        self.keys, self.row = root + b"keys", root + b"row:"
        self.timers = root + b"timers"
        self._written = root + b"written:"

    def written(self, txid: int) -> bytes:
        return b"%s%d" % (self._written, txid)

    def rows(self, keys: Iterable[bytes]) -> list[bytes]:
        return [self.row + key for key in keys]


@dataclass(frozen=True, slots=True)
class Chunk:
    """The keys of one script call, all of one bucket.

    positions: where they are in the caller's list. rows: the names of their hashes.
    """

    names: KeyNames
    positions: Sequence[int]
    rows: list[bytes]


class _Placed(NamedTuple):
    """The positions of the keys of one bucket, in their order."""

    names: KeyNames
    positions: Sequence[int]


class Buckets:
    """The buckets of a state, in their order: one for each partition."""

    def __init__(self, spec: StateSpec) -> None:
        self.is_spread = spec.partitions > 1
        numbers: Iterable[int | None] = range(spec.partitions) if self.is_spread else [None]
        self.names = [KeyNames(spec, number) for number in numbers]
        self._spec = spec
        self._bytes = KeyBytes(spec)

    def encoded(self, keys: Iterable[Key], first: int = 0) -> Iterator[bytes]:
        """Yield keys as bytes. Raises KeyShapeError, with an index that counts from `first`."""
        return map(self._bytes.encode, self._spec.check_keys(keys, first))

    def chunks(self, keys: Sequence[Key], limit: int) -> Iterator[Chunk]:
        """Yield the keys in chunks of `limit`, 0 for one chunk of each bucket.

        In a state of one bucket, each is encoded only when it is asked for.
        """
        if self.is_spread:
            yield from self.encoded_chunks(list(self.encoded(keys)), limit)
            return
        (names,) = self.names
        for at in _runs(range(len(keys)), limit):
            yield Chunk(names, at, names.rows(self.encoded(keys[at[0] : at[-1] + 1], at[0])))

    def encoded_chunks(self, keys: Sequence[bytes], limit: int) -> Iterator[Chunk]:
        """Yield the same for keys that are already bytes."""
        for names, positions in self._placed(keys):
            for some in _runs(positions, limit):
                yield Chunk(names, some, names.rows(map(keys.__getitem__, some)))

    def empty_chunks(self) -> Iterator[Chunk]:
        """Yield a chunk without keys for each bucket."""
        return (Chunk(names, (), []) for names in self.names)

    def _placed(self, keys: Sequence[bytes]) -> list[_Placed]:
        if not self.is_spread:
            return [_Placed(self.names[0], range(len(keys)))]
        count, placed = len(self.names), [list[int]() for _ in self.names]
        for position, key in enumerate(keys):
            placed[bucket_of(key, count)].append(position)
        return [_Placed(names, positions) for names, positions in zip(self.names, placed, strict=True) if positions]


def in_order(chunks: Iterable[Chunk], found: Iterable[Found]) -> list[Found]:
    """Return what was found of the keys of chunks, one after the other, in the order of their positions."""
    positions = [position for chunk in chunks for position in chunk.positions]
    return [each for _, each in sorted(zip(positions, found, strict=True), key=itemgetter(0))]


def _runs(positions: Sequence[int], limit: int) -> Iterator[Sequence[int]]:
    size = limit or len(positions)
    return (positions[first : first + size] for first in range(0, len(positions), size or 1))

"""What the keys of a state are called in Redis, and which of them lie on one node of a cluster."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from state_backends.key_bytes import KeyBytes
from state_backends.row import Key
from state_backends.spec import StateSpec


class HashTag:
    """The names under one hash tag: `tidemark:{views}:..`, or `tidemark:{views:3}:..` for one of several partitions.

    guard: a hash of the admitted attempt and the committed txid. keys: a sorted set of every key, in key order.
    row: what the name of a row's hash begins with; the key's bytes follow.
    batches: the txids whose written keys are on record, each in a set of its own (`written`).
    """

    def __init__(self, name: str) -> None:
        root = f"tidemark:{{{name}}}:".encode()
        self.guard, self.batches = root + b"guard", root + b"batches"
        self.keys, self.row = root + b"keys", root + b"row:"
        self._written = root + b"written:"

    def written(self, txid: int) -> bytes:
        return b"%s%d" % (self._written, txid)


@dataclass(frozen=True, slots=True)
class Share:
    """The keys that one script call is about. positions: where they are in the caller's list. rows: their hashes."""

    tag: HashTag
    positions: Sequence[int]
    rows: list[bytes]


class HashTags:
    """The hash tags of a state: one, or `spec.partitions` of them, over which keys spread by a hash of their bytes."""

    def __init__(self, spec: StateSpec) -> None:
        several = spec.partitions > 1
        self._spec = spec
        self._bytes = KeyBytes(spec)
        self._tags = [HashTag(f"{spec.name}:{n}" if several else spec.name) for n in range(spec.partitions)]

    def __iter__(self) -> Iterator[HashTag]:
        return iter(self._tags)

    def encoded(self, keys: Iterable[Key], first: int = 0) -> Iterator[bytes]:
        """Yield keys as bytes. Raises KeyShapeError, with an index that counts from `first`."""
        return map(self._bytes.encode, self._spec.check_keys(keys, first))

    def shares(self, keys: Sequence[Key], limit: int) -> Iterator[Share]:
        """Yield the keys in chunks of `limit`, 0 for one chunk, and each chunk by tag; so few are in memory at once."""
        for first in _firsts(len(keys), limit):
            yield from self._spread(list(self.encoded(keys[first : first + (limit or len(keys))], first)), first)

    def encoded_shares(self, keys: Sequence[bytes], limit: int) -> Iterator[Share]:
        """Yield the same of keys that are bytes already."""
        for first in _firsts(len(keys), limit):
            yield from self._spread(keys[first : first + (limit or len(keys))], first)

    def _spread(self, keys: Sequence[bytes], first: int) -> Iterator[Share]:
        if len(self._tags) == 1:
            (tag,) = self._tags
            yield Share(tag, range(first, first + len(keys)), [tag.row + key for key in keys])
            return
        found: list[list[int]] = [[] for _ in self._tags]
        for position, key in enumerate(keys, first):
            # Not Python's hash, which differs from process to process.
            found[zlib.crc32(key) % len(found)].append(position)
        for tag, positions in zip(self._tags, found, strict=True):
            if positions:
                yield Share(tag, positions, [tag.row + keys[position - first] for position in positions])


def _firsts(count: int, limit: int) -> range:
    return range(0, count, limit or count or 1)

"""The names of a state's keys in Redis. All share one hash tag, so that they are on one node of a cluster."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.spec.key_bytes import KeyBytes
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec


@dataclass(frozen=True, slots=True)
class Chunk:
    """The keys of one script call. positions: where they are in the caller's list. rows: the names of their hashes."""

    positions: range
    rows: list[bytes]


class KeyNames:
    """The names under the hash tag of a state: `tidegauge:{views}:..`.

    guard: a hash of the admitted attempt and the committed txid. keys: a sorted set of every key, in key order.
    row: what the name of a row's hash begins with; the key's bytes follow.
    timers: a sorted set of keys by the time of their timer.
    batches: the txids whose written keys are on record, each in a set of its own (`written`).
    Raises SpecError for a spec with several partitions.
    """

    def __init__(self, spec: StateSpec) -> None:
        if spec.partitions > 1:
            raise SpecError(
                f"state {spec.name!r}: partitions {spec.partitions!r} spread a table, and a state in redis has none; "
                "leave them at 1"
            )
        root = f"tidegauge:{{{spec.name}}}:".encode()
        self.guard, self.batches = root + b"guard", root + b"batches"
        self.keys, self.row = root + b"keys", root + b"row:"
        self.timers = root + b"timers"
        self._written = root + b"written:"
        self._spec = spec
        self._bytes = KeyBytes(spec)

    def written(self, txid: int) -> bytes:
        return b"%s%d" % (self._written, txid)

    def rows(self, keys: Iterable[bytes]) -> list[bytes]:
        return [self.row + key for key in keys]

    def encoded(self, keys: Iterable[Key], first: int = 0) -> Iterator[bytes]:
        """Yield keys as bytes. Raises KeyShapeError, with an index that counts from `first`."""
        return map(self._bytes.encode, self._spec.check_keys(keys, first))

    def chunks(self, keys: Sequence[Key], limit: int) -> Iterator[Chunk]:
        """Yield the keys in chunks of `limit`, 0 for one chunk; each is encoded only when it is asked for."""
        for at in _positions(len(keys), limit):
            yield Chunk(at, self.rows(self.encoded(keys[at.start : at.stop], at.start)))

    def encoded_chunks(self, keys: Sequence[bytes], limit: int) -> Iterator[Chunk]:
        """Yield the same for keys that are already bytes."""
        for at in _positions(len(keys), limit):
            yield Chunk(at, self.rows(keys[at.start : at.stop]))


def _positions(count: int, limit: int) -> Iterator[range]:
    size = limit or count
    return (range(first, min(first + size, count)) for first in range(0, count, size or 1))

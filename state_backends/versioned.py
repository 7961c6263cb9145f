"""A stored row as every map and backing map passes it around."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value, the batch that wrote it, and the version before.

    value: what the state holds now; None is a tombstone, which readers cannot tell from an absent key.
    txid: the batch that wrote `value`, counted from 1; None where the state's kind keeps no txid.
    prev, prev_txid: the version before; `prev_txid` None means that there was none.
    at, prev_at: when the two were written, in batch time; ttl counts from there. A backing map puts its own now where
        `at` is None. Rows are compared without them.

    Opaque maps read all of them, transactional ones compare `txid`, non-transactional ones look at `value` alone.
    Trident splits this into OpaqueValue and TransactionalValue (apache/storm, trident/state/OpaqueValue.java).
    """

    value: Any
    txid: int | None
    prev: Any = None
    prev_txid: int | None = None
    at: datetime | None = field(default=None, compare=False)
    prev_at: datetime | None = field(default=None, compare=False)

"""A stored row as every map and backing map passes it around, and the checks every backend makes when it writes one.

Keys fit the state, none comes twice, no row goes back in time, and a JSON value is text that every store can hold.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from state_backends.errors import DuplicateKeyError, StaleBatchError, ValueShapeError

if TYPE_CHECKING:
    from state_backends.spec import StateSpec

Key = tuple[Any, ...]

# An escaped NUL, which PostgreSQL's jsonb cannot hold; not so a backslash followed by `u0000`.
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


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


def check_unique(spec: "StateSpec", keys: Sequence[Key]) -> list[Key]:
    """Return the keys, typed. Raises KeyShapeError, or DuplicateKeyError naming the key that repeats."""
    typed = spec.check_keys(keys)
    if len(set(typed)) == len(typed):
        return typed
    seen: dict[Key, int] = {}
    again = next(index for index, key in enumerate(typed) if seen.setdefault(key, index) != index)
    raise DuplicateKeyError(
        f"state {spec.name!r}: key {typed[again]!r} comes at {seen[typed[again]]} and {again}; "
        "combine the rows of a key before writing"
    )


def pair(spec: "StateSpec", keys: Sequence[Key], rows: Sequence[Versioned]) -> dict[Key, Versioned]:
    """Return typed key to row. Raises as check_unique does, and ValueError where the two are not of one length."""
    check_paired(spec, keys, rows)
    return dict(zip(check_unique(spec, keys), rows, strict=True))


def check_paired(spec: "StateSpec", keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
    if len(keys) != len(rows):
        raise ValueError(f"state {spec.name!r}: {len(keys)} keys and {len(rows)} rows; give a row per key")


def stale(spec: "StateSpec", key: object, txid: object, stored: object) -> StaleBatchError:
    """Return the error for a row of batch `stored` that the older batch `txid` wants to replace."""
    return StaleBatchError.behind(txid, stored, repr(key), spec.name)


def json_text(spec: "StateSpec", key: Key, value: Any) -> str:
    """Return the value as JSON. Raises ValueShapeError, naming the key, where JSON or a store cannot hold it."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _unfit(spec, key, str(error)) from error
    if NUL.search(text):
        raise _unfit(spec, key, "it holds a NUL character")
    return text


def _unfit(spec: "StateSpec", key: Key, reason: str) -> ValueShapeError:
    return ValueShapeError(
        f"state {spec.name!r}: the value of key {key!r} cannot be stored as JSON: {reason}; store numbers, texts, "
        "lists and objects"
    )

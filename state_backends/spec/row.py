"""Versioned, the stored row that maps and backing maps exchange, and the checks that each backend makes before a write.

Keys must fit the state and be unique, a row must not be replaced by an older one, and a JSON value must be text that
every store can hold.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidegauge.state_backends.errors import DuplicateKeyError, StaleBatchError, ValueShapeError

if TYPE_CHECKING:
    from tidegauge.state_backends.spec.state_spec import StateSpec

Key = tuple[Any, ...]

# An escaped NUL, which PostgreSQL's jsonb cannot hold; it does not match an escaped backslash followed by `u0000`.
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value, the batch that wrote it, and the previous version.

    value: the current value; None is a tombstone, which readers cannot distinguish from an absent key.
    txid: the batch that wrote `value`, counted from 1; None if the state's kind stores no txid.
    prev, prev_txid: the previous version; `prev_txid` None means that there was none.
    at, prev_at: the batch times of the two, from which ttl counts. A backing map stores the current time if `at` is
        None. Comparing rows ignores them.

    Opaque maps use all of them, transactional ones `value`, `txid` and `at`, non-transactional ones `value` and `at`.
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
        f"state {spec.name!r}: key {typed[again]!r} is given twice, at {seen[typed[again]]} and {again}; "
        "combine the rows of a key before writing"
    )


def pair(spec: "StateSpec", keys: Sequence[Key], rows: Sequence[Versioned]) -> dict[Key, Versioned]:
    """Return typed key to row. Raises as check_unique does, and ValueError if the lengths differ."""
    check_paired(spec, keys, rows)
    return dict(zip(check_unique(spec, keys), rows, strict=True))


def check_paired(spec: "StateSpec", keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
    """Raise ValueError if the lengths differ."""
    if len(keys) != len(rows):
        raise ValueError(f"state {spec.name!r}: {len(keys)} keys and {len(rows)} rows; give a row per key")


def stale(spec: "StateSpec", key: object, txid: object, stored: object) -> StaleBatchError:
    """Return the error for the older batch `txid`, which tries to replace a row of batch `stored`."""
    return StaleBatchError.behind(txid, stored, repr(key), spec.name)


def json_text(spec: "StateSpec", key: Key, value: Any) -> str:
    """Return the value as JSON. Raises ValueShapeError, naming the key, if JSON or a store cannot hold it."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()  # fails for half of a surrogate pair, which dumps accepts
    except (TypeError, ValueError, RecursionError) as error:
        raise _unfit(spec, key, str(error)) from error
    if NUL.search(text):
        raise _unfit(spec, key, "it holds a NUL character")
    return text


def _unfit(spec: "StateSpec", key: Key, reason: str) -> ValueShapeError:
    return ValueShapeError(
        f"state {spec.name!r}: the value of key {key!r} cannot be stored as JSON: {reason}; store numbers, text, "
        "lists and objects"
    )

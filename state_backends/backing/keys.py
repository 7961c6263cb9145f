"""The checks every backend makes when it writes: keys fit the state, none comes twice, no row goes back in time."""

from collections.abc import Sequence

from state_backends.errors import DuplicateKeyError, StaleBatchError
from state_backends.spec import StateSpec
from state_backends.versioned import Key, Versioned


def check_unique(spec: StateSpec, keys: Sequence[Key]) -> list[Key]:
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


def pair(spec: StateSpec, keys: Sequence[Key], rows: Sequence[Versioned]) -> dict[Key, Versioned]:
    """Return typed key to row. Raises as check_unique does, and ValueError where the two are not of one length."""
    check_paired(spec, keys, rows)
    return dict(zip(check_unique(spec, keys), rows, strict=True))


def check_paired(spec: StateSpec, keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
    if len(keys) != len(rows):
        raise ValueError(f"state {spec.name!r}: {len(keys)} keys and {len(rows)} rows; give a row per key")


def stale(spec: StateSpec, key: object, txid: object, stored: object) -> StaleBatchError:
    """Return the error for a row of batch `stored` that the older batch `txid` wants to replace."""
    return StaleBatchError.behind(txid, stored, repr(key), spec.name)

"""The checks every backend makes when it writes: keys fit the state, none comes twice, no row goes back in time."""

from collections.abc import Sequence

from state_backends.errors import DuplicateKeyError, StaleBatchError
from state_backends.spec import StateSpec
from state_backends.versioned import Key


def check_unique(spec: StateSpec, keys: Sequence[Key]) -> list[Key]:
    """Return the keys, typed. Raises KeyShapeError, or DuplicateKeyError naming the key that repeats."""
    seen: dict[Key, int] = {}
    for index, key in enumerate(keys):
        typed = spec.check_key(key, index)
        if typed in seen:
            raise DuplicateKeyError(
                f"state {spec.name!r}: key {typed!r} comes at {seen[typed]} and {index}; "
                "combine the rows of a key before writing"
            )
        seen[typed] = index
    return list(seen)


def stale(spec: StateSpec, key: object, txid: object, stored: object) -> StaleBatchError:
    """Return the error for a row of batch `stored` that the older batch `txid` wants to replace."""
    return StaleBatchError(
        f"state {spec.name!r}: batch {txid} is older than stored batch {stored} for key {key!r}; "
        "another runner has moved on, so stop this one"
    )

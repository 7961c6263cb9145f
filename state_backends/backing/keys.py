"""The check every backend makes before it writes: keys fit the state, and none comes twice."""

from collections.abc import Sequence

from state_backends.errors import DuplicateKeyError
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

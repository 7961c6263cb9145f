"""State: what a test sees of a state, a dict from key to values."""

from collections.abc import Mapping
from typing import Any

from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec


class State(dict[Key, Any]):
    """The committed, living keys of a state, each with what readers see: measure to value, or the JSON value.

    Keys are tuples of typed parts. A lookup, and a dict that it is compared with, may have ISO text for times, dates
    and uuids, and the only part of a key without a tuple: `state["tea"]`, `state == {"2026-01-01": {"orders": 3}}`.
    """

    def __init__(self, spec: StateSpec, values: Mapping[Key, Any]) -> None:
        # Typed, since a NaN equals only the NaN of a typed key.
        super().__init__({spec.check_key(key): value for key, value in values.items()})
        self.spec = spec

    def key(self, key: Any) -> Key:
        """Return a key, typed. Raises KeyShapeError."""
        return self.spec.check_key(key if isinstance(key, list | tuple) else (key,))

    def typed(self, values: Mapping[Any, Any]) -> dict[Key, Any]:
        """Return values by their typed keys. Raises KeyShapeError."""
        return {self.key(key): value for key, value in values.items()}

    def __missing__(self, key: Any) -> Any:
        try:
            typed = self.key(key)
        except KeyShapeError as error:
            raise KeyError(str(error)) from None
        if not dict.__contains__(self, typed):
            raise KeyError(f"state {self.spec.name!r} has no key {typed!r}")
        return dict.__getitem__(self, typed)

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        try:
            return dict.__contains__(self, self.key(key))
        except KeyShapeError:
            return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        try:
            return dict.__eq__(self, self.typed(other))
        except KeyShapeError:
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

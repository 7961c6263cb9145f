"""State: a state as a test sees it, a dict from key to values."""

from collections.abc import Mapping
from typing import Any

from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec


class State(dict[Key, Any]):
    """The committed keys of a state that have not expired. Values are as readers see them: by measure, or JSON.

    Keys are tuples of typed parts. In a lookup or a comparison, times, dates and uuids may be ISO text, and a key with
    one part needs no tuple: `state["tea"]`, `state == {"2026-01-01": {"orders": 3}}`.
    """

    def __init__(self, spec: StateSpec, values: Mapping[Key, Any]) -> None:
        # Keys are typed, because NaN equals itself only in typed keys, where it is always the same object.
        super().__init__({spec.check_key(key): value for key, value in values.items()})
        self.spec = spec

    def key(self, key: Any) -> Key:
        """Return a key with typed parts. Raises KeyShapeError."""
        return self.spec.check_key(key if isinstance(key, list | tuple) else (key,))

    def typed(self, values: Mapping[Any, Any]) -> dict[Key, Any]:
        """Return the values with their keys typed. Raises KeyShapeError."""
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

"""Updaters: how a batch's contribution joins the stored value of a key.

Trident's ValueUpdater and its implementations (apache/storm, trident/state/ValueUpdater.java).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegauge.state_backends.spec.state_spec import StateSpec


@dataclass(frozen=True)
class Combine:
    """Join an aggregate computed beforehand. fold(stored, partial) -> new; the partial itself if nothing is stored."""

    fold: Callable[[Any, Any], Any]
    partial: Any

    def update(self, stored: Any) -> Any:
        return self.partial if stored is None else self.fold(stored, self.partial)


@dataclass(frozen=True)
class Reduce:
    """Fold items one by one. init() -> start, used if nothing is stored; fold(value, item) -> value."""

    init: Callable[[], Any]
    fold: Callable[[Any, Any], Any]
    items: Iterable[Any]

    def update(self, stored: Any) -> Any:
        value = self.init() if stored is None else stored
        for item in self.items:
            value = self.fold(value, item)
        return value


@dataclass(frozen=True)
class Replace:
    """Replace the stored value; None removes the key."""

    value: Any

    def update(self, stored: Any) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class Fold:
    """Fold the measures of a state; a key without rows is removed.

    partial: the batch's aggregates of the key, stored column to value.
    """

    spec: StateSpec
    partial: Mapping[str, Any]

    def update(self, stored: Any) -> Any:
        value = self.spec.fold(stored, self.partial)
        return None if self.spec.is_empty(value) else value

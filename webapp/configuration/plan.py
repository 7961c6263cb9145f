"""What has to change so that the stored configuration is the wanted one. Pure: it reads and writes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tidegauge.webapp.configuration.fields import Fields, is_same

Act = Literal["create", "change", "remove"]
Objects = Mapping[str, Fields]


@dataclass(frozen=True)
class Change:
    """One object that differs. before, after: all of its fields; empty where there is no object."""

    act: Act
    kind: str
    name: str
    before: Fields
    after: Fields

    @property
    def differing(self) -> dict[str, tuple[Any, Any]]:
        """The fields that differ, each with its value before and after; None where there is no object."""
        pairs = {field: (self.before.get(field), self.after.get(field)) for field in self.after or self.before}
        return {field: pair for field, pair in pairs.items() if not is_same(*pair)}


def plan(
    kind: str, stored: Objects, wanted: Objects, *, prune: bool = False, kept: Objects | None = None
) -> list[Change]:
    """Return the changes of the objects of one kind, by name.

    prune: also remove what is stored and not wanted. kept: objects that are there in any case, with the fields that
    they then get instead of being removed.
    """
    wanted = {**(kept or {}), **wanted} if prune else wanted
    changes = [_toward(kind, name, stored.get(name), fields) for name, fields in sorted(wanted.items())]
    gone = sorted(stored.keys() - wanted.keys()) if prune else []
    return [each for each in changes if each] + [Change("remove", kind, name, stored[name], {}) for name in gone]


def _toward(kind: str, name: str, before: Fields | None, after: Fields) -> Change | None:
    if before is None:
        return Change("create", kind, name, {}, after)
    return None if is_same(before, after) else Change("change", kind, name, before, after)

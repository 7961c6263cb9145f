"""The names that a key may be restricted to. The rooms that have them say how they are listed, when they are loaded."""

from collections.abc import Callable

Names = Callable[[], list[str]]

_listed: dict[str, Names] = {}


def register(kind: str, names: Names) -> None:
    """Say what lists the names of a kind. kind: "states" or "saved queries"."""
    _listed[kind] = names


def choices(kind: str) -> list[tuple[str, str]]:
    """Return the names of a kind as the choices of a form, in order."""
    return [(name, name) for name in _listed[kind]()]

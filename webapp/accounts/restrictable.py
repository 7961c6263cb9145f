"""The names that an API key may be restricted to. Apps register how to list them, so that this one imports none."""

from collections.abc import Callable

Names = Callable[[], list[str]]

_listed: dict[str, Names] = {}


def register(kind: str, names: Names) -> None:
    """Register a function that lists the names of a kind. kind: "states" or "saved queries"."""
    _listed[kind] = names


def choices(kind: str) -> list[tuple[str, str]]:
    """Return the names of a kind as the choices of a form, in order."""
    return [(name, name) for name in _listed[kind]()]

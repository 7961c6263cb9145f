"""Parameters of query strings, read one by one; a wrong one is named."""

from collections.abc import Mapping
from typing import Any

import orjson
from rest_framework.exceptions import ParseError


def text(asked: Mapping[str, str], name: str) -> str:
    found = asked.get(name, "")
    if "\0" in found:
        raise ParseError(f"{name} holds a NUL character")
    return found


def names(asked: Mapping[str, str], name: str) -> list[str] | None:
    """Return names that stand with commas between them; None if absent."""
    found = text(asked, name)
    return found.split(",") if found else None


def whole_number(asked: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """Return a number within bounds; None if absent."""
    found = asked.get(name)
    if found is None:
        return None
    # Python reads more digits than these, and signs, blanks and underscores, too.
    if not (found.isascii() and found.isdecimal() and len(found) < 20 and least <= int(found) <= most):
        raise ParseError(f"{name} must be a number from {least} to {most}, got {found[:40]!r}")
    return int(found)


def key_parts(asked: Mapping[str, str], name: str) -> list[Any] | str:
    """Return leading key parts: a JSON list, or bare text for the first one alone; empty text if absent."""
    found = text(asked, name)
    if not found.startswith("["):
        return found
    try:
        return orjson.loads(found)
    except orjson.JSONDecodeError as error:
        raise ParseError(
            f"{name} starts as a JSON list and is none: {error}; write it so, or as bare text for the first part"
        ) from None

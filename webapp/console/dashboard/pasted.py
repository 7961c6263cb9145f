"""Parses what people type or paste: numbers, key prefixes, and lists of keys.

Keys are written one per line, as CSV, TSV or JSON lists, or all together as one JSON list of lists.
"""

import csv
import json
from dataclasses import dataclass
from typing import Any

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.types import KEY_TYPES
from tidegauge.webapp.api.rendering import parse_json

BOOLEANS = {"true": True, "false": False}

# The largest number that PostgreSQL's bigint holds.
MAX_BIGINT = 2**63 - 1


@dataclass(frozen=True)
class PastedKey:
    """line: from 1. text: as pasted. key: with typed parts; None if invalid, then `error` is the reason."""

    line: int
    text: str
    key: Key | None
    error: str = ""


def whole_number(text: str) -> int | None:
    """Return a number from 0 to MAX_BIGINT, None for anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        return None
    number = int(text)
    return number if number <= MAX_BIGINT else None


def pasted_keys(text: str, spec: StateSpec) -> list[PastedKey]:
    """Return a key or an error for each line that is not blank; a header line with the column names is skipped."""
    whole = _lists(text)
    if whole is not None:
        return [_typed(number, json.dumps(parts), parts, spec) for number, parts in enumerate(whole, 1)]
    return [
        _read(number, line.strip(), spec)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not (number == 1 and _is_header(line, spec))
    ]


def pasted_prefix(text: str, spec: StateSpec) -> Key:
    """Return the leading parts of a key, which are written like a key. Raises KeyShapeError."""
    if not text.strip():
        return ()
    try:
        return spec.check_prefix(_parts(text.strip(), spec))
    except ValueError as error:
        raise KeyShapeError(f"prefix: {error}") from None


def _lists(text: str) -> list[Any] | None:
    """Return the lists of a JSON list of lists; None for any other text."""
    if not text.lstrip().startswith("["):
        return None
    try:
        parse_json(text)
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, list) and found and all(isinstance(parts, list) for parts in found) else None


def _read(number: int, line: str, spec: StateSpec) -> PastedKey:
    try:
        return _typed(number, line, _parts(line, spec), spec)
    except ValueError as error:
        return PastedKey(number, line, None, str(error))


def _typed(number: int, line: str, parts: Any, spec: StateSpec) -> PastedKey:
    try:
        return PastedKey(number, line, spec.check_key(parts))
    except KeyShapeError as error:
        return PastedKey(number, line, None, str(error))


def _parts(line: str, spec: StateSpec) -> list[Any]:
    """Return the parts of a line. Raises ValueError for one that starts with `[` and is not valid JSON."""
    if line.startswith("["):
        return _json_parts(line.rstrip(","))
    texts = _texts(line, len(spec.key))
    return [_as_json(text, sql_type) for text, sql_type in zip(texts, spec.key.values(), strict=False)] + texts[
        len(spec.key) :
    ]


def _json_parts(line: str) -> list[Any]:
    try:
        parse_json(line)
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f'not a valid JSON list ({error}); write it as ["JFK", "AA"]') from None


def _texts(line: str, columns: int) -> list[str]:
    # Not split, because with a single key column a comma belongs to the value.
    if columns == 1 and not line.startswith('"'):
        return [line]
    return next(csv.reader([line], delimiter="\t" if "\t" in line else ",", skipinitialspace=True), [])


def _as_json(text: str, sql_type: str) -> Any:
    """Return the text as a value of the column's type, or unchanged if it is not one; check_key then rejects it."""
    kind = KEY_TYPES[sql_type]
    if kind.python is bool:
        return BOOLEANS.get(text.strip().lower(), text)
    try:
        return kind.from_text(text) if kind.is_number else text
    except ValueError:
        return text


def _is_header(line: str, spec: StateSpec) -> bool:
    return [text.strip() for text in _texts(line.strip(), len(spec.key))] == list(spec.key)

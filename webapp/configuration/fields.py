"""The types of fields in a configuration. Each returns one form of equal values, so that plain values are compared.

A type reads a value from a file or from the database, and raises TypeError if the value is invalid.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.dateparse import parse_datetime

REQUIRED: Any = object()

Fields = Mapping[str, Any]


class Type(NamedTuple):
    """says: what a value has to be, for messages."""

    says: str
    read: Callable[[Any], Any]


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Field:
    """default: what it is where a file leaves it out, or REQUIRED. shown: writes a value that reports must not have."""

    type: Type
    default: Any = None
    shown: Callable[[Any], Any] = _itself

    def read(self, value: Any) -> Any:
        """Raises TypeError. null stands for the default where that is null."""
        return None if value is None and self.default is None else self.type.read(value)


def _only(*kinds: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError
        return value

    return read


def _number(value: Any) -> int | float:
    if type(value) not in (int, float) or value != value:
        raise TypeError
    return int(value) if value == value // 1 and abs(value) < 1e15 else value


def _names(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise TypeError
    return sorted({*value})


def _time(value: Any) -> str:
    try:
        at = value if isinstance(value, datetime) else parse_datetime(_only(str)(value))
    except ValueError:
        at = None
    if at is None or timezone.is_naive(at):
        raise TypeError
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


TEXT = Type("text", _only(str))
FLAG = Type("true or false", _only(bool))
WHOLE = Type("a whole number", _only(int))
NUMBER = Type("a number", _number)
NAMES = Type("a list of texts", _names)
LIST = Type("a list", _only(list))
OBJECT = Type("a mapping", _only(dict))
TIME = Type("a time with a time zone, such as 2027-01-01T00:00:00Z", _time)


def is_same(one: Any, other: Any) -> bool:
    """Compare as JSON, because 1 == True and 1 == 1.0 in Python."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)

"""Typed parameters of saved queries, and how text in a definition stands for their values.

Text that is the name of a parameter in braces stands for its value, as a whole: values are never put into other text.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from tidegauge.state_backends.reader.filters import IN, Filter, read_value
from tidegauge.state_backends.spec.types import KEY_TYPES, TYPES, SqlType, type_of

PARAMETER_TYPES = {**KEY_TYPES, "numeric": TYPES["numeric"]}
PARAMETER_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
# Parameters that calls of the API have.
RESERVED = ("at_time", "at_txid", "cursor", "epoch", "format", "limit", "min_txid", "wait_ms")
STANDS_FOR = re.compile(r"\{([a-z][a-z0-9_]*)\}")
ESCAPED = re.compile(r"\{(\{.*\})\}", re.DOTALL)
OF_PARAMETER = ("type", "default", "many", "description")

MOST_VALUES = 1_000

# Values to try a definition with, by the Python type.
SAMPLES: Mapping[type, Any] = {
    str: "a",
    int: 0,
    float: 0.0,
    Decimal: Decimal(0),
    bool: True,
    datetime: datetime(2000, 1, 1, tzinfo=UTC),
    date: date(2000, 1, 1),
    UUID: UUID(int=0),
}

Values = Mapping[str, Any]


class DefinitionError(ValueError):
    """A definition is malformed: correct the part that the message names."""


class ParameterError(ValueError):
    """The value of a parameter is missing, or is not of its type."""


@dataclass(frozen=True)
class Parameter:
    """many: it may be given several times, and stands for all of its values. default: None where it is required."""

    name: str
    type: SqlType
    default: Any = None
    many: bool = False
    description: str = ""

    @property
    def is_required(self) -> bool:
        return self.default is None

    def read(self, texts: Sequence[str]) -> Any:
        """Return the value, or the list of values, that a client gives as text. Raises ParameterError."""
        if not texts:
            if self.is_required:
                raise ParameterError(f"parameter {self.name!r} is required, a value of type {self.type.name}")
            return self.default
        if len(texts) > (MOST_VALUES if self.many else 1):
            most = f"{MOST_VALUES} times" if self.many else "once"
            raise ParameterError(f"parameter {self.name!r} is given {len(texts)} times; give it {most} at most")
        values = [self._value(text) for text in texts]
        return values if self.many else values[0]

    def read_default(self, default: Any) -> Any:
        """Return a default, a JSON value, as `read` returns it. Raises ParameterError."""
        given = default if self.many and isinstance(default, list) else [default]
        return self.read([each if isinstance(each, str) else json.dumps(each) for each in given])

    @property
    def sample(self) -> Any:
        value = SAMPLES[self.type.python]
        return [value] if self.many else value

    def _value(self, text: str) -> Any:
        try:
            value = read_value(self.type, text, self.name)
            if isinstance(value, float | Decimal) and not math.isfinite(value):
                raise ValueError(text)
        except (ValueError, ArithmeticError):
            raise ParameterError(f"parameter {self.name!r} must be {self.type.name}, got {text[:80]!r}") from None
        return value


def parse_parameter(name: str, options: Any) -> Parameter:
    where = f"parameter {name!r}"
    if not PARAMETER_NAME.fullmatch(name) or name in RESERVED:
        raise DefinitionError(f"{where} has an invalid name; use a lower case letter, then letters, digits or _, and "
                              f"none of {', '.join(RESERVED)}")  # fmt: skip
    members = checked_members(options, OF_PARAMETER, where)
    if members.get("type") not in PARAMETER_TYPES:
        raise DefinitionError(f"{where} has type {members.get('type')!r}; choose one of {', '.join(PARAMETER_TYPES)}")
    many, description = members.get("many", False), members.get("description", "")
    if type(many) is not bool or not isinstance(description, str):
        raise DefinitionError(f"{where}: many must be true or false, and description text")
    parameter = Parameter(name, type_of(members["type"]), None, many, description)
    if members.get("default") is None:
        return parameter
    try:
        default = parameter.read_default(members["default"])
    except ParameterError as error:
        raise DefinitionError(f"{where}: its default does not fit: {error}") from None
    return Parameter(name, parameter.type, default, many, description)


def checked_members(document: Any, known: Sequence[str], where: str) -> dict[str, Any]:
    """Return an object of JSON that has known members alone. Raises DefinitionError."""
    if not isinstance(document, dict):
        raise DefinitionError(f"{where} must be an object with {', '.join(known)}")
    if unknown := document.keys() - set(known):
        raise DefinitionError(f"{where} has an unknown member {min(unknown)!r}; there are {', '.join(known)}")
    return document


def as_condition(condition: Filter) -> str:
    """Return a typed condition as text that means the same."""
    if condition.operator == IN:
        return f"{condition.column} in {json.dumps([_text(each) for each in condition.value])}"
    if condition.value is None:
        return f"{condition.column} {condition.operator}"
    return f"{condition.column} {condition.operator} {json.dumps(_text(condition.value))}"


def as_json(value: Any) -> Any:
    """Return a value as requests write it in JSON."""
    return value if isinstance(value, bool | int | float | str) else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def name_in(template: Any) -> str | None:
    found = STANDS_FOR.fullmatch(template) if isinstance(template, str) else None
    return None if found is None else found[1]


def filled(template: Any, values: Values) -> Any:
    name = name_in(template)
    if name is not None:
        return values[name]
    escaped = ESCAPED.fullmatch(template) if isinstance(template, str) else None
    return template if escaped is None else escaped[1]


def spread(template: Any, values: Values) -> list[Any]:
    value = filled(template, values)
    return value if isinstance(value, list) else [value]


def filled_filter(condition: Filter, values: Values) -> Filter:
    if isinstance(condition.value, list):
        return condition._replace(value=[each for part in condition.value for each in spread(part, values)])
    return condition._replace(value=filled(condition.value, values))

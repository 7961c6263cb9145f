"""Converts values between JSON and Python, because JSON has no times, dates, uuids, decimals or infinite numbers.

The types are those of the state's columns, which `GET /states/{name}` lists. A `numeric` is a Decimal with all digits.
A value whose type is unknown here is left as it is in JSON.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from tidegauge.client.errors import InvalidAnswerError, InvalidArgumentError

Key = tuple[Any, ...]
# With an offset; text in ISO 8601.
Time = datetime | str

# The members of an answer that list values, each with its key.
ROWS = ("results", "changes", "entries", "versions", "groups")


def to_json(value: Any) -> Any:
    """Return a value in the form that the API accepts. Raises InvalidArgumentError for a time without an offset."""
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise InvalidArgumentError(f"{value!r} has no time zone; give one, such as datetime(.., tzinfo=UTC)")
        return value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return value


def key_in_json(key: Any) -> list[Any]:
    """Return a key as the list of its parts; a bare value is a key of one part."""
    parts = to_json(key)
    return parts if isinstance(parts, list) else [parts]


def timestamp(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _plain(value: Any) -> Any:
    """Return a JSON value with floats for the numbers that were read as decimals."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


READ: Mapping[str, Callable[[Any], Any]] = {
    "timestamptz": datetime.fromisoformat,
    "date": date.fromisoformat,
    "uuid": UUID,
    "double precision": float,
    "bytea": lambda text: bytes.fromhex(text.removeprefix("\\x")),
    "numeric": Decimal,
}


def _reader(sql_type: str) -> Callable[[Any], Any]:
    read = READ.get(sql_type.partition("(")[0], _plain)

    def read_if_possible(value: Any) -> Any:
        try:
            return None if value is None else read(value)
        except (TypeError, ValueError, ArithmeticError):
            return value  # for example a time before year 1, which Python's datetime cannot hold

    return read_if_possible


@dataclass(frozen=True)
class Types:
    """The columns of a state: readers of the key parts, in order, and of the measures, by name. names: the key columns.

    measures: None for a state whose value is any JSON value. has_decimals: whether floats would lose digits.
    """

    names: Sequence[str] = ()
    keys: Sequence[Callable[[Any], Any]] = ()
    measures: Mapping[str, Callable[[Any], Any]] | None = field(default_factory=dict)
    has_decimals: bool = False
    is_typed: bool = True

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Types":
        """Return the types of a state from its document, as `GET /states/{name}` returns it."""
        measures = document["measures"]
        keys = [_reader(sql_type) for sql_type in document["key"].values()]
        if list(measures) == ["value"] and not measures["value"]["aggregate"]:
            return cls(list(document["key"]), keys, None)
        sql_types = {name: measure["type"] for name, measure in measures.items()}
        has_decimals = any(each.startswith("numeric") for each in sql_types.values())
        return cls(list(document["key"]), keys, {name: _reader(each) for name, each in sql_types.items()}, has_decimals)

    def of_columns(self, columns: Sequence[str]) -> "Types":
        """Return the types of keys that have only these key columns."""
        keys = dict(zip(self.names, self.keys, strict=True))
        known = [column for column in columns if column in keys]
        return replace(self, names=known, keys=[keys[column] for column in known])

    def knows(self, document: Mapping[str, Any]) -> bool:
        """Return whether the measures of an answer are known."""
        if not self.is_typed or self.measures is None:
            return True
        values = (row["value"] for row in rows(document) if row.get("value") is not None)
        return set(next(iter(values), ())) <= set(self.measures)

    def key(self, parts: Sequence[Any]) -> Key:
        if not self.is_typed or len(parts) != len(self.keys):
            return tuple(parts)
        return tuple(read(part) for read, part in zip(self.keys, parts, strict=True))

    def value(self, value: Any) -> Any:
        if not self.is_typed or value is None:
            return value
        if self.measures is None:
            return _plain(value)
        return {name: self.measures.get(name, _plain)(each) for name, each in value.items()}

    def row(self, key: Key | None, value: Any) -> dict[str, Any]:
        """Return a value by column, with the parts of its key if it has one."""
        if not self.is_typed:
            raise InvalidArgumentError("a table needs the columns of its state; use a client with typed=True")
        values = {"value": value} if self.measures is None else value
        return values if key is None else dict(zip(self.names, key, strict=True)) | values


AS_IN_JSON = Types(is_typed=False)


def rows(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return all parts of an answer that have a value."""
    combined = [document["combined"]] if "combined" in document else []
    found = [*(row for name in ROWS for row in document.get(name) or ()), *combined]
    return [*found, *({"value": value} for row in found for value in row.get("values", ()))]


def parsed(content: bytes | str, types: Iterable[Types] = ()) -> Any:
    """Return a JSON document. Its numbers keep all digits if a state of these types has decimals."""
    try:
        return json.loads(content, parse_float=Decimal if any(each.has_decimals for each in types) else float)
    except ValueError as error:
        raise InvalidAnswerError(f"the answer is not JSON: {error}") from error

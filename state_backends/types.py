"""SQL types: what each is called in Spark, Arrow, Python and JSON, where it may stand, and which key parts it takes.

This is the only table keyed by SQL type; subsets derive from its attributes. What a single backend needs, such as
sortable bytes or text in Redis, is a dict keyed by Python type in its module.
"""

import json
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, LiteralString
from uuid import UUID

import pyarrow as pa

# What JSON has itself (`object` is any of it): a key part of such a type never comes as text.
NATIVE = {str, bool, int, float, object}


@dataclass(frozen=True)
class SqlType:
    """A column type.

    python: the class of its values; `object` for JSON. spark: its name in Spark SQL. arrow: the type that holds its
        values in Arrow; text where Arrow has none of their precision or form.
    width: bytes of a value, in a row of PostgreSQL and in a sortable key; 0 where values differ.
    widens_to: the type that a column of it may be migrated to, since no digit is lost.
    is_key: whether a key column may have it. is_measure: whether an aggregator over one column may.
    is_ordered: whether entries can be ordered by it. is_large: whether values grow without bound.
    """

    name: LiteralString
    python: type[Any]
    spark: str
    arrow: pa.DataType
    _: KW_ONLY
    width: int = 0
    widens_to: str | None = None
    is_key: bool = False
    is_measure: bool = False
    is_ordered: bool = True
    is_large: bool = False

    @property
    def is_number(self) -> bool:
        return self.python in (int, float, Decimal)

    @property
    def is_text_in_json(self) -> bool:
        return self.python is str or self.python not in {*NATIVE, Decimal}

    @property
    def is_text_in_arrow(self) -> bool:
        """Whether Arrow holds its values as text though Python does not."""
        return self.python is not str and self.arrow == pa.string()

    @property
    def is_text_in_spark(self) -> bool:
        return self.python is not str and self.spark == "string"

    @cached_property
    def integers(self) -> range | None:
        """The whole numbers that it holds; None where it holds others, too."""
        limit = 1 << 8 * self.width - 1 if self.python is int else 0
        return range(-limit, limit) if limit else None

    def from_text(self, text: str) -> Any:
        """Return the value that PostgreSQL, or JSON, shows so. Raises ValueError or ArithmeticError."""
        return READ.get(self.python, self.python)(text)

    def key_part(self, part: Any, column: str) -> Any:
        """Return a key part as a value of `python`. Raises ValueError, naming the column.

        Timestamps, dates and uuids may come as text, as they do over JSON; doubles as whole numbers.
        """
        value = part
        if self.python is float:
            value = _as_float(part)
        elif isinstance(part, str) and self.python not in NATIVE:
            value = self._read(part)
        if type(value) is not self.python:
            raise ValueError(f"{column} must be {self.name}, got {shown(part)}")
        if self.integers is not None and value not in self.integers:
            raise ValueError(f"{column} must be {self.name}, and {shown(part)} is out of its range")
        if self.python is str:
            _check_text(value, column)
        elif self.python is datetime:
            _check_timestamp(value, column)
        return value

    def are_plain(self, column: tuple[Any, ...], text_bytes: int) -> bool:
        """Tell whether key parts fit as they are; False may also mean that a closer look at each is needed.

        text_bytes: the longest text that surely fits.
        """
        if self.python is str:
            return _are_plain_texts(column, text_bytes)
        if self.integers is not None:
            return set(map(type, column)) == {int} and min(column) in self.integers and max(column) in self.integers
        return False

    def _read(self, part: str) -> Any:
        try:
            return self.from_text(part)
        except ValueError:
            return part


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


# What reads the text of a value, where it is not the Python type itself.
READ: dict[type, Callable[[str], Any]] = {
    bool: _boolean,
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    bytes: lambda text: bytes.fromhex(text.removeprefix("\\x")),
    object: json.loads,
}

# In the order in which messages list them. No measure of ours gives `json`; one of your own may.
_ALL = [
    SqlType("text", str, "string", pa.string(), is_key=True, is_measure=True),
    SqlType("bigint", int, "bigint", pa.int64(), width=8, widens_to="numeric", is_key=True, is_measure=True),
    SqlType("integer", int, "int", pa.int32(), width=4, widens_to="bigint", is_key=True),
    SqlType("boolean", bool, "boolean", pa.bool_(), width=1, is_key=True, is_measure=True),
    SqlType("double precision", float, "double", pa.float64(), width=8, is_key=True, is_measure=True),
    SqlType("numeric", Decimal, "decimal(38,9)", pa.string(), is_measure=True),
    SqlType("timestamptz", datetime, "timestamp", pa.timestamp("us", "UTC"), width=8, is_key=True, is_measure=True),
    SqlType("date", date, "date", pa.date32(), width=4, is_key=True),
    SqlType("uuid", UUID, "string", pa.string(), width=16, is_key=True),
    SqlType("bytea", bytes, "binary", pa.binary(), is_ordered=False, is_large=True),
    SqlType("jsonb", object, "string", pa.string(), is_ordered=False, is_large=True),
    SqlType("json", object, "string", pa.string(), is_ordered=False),
]
TYPES = {sql_type.name: sql_type for sql_type in _ALL}
KEY_TYPES = {name: sql_type for name, sql_type in TYPES.items() if sql_type.is_key}


def type_of(name: str) -> SqlType:
    """Return the type of that name; one that the table lacks, as a measure of your own may have, travels as text."""
    return TYPES.get(name) or SqlType(name, object, name, pa.string(), is_ordered=False)


def shown(part: Any, limit: int = 80) -> str:
    """Return what a message shows of a value."""
    text = repr(part)
    return text if len(text) <= limit else f"{text[:limit]}.."


def _are_plain_texts(column: tuple[Any, ...], text_bytes: int) -> bool:
    if set(map(type, column)) != {str} or max(map(len, column)) > text_bytes:
        return False
    together = "".join(column)
    return together.isascii() and "\0" not in together


def _as_float(part: Any) -> Any:
    try:
        value = float(part) if type(part) is int else part
    except OverflowError:
        return part
    # To PostgreSQL a NaN is one value, equal to itself; to Python it is so only if it is one object.
    return math.nan if value != value else value


def _check_timestamp(value: datetime, column: str) -> None:
    if value.tzinfo is None:
        raise ValueError(f"{column} must be a timestamp with an offset, as 2013-01-01T05:00:00Z, got {shown(value)}")
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{column} must be timestamptz, and {value} is not in the years 1 to 9999 of UTC") from None


def _check_text(value: str, column: str) -> None:
    if "\0" in value:
        raise ValueError(f"{column} holds a NUL character, which PostgreSQL cannot store")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{column} holds half of a surrogate pair, which is no text") from None

"""SQL types: the equivalent of each in Spark, Arrow, Python and JSON, where it may be used, and the check of key parts.

This is the only table keyed by SQL type; subsets derive from its attributes. If only one backend needs something, such
as sortable bytes or text in Redis, its module has a dict keyed by Python type.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, LiteralString
from uuid import UUID

from tidegauge.state_backends.extras import OptionalModule

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = OptionalModule("pyarrow")

# As many digits as a PostgreSQL numeric can have; Python's default context rounds at 28.
EXACT = Context(prec=131_072 + 16_383)

# A numeric with its digits in all and after the point. At most 38, because Spark's decimals have no more.
NUMERIC = re.compile(r"numeric\((\d{1,2}), ?(\d{1,2})\)")
MAX_DIGITS = 38

# Doubles that JSON has no numbers for, as PostgreSQL writes them into JSON.
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

# Types that JSON has itself (`object` is any JSON value), so a key part of such a type is never read from text.
NATIVE = {str, bool, int, float, object}


@dataclass(frozen=True)
class SqlType:
    """A column type.

    python: the class of its values; `object` for JSON. spark: its name in Spark SQL. arrow_name: the name of the
        type of its values in Arrow; text if Arrow has no type of the same precision or form.
    width: bytes of a value, in a row of PostgreSQL and in a sortable key; 0 if values differ in length.
    widens_to: the type that a column may be migrated to without losing digits.
    is_key: whether a key column may have it. is_measure: whether an aggregator over one column may.
    is_ordered: whether entries can be ordered by it. is_large: whether values can grow without limit.
    """

    name: LiteralString
    python: type[Any]
    spark: str
    arrow_name: str
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
        """Whether its values are text in Arrow but not in Python."""
        return self.python is not str and self.arrow_name == "string"

    @cached_property
    def arrow(self) -> "pa.DataType":
        """The type of its values in Arrow."""
        # By hand, because Arrow has no alias for a type with a time zone.
        return pa.timestamp("us", "UTC") if self.python is datetime else pa.type_for_alias(self.arrow_name)

    @property
    def is_text_in_spark(self) -> bool:
        return self.python is not str and self.spark == "string"

    @cached_property
    def integers(self) -> range | None:
        """The range of an integer type; None for other types."""
        limit = 1 << 8 * self.width - 1 if self.python is int else 0
        return range(-limit, limit) if limit else None

    @cached_property
    def digits(self) -> tuple[int, int] | None:
        """How many digits a numeric has, in all and after the point; None for other types."""
        found = re.fullmatch(r"decimal\((\d+),(\d+)\)", self.spark)
        return (int(found[1]), int(found[2])) if found else None

    @cached_property
    def limit(self) -> Decimal:
        """The smallest positive number that is too large for a numeric."""
        assert self.digits is not None
        return Decimal(10) ** (self.digits[0] - self.digits[1])

    def is_out_of_range(self, result: Any, *operands: Any) -> bool:
        """Return whether folding `operands` gave a result that this type cannot hold.

        An infinite double is in range if an operand is infinite, as in PostgreSQL.
        """
        if result is None:
            return False
        if self.integers is not None:
            return result not in self.integers
        if self.python is float:
            return math.isinf(result) and not any(each is not None and math.isinf(each) for each in operands)
        return self.digits is not None and not result.is_nan() and result.copy_abs() >= self.limit

    def rounded(self, number: Decimal) -> Decimal:
        """Return a number rounded to the decimal places of a numeric."""
        assert self.digits is not None
        return number.quantize(Decimal(1).scaleb(-self.digits[1]), context=EXACT)

    def from_text(self, text: str) -> Any:
        """Return the value of text as PostgreSQL or JSON writes it. Raises ValueError or ArithmeticError."""
        return READ.get(self.python, self.python)(text)

    def key_part(self, part: Any, column: str) -> Any:
        """Return a key part as a value of `python`. Raises ValueError, naming the column.

        Timestamps, dates and uuids may be text, and so may doubles that are not finite; doubles may be integers.
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
        """Return whether all parts of a key column are valid as they are; False: check each with `key_part`.

        text_bytes: the length up to which a text is valid whatever the other parts of its key are.
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


# Functions that read a value from text, for Python types whose constructor does not.
READ: dict[type, Callable[[str], Any]] = {
    bool: _boolean,
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    bytes: lambda text: bytes.fromhex(text.removeprefix("\\x")),
    object: json.loads,
}

# In the order in which messages list them. `json` is for results of aggregators of your own; none of ours has it.
_ALL = [
    SqlType("text", str, "string", "string", is_key=True, is_measure=True),
    SqlType("bigint", int, "bigint", "int64", width=8, widens_to="numeric", is_key=True, is_measure=True),
    SqlType("integer", int, "int", "int32", width=4, widens_to="bigint", is_key=True),
    SqlType("boolean", bool, "boolean", "bool", width=1, is_key=True, is_measure=True),
    SqlType("double precision", float, "double", "double", width=8, is_key=True, is_measure=True),
    SqlType("numeric", Decimal, "decimal(38,9)", "string", is_measure=True),
    SqlType("timestamptz", datetime, "timestamp", "timestamp[us, tz=UTC]", width=8, is_key=True, is_measure=True),
    SqlType("date", date, "date", "date32", width=4, is_key=True),
    SqlType("uuid", UUID, "string", "string", width=16, is_key=True),
    SqlType("bytea", bytes, "binary", "binary", is_ordered=False, is_large=True),
    SqlType("jsonb", object, "string", "string", is_ordered=False, is_large=True),
    SqlType("json", object, "string", "string", is_ordered=False),
]
TYPES = {sql_type.name: sql_type for sql_type in _ALL}
KEY_TYPES = {name: sql_type for name, sql_type in TYPES.items() if sql_type.is_key}


@cache
def type_of(name: str) -> SqlType:
    """Return the type with this name, which may be `numeric(p,s)`.

    An unknown type, which a custom aggregator may have, is handled as text.
    """
    found = NUMERIC.fullmatch(name)
    if found is not None:
        total, places = int(found[1]), int(found[2])
        sized: Any = f"numeric({total}, {places})"
        return replace(TYPES["numeric"], name=sized, spark=f"decimal({total},{places})")
    return TYPES.get(name) or SqlType(name, object, name, "string", is_ordered=False)


def shown(part: Any, limit: int = 80) -> str:
    """Return `repr(part)` for a message, cut at `limit` characters."""
    text = repr(part)
    return text if len(text) <= limit else f"{text[:limit]}.."


def _are_plain_texts(column: tuple[Any, ...], text_bytes: int) -> bool:
    if set(map(type, column)) != {str}:
        return False
    together = "".join(column)
    # Characters stand for bytes here, because only ASCII text passes.
    are_short = len(together) <= text_bytes or max(map(len, column)) <= text_bytes
    return are_short and together.isascii() and "\0" not in together


def _as_float(part: Any) -> Any:
    try:
        value = NOT_FINITE.get(part, part) if type(part) is str else float(part) if type(part) is int else part
    except OverflowError:
        return part
    if type(value) is not float:
        return value
    # In PostgreSQL NaN equals NaN; in Python only the same object does inside a tuple. -0.0 plus 0.0 is 0.0.
    return math.nan if value != value else value + 0.0


def _check_timestamp(value: datetime, column: str) -> None:
    if value.tzinfo is None:
        raise ValueError(f"{column} must be a timestamp with offset such as 2013-01-01T05:00:00Z, got {shown(value)}")
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
        raise ValueError(f"{column} holds half of a surrogate pair, which cannot be stored") from None

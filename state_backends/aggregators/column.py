"""What aggregators over a column share: its Spark SQL, the types they may store, and the order of values in Python."""

import math
from collections.abc import Mapping
from typing import Any, LiteralString

from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.spec.types import MAX_DIGITS, NUMERIC, TYPES, type_of

MEASURE_TYPES = [sql_type for sql_type in TYPES.values() if sql_type.is_measure]
NUMBER_TYPES: dict[str, LiteralString] = {
    sql_type.name: sql_type.name for sql_type in MEASURE_TYPES if sql_type.is_number
}
VALUE_TYPES = NUMBER_TYPES | {sql_type.name: sql_type.name for sql_type in MEASURE_TYPES}

# Conditions that a value must meet, because Spark can hold values that a PostgreSQL column or its readers cannot.
# Events with any other value are dead letters; in `aggregate()`, which writes none, the value counts as null.
FITS = {
    "text": "not contains({}, char(0))",
    "timestamptz": "{} between timestamp'0001-01-01 00:00:00Z' and timestamp'9999-12-31 23:59:59.999999Z'",
}


def quoted(column: str) -> str:
    """Return the column as a Spark SQL name, so that no column name can be read as an expression."""
    return "`" + column.replace("`", "``") + "`"


def stored_type(sql_type: str, whose: str, types: Mapping[str, LiteralString] = NUMBER_TYPES) -> LiteralString:
    """Return the type of the column that stores a value of `sql_type`: one of `types`, or a numeric with digits.

    Raises SpecError for any other type, naming the aggregator `whose`.
    """
    sized = NUMERIC.fullmatch(sql_type) if "numeric" in types else None
    if sized is not None:
        if not int(sized[2]) <= int(sized[1]) <= MAX_DIGITS or not int(sized[1]):
            raise SpecError(f"{whose}: type {sql_type!r} has too many digits or places; the limit is numeric(38, 38)")
        return types["numeric"]
    if sql_type not in types:
        raise SpecError(f"{whose}: type {sql_type!r} is not one of {', '.join(types)}")
    return types[sql_type]


def whole_number(number: int, low: int, high: int, whose: str) -> int:
    """Return `number` if it is an int from `low` to `high`. Raises SpecError, naming the argument `whose`."""
    if type(number) is not int or not low <= number <= high:
        raise SpecError(f"{whose} {number!r} must be a whole number from {low} to {high}")
    return number


def cast(column: str, sql_type: str) -> str:
    """Return Spark SQL for the column as `sql_type`; null if the stored column cannot hold the value."""
    value = f"try_cast({quoted(column)} as {type_of(sql_type).spark})"
    return f"if({FITS[sql_type].format(value)}, {value}, null)" if sql_type in FITS else value


def order(value: Any) -> tuple[bool, Any]:
    """Return a sort key with the order of PostgreSQL and Spark: NaN is the largest number, text sorts by code point."""
    return (value != value, 0 if value != value else value)


def least(*values: Any) -> Any:
    """Return the smallest value, like SQL's `least`: nulls are ignored; None if all values are null."""
    return min((value for value in values if value is not None), key=order, default=None)


def greatest(*values: Any) -> Any:
    """Return the largest value, like SQL's `greatest`: nulls are ignored; None if all values are null."""
    return max((value for value in values if value is not None), key=order, default=None)


def as_json(value: Any) -> Any:
    """Return the value as PostgreSQL writes it in JSON, where NaN and the infinities are text."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"

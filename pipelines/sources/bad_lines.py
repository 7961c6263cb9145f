"""Says why a line is bad, and which one of its file it is.

Spark says neither. Because bad lines are rare, they are read a second time here, in Python.
"""

import csv
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

SHOWN_CHARACTERS = 60  # of a value, in a reason
WHOLE_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
LARGEST_DOUBLE, LARGEST_FLOAT = Decimal(sys.float_info.max), Decimal("3.4028235e38")
A_HEADER = "a header, not an event"


def why_bad(line: str, schema: StructType) -> str:
    """Return the reason why a JSON line is bad, with the column and the expected type if they are known."""
    try:
        # Numbers are kept as written, because a double would hide why one of them does not fit.
        value = json.loads(line, parse_float=Decimal, parse_constant=Decimal)
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at column {error.colno}"
    except RecursionError:
        return "not JSON that can be read: nested too deeply"
    if not isinstance(value, dict):
        return f"not a JSON object but {_kind(value)}"
    for field in schema:
        found = value.get(field.name)
        if found is None and not field.nullable:
            return f"{field.name}: required, and absent or null"
        if found is not None and not _fits(found, field.dataType):
            return f"{field.name}: expected {field.dataType.simpleString()}, got {_shown(found)}"
    return _fallback(line)


def why_bad_csv(line: str, schema: StructType, delimiter: str = ",") -> str:
    """Return the reason why a line of CSV is bad, with the column and the expected type if they are known."""
    if line.count('"') % 2:
        return "a quote is not closed; a quoted field must end on its line"
    try:
        [fields] = csv.reader([line], delimiter=delimiter)
    except csv.Error as error:
        return f"not CSV: {error}"
    if len(fields) != len(schema):
        return f"{len(fields)} fields, expected {len(schema)}"
    if [field.strip() for field in fields] == schema.names:
        return A_HEADER
    for text, field in zip(fields, schema, strict=True):
        if not text and not field.nullable:
            return f"{field.name}: required, and empty"
        if text and not _fits(_as_json_value(text, field.dataType), field.dataType):
            return f"{field.name}: expected {field.dataType.simpleString()}, got {_shown(text)}"
    return _fallback(line)


def line_numbers(is_header: Callable[[str], bool] = lambda line: False) -> Callable[[Path, str], int | None]:
    """Return a function from a line to its number in its file; each call for a repeated line gives the next number.

    is_header: whether the first occurrence of a line is the file's header, so not bad. The function returns None if
    the driver cannot read the file.
    """
    found: dict[tuple[Path, str], Iterator[int]] = {}
    files: dict[Path, dict[str, list[int]]] = {}

    def next_number(path: Path, line: str) -> int | None:
        if path not in files:
            files.clear()  # because dead letters come file by file, one index at a time is enough
            files[path] = _index(path)
        numbers = found.setdefault((path, line), iter(files[path].get(line, [])[is_header(line) :]))
        return next(numbers, None)

    return next_number


def _index(path: Path) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = defaultdict(list)
    try:
        with path.open(encoding="utf-8", errors="replace", newline=None) as file:
            for number, line in enumerate(file, start=1):
                numbers[line.rstrip("\n")].append(number)
    except OSError:
        return {}
    return numbers


def _fits(value: object, expected: DataType) -> bool:
    bits = WHOLE_BITS.get(type(expected))
    if bits is not None:
        return type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1
    if isinstance(expected, DecimalType):
        return type(value) in (int, Decimal, str) and _fits_places(value, expected)
    if isinstance(expected, DoubleType | FloatType):
        largest = LARGEST_FLOAT if isinstance(expected, FloatType) else LARGEST_DOUBLE
        return type(value) is float or (type(value) in (int, Decimal) and not abs(value) > largest)  # type: ignore
    if isinstance(expected, BooleanType):
        return isinstance(value, bool)
    if isinstance(expected, TimestampType | TimestampNTZType):
        return isinstance(value, str) and _is_timestamp(value)
    if isinstance(expected, DateType):
        return isinstance(value, str) and _is_date(value)
    if isinstance(expected, StringType):
        return not isinstance(value, Decimal) and not (isinstance(value, str) and _has_half_a_pair(value))
    return True


def _fits_places(value: object, expected: DecimalType) -> bool:
    try:
        number = Decimal(str(value).strip()).as_tuple()
    except InvalidOperation:
        return False
    if not isinstance(number.exponent, int):
        return False
    digits = "".join(map(str, number.digits))
    significant = digits.rstrip("0")
    places = -number.exponent - (len(digits) - len(significant))
    return not significant or (
        places <= expected.scale and len(digits) + number.exponent <= expected.precision - expected.scale
    )


def _as_json_value(text: str, expected: DataType) -> object:
    try:
        if type(expected) in WHOLE_BITS:
            return int(text)
        if isinstance(expected, DoubleType | FloatType):
            # Spark reads `Inf` as infinity, and makes a number that is too large infinite, too.
            return Decimal(text) if re.search(r"\d", text) else float(text)
    except (ValueError, InvalidOperation):
        return text
    if isinstance(expected, BooleanType):
        return {"true": True, "false": False}.get(text.lower(), text)
    return text


def _fallback(line: str) -> str:
    # Spark replaces bytes that are not UTF-8 by this character.
    return "not UTF-8" if "\N{REPLACEMENT CHARACTER}" in line else "a value does not fit the schema"


def _is_timestamp(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return not re.search(r"\.\d{6}\d*[1-9]", text)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _has_half_a_pair(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _kind(value: object) -> str:
    return {list: "a list", str: "a text", bool: "a boolean", type(None): "null"}.get(type(value), "a number")


def _shown(value: object, limit: int = SHOWN_CHARACTERS) -> str:
    shown = str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= limit else f"{shown[:limit]}.."

"""What is wrong with a line that Spark could not read, and where in its file it stands.

Spark says neither. Bad lines are rare, so a second look in Python, with a better answer, is affordable.
"""

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructType,
    TimestampType,
)

WHOLE_BITS: dict[type[DataType], int] = {ShortType: 16, IntegerType: 32, LongType: 64}

A_HEADER = "a header, not an event"


def why_bad(line: str, schema: StructType) -> str:
    """Return the reason, naming the column and what was expected where it can be told."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at column {error.colno}"
    except RecursionError:
        return "not JSON that can be read: nested too deeply"
    if not isinstance(value, dict):
        return f"not a JSON object but {_kind(value)}"
    for field in schema:
        held = value.get(field.name)
        if held is None and not field.nullable:
            return f"{field.name}: required, and absent or null"
        if held is not None and not _fits(held, field.dataType):
            return f"{field.name}: expected {field.dataType.simpleString()}, got {_shown(held)}"
    return _fallback(line)


def why_bad_csv(line: str, schema: StructType, delimiter: str = ",") -> str:
    """Return the reason why a line of CSV is bad, naming the column and what was expected where it can be told."""
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
        if text and not _fits(_as_json_holds_it(text, field.dataType), field.dataType):
            return f"{field.name}: expected {field.dataType.simpleString()}, got {_shown(text)}"
    return _fallback(line)


def line_numbers(is_header: Callable[[str], bool] = lambda line: False) -> Callable[[Path, str], int | None]:
    """Return a function that gives the line numbers of a line in its file, one after the other where it repeats.

    is_header: whether a line is in its right place where it first stands. The function answers None where the driver
    cannot read the file.
    """
    found: dict[tuple[Path, str], Iterator[int]] = {}
    files: dict[Path, dict[str, list[int]]] = {}

    def next_number(path: Path, line: str) -> int | None:
        if path not in files:
            files.clear()  # letters come file by file; one index at a time is enough
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
    if isinstance(expected, DoubleType | FloatType):
        return type(value) in (int, float)
    if isinstance(expected, BooleanType):
        return isinstance(value, bool)
    if isinstance(expected, TimestampType):
        return isinstance(value, str) and _is_timestamp(value)
    return True


def _as_json_holds_it(text: str, expected: DataType) -> object:
    try:
        if type(expected) in WHOLE_BITS:
            return int(text)
        if isinstance(expected, DoubleType | FloatType):
            return float(text)
    except ValueError:
        return text
    if isinstance(expected, BooleanType):
        return {"true": True, "false": False}.get(text.lower(), text)
    return text


def _fallback(line: str) -> str:
    # Where Spark put the replacement character, what stood there was no text.
    return "not UTF-8" if "\N{REPLACEMENT CHARACTER}" in line else "a value does not fit the schema"


def _is_timestamp(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _kind(value: object) -> str:
    return {list: "a list", str: "a text", bool: "a boolean", type(None): "null"}.get(type(value), "a number")


def _shown(value: object, limit: int = 60) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= limit else f"{shown[:limit]}.."

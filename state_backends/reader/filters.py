"""Filters: conditions on key columns and measures that the entries of a page or an export must meet.

A condition applies to the version that a reader of the batch sees, with finished measures. A null meets only `is null`;
a NaN is the largest number and equals itself, as in PostgreSQL; text is compared by its bytes. SQL and Python evaluate
conditions alike; a property test compares them.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from operator import eq, ge, gt, le, lt, ne
from typing import Any, LiteralString, NamedTuple, Self

from psycopg import sql

from tidegauge.state_backends.committed import finished
from tidegauge.state_backends.errors import FilterError
from tidegauge.state_backends.reader.bounds import KeyRange, comparable
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable
from tidegauge.state_backends.spec.types import SqlType, shown, type_of

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
SQL_OF: Mapping[str, LiteralString] = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
IN, IS_NULL, IS_NOT_NULL = "in", "is null", "is not null"
OPERATORS = (*COMPARISONS, IN, IS_NULL, IS_NOT_NULL)

# Limits of one request.
MOST_FILTERS, MOST_VALUES = 20, 1_000

CONDITION = re.compile(
    r"\s*(?P<column>[^\W\d]\w*)\s*(?:\b(?P<null>is\s+(?P<not>not\s+)?null)\s*"
    r"|(?P<operator>!=|<=|>=|=|<|>|\bin\b)(?P<value>.*))",
    re.IGNORECASE | re.DOTALL,
)
INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?|NaN|[+-]?Infinity")

# PostgreSQL's limits of a numeric: digits before the point, and after it.
MOST_DIGITS, MOST_PLACES = 131_071, 16_383

EXPECTED = {
    str: "text; text that begins with one of = < > ! \" ' or a blank is written as a JSON string",
    bool: "true or false",
    int: "a whole number in its range",
    float: "a number in its range, NaN or Infinity",
    Decimal: "a number in its range, NaN or Infinity",
}
TIMES = "a value such as 2013-01-01T05:00:00Z, with an offset if it is a time; in a URL a + is written %2B"


class Filter(NamedTuple):
    """A condition on one column: `Filter("flights", ">", 1000)`.

    operator: one of OPERATORS. value: of the column's type, or its text as answers show it; a list of values for `in`;
    None for `is null` and `is not null`.
    """

    column: str
    operator: str
    value: Any = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `flights>1000`, `carrier in ["AA", "UA"]`, `delay is null`. Raises FilterError.

        Blanks around a value are ignored. A value that begins with a double quote is a JSON string, which is the only
        way to write text that begins with a blank, a quotation mark or one of = < > !.
        """
        found = CONDITION.fullmatch(text)
        if found is None:
            raise FilterError(
                f"where: {shown(text)} is not a condition such as flights>1000; the operators are "
                f"{', '.join(OPERATORS)}"
            )
        column = found["column"]
        if found["null"]:
            return cls(column, IS_NOT_NULL if found["not"] else IS_NULL)
        operator, value = found["operator"].lower(), found["value"].strip()
        if operator == IN:
            return cls(column, operator, _values(column, value))
        return cls(column, operator, _value(column, operator, value))


Where = Sequence[Filter]


def check_where(spec: StateSpec, where: Where) -> list[Filter]:
    """Return the filters with values of the declared types. Raises FilterError, naming column, type and operators."""
    if len(where) > MOST_FILTERS:
        raise FilterError(f"where: {len(where)} conditions are over the limit of {MOST_FILTERS}")
    return [_checked(spec, each) for each in where]


def narrowed(spec: StateSpec, bounds: KeyRange, where: Where) -> KeyRange:
    """Return the bounds, narrowed by conditions on the first key columns. All conditions still have to be checked."""
    prefix, start, stop = bounds.prefix, bounds.start, bounds.stop
    for column, sql_type in list(spec.key.items())[len(prefix) :]:
        # No bounds from doubles, because two of them can be equal without being the same bytes.
        conditions = (
            {} if sql_type == "double precision" else {each.operator: each for each in where if each.column == column}
        )
        if "=" not in conditions:
            break
        prefix = (*prefix, conditions["="].value)
    else:
        return replace(bounds, prefix=prefix)
    low = conditions.get(">=") or conditions.get(">")
    if low and not start:
        start = (*prefix, low.value)
    if "<" in conditions and not stop:
        stop = (*prefix, conditions["<"].value)
    return replace(bounds, prefix=prefix, start=start, stop=stop)


def meets(spec: StateSpec, where: Where, key: Key, value: Any) -> bool:
    """Return whether a stored row meets all conditions; the same rules as `where_sql`."""
    parts: dict[str, Any] = dict(zip(spec.key, key, strict=True))
    if any(each.column not in parts for each in where):
        parts |= spec.finish(value)
    return all(_meets(each, parts[each.column]) for each in where)


def where_sql(table: StateTable, where: Where, row: str) -> sql.Composed:
    """Return the condition on `row`, which has key and stored columns; its parameters are `where_parameters`."""
    conditions = [_condition(table.spec, each, row) for each in where]
    return sql.SQL("({})").format(sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("true"))


def where_parameters(where: Where) -> list[Any]:
    return [each.value for each in where if each.operator not in (IS_NULL, IS_NOT_NULL)]


def read_value(sql_type: SqlType, value: Any, name: str) -> Any:
    """Return a value of a type from itself or from its text. Raises ValueError or ArithmeticError."""
    return sql_type.key_part(_read(sql_type, value), name)


def rank(value: Any) -> tuple[bool, Any]:
    """Return a value that sorts and compares as in PostgreSQL: a NaN is the largest number and equals any other NaN."""
    return (True, 0) if isinstance(value, float | Decimal) and math.isnan(value) else (False, value)


def _meets(condition: Filter, value: Any) -> bool:
    if condition.operator == IS_NULL:
        return value is None
    if value is None:
        return False
    if condition.operator == IS_NOT_NULL:
        return True
    if condition.operator == IN:
        return any(rank(value) == rank(each) for each in condition.value)
    return COMPARISONS[condition.operator](rank(value), rank(condition.value))


def _condition(spec: StateSpec, condition: Filter, row: str) -> sql.Composed:
    name, sql_type = condition.column, type_of(comparable(spec)[condition.column])
    column = sql.Identifier(row, name) if name in spec.key else finished(name, spec.measures[name], row)
    if condition.operator == IS_NULL:
        return sql.SQL("({}) IS NULL").format(column)
    if condition.operator == IS_NOT_NULL:
        return sql.SQL("({}) IS NOT NULL").format(column)
    # Cast to a plain numeric, because a numeric with digits would round the value.
    declared = sql.SQL("numeric" if sql_type.python is Decimal else sql_type.name)
    collation = sql.SQL(' COLLATE "C"' if sql_type.python is str else "")
    if condition.operator == IN:
        return sql.SQL("({}){} = ANY(%s::{}[])").format(column, collation, declared)
    operator = sql.SQL(SQL_OF[condition.operator])
    return sql.SQL("({}){} {} %s::{}").format(column, collation, operator, declared)


def _checked(spec: StateSpec, condition: Filter) -> Filter:
    column, operator, value = condition
    if operator not in OPERATORS:
        raise FilterError(f"where: {operator!r} is not an operator; those are {', '.join(OPERATORS)}")
    types = comparable(spec)
    if column not in types:
        raise _not_comparable(spec, column)
    if operator in (IS_NULL, IS_NOT_NULL):
        return Filter(column, operator)
    if operator != IN:
        return Filter(column, operator, _typed(spec, condition, value))
    if not isinstance(value, list | tuple) or len(value) > MOST_VALUES:
        raise FilterError(f"state {spec.name!r}: where: `in` after {column} takes a list of up to {MOST_VALUES} values")
    return Filter(column, operator, [_typed(spec, condition, each) for each in value])


def _not_comparable(spec: StateSpec, column: str) -> FilterError:
    known = ", ".join(comparable(spec)) or "none"
    if column in spec.measures:
        measure = spec.measures[column]
        return FilterError(
            f"state {spec.name!r}: where: measure {column!r} is a {measure.name} of type {measure.result_type}, whose "
            f"values cannot be compared; columns that can: {known}"
        )
    return FilterError(f"state {spec.name!r}: where: no column {column!r} that can be compared; there are {known}")


def _typed(spec: StateSpec, condition: Filter, value: Any) -> Any:
    sql_type = type_of(comparable(spec)[condition.column])
    try:
        return read_value(sql_type, value, condition.column)
    except (ValueError, ArithmeticError, TypeError):
        raise FilterError(
            f"state {spec.name!r}: where: {condition.column} is {sql_type.name} and takes "
            f"{EXPECTED.get(sql_type.python, TIMES)}, got {shown(value)} after {condition.operator!r}; "
            f"the operators are {', '.join(OPERATORS)}"
        ) from None


def _read(sql_type: SqlType, value: Any) -> Any:
    """Return a value of the type from its text. Other values are returned unchecked. Raises ValueError."""
    if isinstance(value, bool) or sql_type.python is str:
        return value
    if sql_type.python is int:
        return int(_matched(INTEGER, value)) if isinstance(value, str) else value
    if sql_type.python is float:
        return _double(value)
    if sql_type.python is Decimal:
        return _decimal(value)
    return sql_type.from_text(value) if isinstance(value, str) else value


def _matched(form: re.Pattern[str], text: str) -> str:
    if form.fullmatch(text) is None:
        raise ValueError(text)
    return text


def _double(value: Any) -> float:
    if isinstance(value, str):
        value = Decimal(_matched(NUMBER, value))
    number = float(value)
    is_exactly_so = isinstance(value, float) or not Decimal(value).is_finite()
    if not is_exactly_so and (math.isinf(number) or (number == 0) != (value == 0)):
        raise ValueError(value)  # too large or too small for a double
    return number


def _decimal(value: Any) -> Decimal:
    if isinstance(value, str):
        _matched(NUMBER, value)
    number = Decimal(repr(value) if isinstance(value, float) else value)
    if number.is_finite() and (number.adjusted() > MOST_DIGITS or int(number.as_tuple().exponent) < -MOST_PLACES):
        raise InvalidOperation(value)
    return number


def _values(column: str, text: str) -> list[Any]:
    values = _json(text)
    if not isinstance(values, list):
        raise FilterError(f'where: `in` after {column} takes a JSON list such as ["AA", "UA"], got {shown(text)}')
    return values


def _value(column: str, operator: str, text: str) -> str:
    if text[:1] not in tuple("=<>!'\""):
        return text
    value = _json(text) if text.startswith('"') else None
    if not isinstance(value, str):
        raise FilterError(
            f"where: {shown(text)} after {column}{operator} is neither a plain value nor a JSON string; the operators "
            f'are {", ".join(OPERATORS)}, and text that begins with one of them is written in double quotes: "=a"'
        )
    return value


def _json(text: str) -> Any:
    """Return the value of JSON text, with numbers in full precision; None for text that is not JSON."""
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError, ArithmeticError):
        return None

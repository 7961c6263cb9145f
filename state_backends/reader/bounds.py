"""Bounds: the checked arguments of pages and exports, as values of the declared types. Every reader uses them.

Numbers in the position after which a page continues may be text, because the position comes from JSON, which has no NaN
and rounds long numbers.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from tidegauge.state_backends.errors import KeyShapeError, SpecError
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.types import SqlType, type_of

# PostgreSQL's limit of digits before the decimal point of a numeric.
NUMERIC_DIGITS = 131_071

# The most keys that a page reads if no index leads to those that it shows: half a second to a second in Redis.
MOST_SCANNED = 50_000


@dataclass(frozen=True)
class KeyRange:
    """Keys under `prefix`, from `start` (inclusive) to `stop` (exclusive). Each holds the first parts of a key.

    An empty one sets no bound. search: keep keys with a part that begins with this text, whatever its case.
    """

    prefix: Key = ()
    start: Key = ()
    stop: Key = ()
    search: str = ""


class Place(NamedTuple):
    """The last entry of a page: its key, and its value in the column that orders the page, if one does."""

    key: Key
    value: Any = None


def check_range(spec: StateSpec, prefix: Any, start: Any, stop: Any, search: str = "") -> KeyRange:
    """Return the bounds with typed parts. Raises KeyShapeError, naming the wrong bound."""
    under = spec.check_prefix(prefix or ())
    return KeyRange(under, spec.check_prefix(start or (), "start"), spec.check_prefix(stop or (), "stop"), search)


def check_measures(spec: StateSpec, measures: Iterable[str] | None) -> list[str]:
    """Return the requested measures, or all for None. Raises SpecError, naming an unknown one."""
    known = list(spec.measures) or ["value"]
    if measures is None:
        return known
    asked = list(measures)
    for measure in asked:
        if measure not in known:
            raise SpecError(f"state {spec.name!r}: no measure {measure!r}; there are {', '.join(known)}")
    return asked


def check_folds(spec: StateSpec) -> None:
    """Raise SpecError for a state of JSON values, which cannot be folded."""
    if not spec.measures:
        raise SpecError(
            f"state {spec.name!r}: holds JSON values, which cannot be folded; look its keys up, or give it measures"
        )


def orderable(spec: StateSpec) -> dict[str, str]:
    """Return the measures whose values have an order, name to SQL type."""
    types = {name: measure.result_type for name, measure in spec.measures.items()}
    return {name: sql_type for name, sql_type in types.items() if type_of(sql_type).is_ordered}


def comparable(spec: StateSpec) -> dict[str, str]:
    """Return the columns that entries can be filtered and ordered by, name to SQL type."""
    return {**spec.key, **orderable(spec)}


def check_order(spec: StateSpec, column: str | None) -> None:
    """Raise SpecError for an unknown column, or a measure whose values have no order."""
    if column is None or column in spec.key:
        return
    check_measures(spec, [column])
    if column not in orderable(spec):
        known = ", ".join(orderable(spec)) or "none"
        raise SpecError(f"state {spec.name!r}: measure {column!r} has no order; those that have one: {known}")


def check_after(spec: StateSpec, order_by: str | None, after: Any) -> Place | None:
    """Return the last entry of the previous page, from its key, or from `[value, key]` on pages ordered by a column.

    Raises KeyShapeError if it does not fit the key or the column.
    """
    if after is None:
        return None
    if order_by is None:
        return Place(_key(spec, after))
    if not isinstance(after, list | tuple) or len(after) != 2:
        raise KeyShapeError(f"after: expected the value of {order_by!r} and a key, got {after!r}")
    return Place(_key(spec, after[1]), _value(comparable(spec)[order_by], after[0]))


def _key(spec: StateSpec, key: Any) -> Key:
    if isinstance(key, list | tuple):
        key = [_as_float(part, kind) for part, kind in zip(key, [*spec.key.values(), *[""] * len(key)], strict=False)]
    try:
        return spec.check_key(key)
    except KeyShapeError as error:
        raise KeyShapeError(f"after: {error}") from None


def _as_float(part: Any, sql_type: str) -> Any:
    if sql_type != "double precision" or not isinstance(part, str):
        return part
    try:
        return float(part)
    except ValueError:
        return part


def _value(sql_type: str, value: Any) -> Any:
    if value is None:
        return None
    try:
        return _read(type_of(sql_type), value)
    except (ValueError, ArithmeticError, TypeError, AttributeError):
        raise KeyShapeError(f"after: expected a value of type {sql_type}, got {value!r}") from None


def _read(sql_type: SqlType, value: Any) -> Any:
    """Return a value from itself or from the text that answers show for it. Raises ValueError."""
    if sql_type.python in STRICT:
        return STRICT[sql_type.python](value)
    return value if isinstance(value, sql_type.python) else sql_type.from_text(value)


def _integer(value: Any) -> int:
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(value)
    return number


def _decimal(value: Any) -> Decimal:
    number = Decimal(str(value))
    if number.is_finite() and number and abs(number.adjusted()) > NUMERIC_DIGITS:
        raise ValueError(value)
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(value)
    value.encode()  # fails for half of a surrogate pair, which PostgreSQL cannot store
    return value


def _boolean(value: Any) -> bool:
    if value not in (True, False, "true", "false"):
        raise ValueError(value)
    return value in (True, "true")


def _timestamp(value: Any) -> datetime:
    at = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError(value)
    return at


# Python types with a stricter check than SqlType.from_text.
STRICT: dict[type, Callable[[Any], Any]] = {
    int: _integer,
    float: float,
    Decimal: _decimal,
    str: _text,
    bool: _boolean,
    datetime: _timestamp,
}

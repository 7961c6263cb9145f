"""Values in Python as PostgreSQL and Spark see them: which is the smaller one, and how JSON shows it."""

import math
from typing import Any


def order(value: Any) -> tuple[bool, Any]:
    """Return a sort key: NaN, which Python cannot order, is the largest number; text goes by code point."""
    return (value != value, 0 if value != value else value)


def least(*values: Any) -> Any:
    """Return the smallest value, nulls left out: SQL's function of that name."""
    return min((value for value in values if value is not None), key=order, default=None)


def greatest(*values: Any) -> Any:
    return max((value for value in values if value is not None), key=order, default=None)


def as_json(value: Any) -> Any:
    """Return the value as PostgreSQL puts it into JSON, which has no number that is infinite or NaN: as text."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"

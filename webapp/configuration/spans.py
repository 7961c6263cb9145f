"""Lengths of time as people write them: 30 days, 10 minutes."""

import re
from datetime import timedelta
from typing import Any

from tidegauge.webapp.catalog.retention import UNITS
from tidegauge.webapp.configuration.fields import Type

WRITTEN = re.compile(rf"([1-9][0-9]{{0,8}}) ({'|'.join(UNITS)})s?")
UNLIMITED = "unlimited"


def parts_of(text: str) -> tuple[int, str]:
    """Return the number and the unit, in singular, of a length of time. Raises TypeError."""
    found = WRITTEN.fullmatch(text)
    if found is None:
        raise TypeError
    return int(found[1]), found[2]


def _span(value: Any) -> str:
    """Return a length of time, a timedelta or its text, in the largest unit of which it is a whole number."""
    if isinstance(value, timedelta):
        seconds = max(1, round(value.total_seconds()))
    elif isinstance(value, str):
        count, unit = parts_of(value)
        seconds = count * UNITS[unit]
    else:
        raise TypeError
    count, unit = next((seconds // size, unit) for unit, size in UNITS.items() if seconds % size == 0)
    return f"{count} {unit}{'' if count == 1 else 's'}"


SPAN = Type("a length of time such as 10 minutes, in one unit from seconds to days", _span)
RETENTION = Type(f"{SPAN.says}, or {UNLIMITED}", lambda value: value if value == UNLIMITED else _span(value))

"""Writes a retention as text, and has the units in which people enter one."""

from datetime import timedelta

UNITS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}


def time_to_live(ttl: timedelta | None) -> str:
    """Return a retention as text: 400 days, 1 day 12 hours, unlimited."""
    if ttl is None:
        return "unlimited"
    left, words = ttl.total_seconds(), []
    for unit, seconds in UNITS.items():
        count, left = divmod(left, seconds)
        if count:
            words.append(f"{count:,.0f} {unit}{'' if count == 1 else 's'}")
    return " ".join(words) or f"{left:g} seconds"

"""Time spans as people type them in a command's options: 30d, 12h, 1d12h."""

import re
from datetime import timedelta

from django.core.management.base import CommandError

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def parse_timespan(text: str, option: str, words: str = "") -> timedelta:
    """Return the span of time in `text`. option, words: for the error; `words` lists other allowed values.

    Raises CommandError with returncode 2 for an invalid one.
    """
    parts = re.findall(r"(\d+)([smhdw])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise CommandError(f"{option} {text!r} is not a time span; write 30d, 12h, 1d12h{words}", returncode=2)
    try:
        return timedelta(seconds=sum(int(number) * SECONDS[unit] for number, unit in parts))
    except OverflowError:
        raise CommandError(f"{option} {text!r} is too long{words}", returncode=2) from None

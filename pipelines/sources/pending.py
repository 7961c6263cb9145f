"""Input that waits at a source: how much of it, and since when."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Pending:
    """Input that no committed batch has read: `count` of a `unit`, such as 3 files.

    oldest: when the oldest of it arrived, ISO, or None.
    alarm: a problem that an operator should solve before it gets worse, or None.
    """

    count: int
    unit: str
    oldest: str | None
    alarm: str | None = None


def combined(parts: Iterable[Pending | None]) -> Pending | None:
    """Add up what several sources have pending, with the alarms of all; None if none of them knows."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    oldest = min((part.oldest for part in known if part.oldest), default=None)
    units = " and ".join(sorted({part.unit for part in known}))
    alarm = "; ".join(part.alarm for part in known if part.alarm) or None
    return Pending(sum(part.count for part in known), units, oldest, alarm)


def as_progress(pending: Pending | None) -> dict[str, Any]:
    if pending is None:
        return {}
    return {"pending": {name: value for name, value in vars(pending).items() if name != "alarm" or value is not None}}

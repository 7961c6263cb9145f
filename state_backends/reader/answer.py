"""Snapshot: an answer and the batch it belongs to, whichever reader gave it."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any


@dataclass(frozen=True)
class Snapshot:
    """An answer and the batch it belongs to.

    txid: the committed batch, 0 before the first, or the earlier one that was asked for. attempt: which attempt at it
    was committed. as_of: its batch time.
    results: a JSON array, as bytes ready to send.
    complete: False where a bounded scan has looked at some of the state alone, or a history has older versions that
    are out of reach.
    until: when the first of what was found expires, and the same question has another answer at the same batch; None
    where nothing does, or where ttl was reckoned at a batch in the past.
    after: of a page, what `page` takes as `after` to go on behind it; None where nothing is behind it. JSON holds it
    without loss.
    """

    txid: int
    attempt: int
    as_of: datetime | None
    results: bytes
    complete: bool = True
    until: datetime | None = None
    after: list[Any] | None = None

    def parsed(self) -> list[dict[str, Any]]:
        return json.loads(self.results)  # type: ignore[no-any-return]


def expiry(oldest: datetime | None, ttl: timedelta | None) -> datetime | None:
    """Return when a version expires that was written at `oldest`; None: never, or not before the year 9999 is over."""
    if oldest is None or ttl is None:
        return None
    try:
        # In UTC, for a day is 24 hours: in other zones Python adds it to the clock on the wall.
        return oldest.astimezone(UTC) + ttl
    except OverflowError:
        return None

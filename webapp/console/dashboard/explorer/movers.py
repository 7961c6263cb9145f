"""The keys of a state that have moved most: their numbers then and now, for the top of the page of the state.

The changelog has the earlier numbers, so only a state with one has movers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from tidegauge.state_backends import Snapshot
from tidegauge.state_backends.errors import OutOfReachError, RangeTooLargeError
from tidegauge.state_backends.reader.filters import Filter
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.state_backends.spec.row import Key
from tidegauge.webapp.catalog.batches import batches_at
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.console.dashboard.entries import is_number
from tidegauge.webapp.console.dashboard.explorer.then_and_now import difference, share

# The longest one that the history covers is shown.
SPANS = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=5))
SHOWN = 10
# Read twice at each refresh of the page.
MOST_KEYS = 10_000
# How many keys are read in the time that one row of a table takes; see `page` in views/live.py.
KEYS_PER_ROW = 100

Numbers = dict[tuple[Any, ...], float]


@dataclass(frozen=True)
class Mover:
    """now, then: None where the key is not there."""

    key: list[Any]
    now: float | None
    then: float | None

    @property
    def gain(self) -> float:
        return (self.now or 0) - (self.then or 0)

    @property
    def difference(self) -> str:
        return difference(self.now or 0, self.then or 0)

    @property
    def share(self) -> str:
        return share(self.now, self.then)


@dataclass(frozen=True)
class Movers:
    """rows: the largest differences first. span: how long ago `txid` and `at` are. keys: how many were read."""

    rows: Sequence[Mover]
    span: timedelta
    txid: int
    at: datetime | None
    keys: int


def movers(
    reader: Reader, pipeline: PipelineStatus, measure: str, prefix: Key, where: Sequence[Filter]
) -> Movers | None:
    """Return the keys whose numbers differ most; None if there are too many keys, or too little history.

    Raises what `Reader.groups` raises otherwise.
    """
    now = timezone.now()
    for span, txid in zip(SPANS, batches_at(pipeline, [now - span for span in SPANS]), strict=True):
        if txid is None:
            continue
        try:
            then = _groups(reader, measure, prefix, where, txid)
            return _movers(measure, _groups(reader, measure, prefix, where, None), then, span)
        except OutOfReachError:
            continue
        except RangeTooLargeError:
            return None
    return None


def _groups(reader: Reader, measure: str, prefix: Key, where: Sequence[Filter], at_txid: int | None) -> Snapshot:
    by = tuple(reader.spec.key)
    return reader.groups(
        by, prefix=prefix, where=where, limit=MOST_KEYS, most_folded=MOST_KEYS, measures=[measure], at_txid=at_txid
    )


def _movers(measure: str, now: Snapshot, then: Snapshot, span: timedelta) -> Movers:
    later, earlier = _numbers(now, measure), _numbers(then, measure)
    # In key order, which those keep that moved alike.
    rows = [Mover(list(key), later.get(key), earlier.get(key)) for key in dict.fromkeys([*later, *earlier])]
    moved = sorted((row for row in rows if row.gain), key=lambda row: -abs(row.gain))
    return Movers(moved[:SHOWN], span, then.txid, then.batch_time, len(later) + len(earlier))


def _numbers(snapshot: Snapshot, measure: str) -> Numbers:
    groups = ((tuple(each["key"]), each["value"][measure]) for each in snapshot.parsed())
    return {key: number for key, number in groups if is_number(number)}

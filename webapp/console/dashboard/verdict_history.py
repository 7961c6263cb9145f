"""The verdicts of a pipeline over the range that its page shows, as SVG coordinates, and their last changes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.console.dashboard.time_charts import ShownRange
from tidegauge.webapp.notify.alerts.history import (
    LONGEST_PAUSE,
    VerdictChange,
    changes,
    periods,
    recorded_name,
    tone_of,
)
from tidegauge.webapp.notify.alerts.models import VerdictPeriod

WIDTH, HEIGHT = 1000, 24
# Worse verdicts are higher, so that they can be told apart without colour.
HEIGHTS = {"bad": 24, "watch": 18, "good": 10, "calm": 6}
LEAST_WIDTH = 3
SHOWN_CHANGES = 8

UNKNOWN = "not checked"


@dataclass(frozen=True)
class Bar:
    """x, y, width, height: in units of the chart."""

    verdict: str
    since: datetime
    until: datetime
    x: float
    width: float

    @property
    def tone(self) -> str:
        return tone_of(self.verdict)

    @property
    def length(self) -> timedelta:
        return self.until - self.since

    @property
    def height(self) -> int:
        return HEIGHTS[self.tone]

    @property
    def y(self) -> int:
        return HEIGHT - self.height


@dataclass(frozen=True)
class VerdictHistory:
    """bars: oldest first, with gaps where nothing was checked. lengths: of each verdict in the range, longest first."""

    since: datetime
    until: datetime
    bars: Sequence[Bar]
    lengths: Mapping[str, timedelta]
    changes: Sequence[VerdictChange]

    @property
    def length(self) -> timedelta:
        return self.until - self.since


def verdict_history(pipeline: PipelineStatus, shown: ShownRange) -> VerdictHistory:
    now = timezone.now()
    until = shown.until or now
    since = shown.since or until - timedelta(seconds=shown.seconds)
    found = _until_now(pipeline, periods(pipeline.name, since, until), min(now, until))
    bars = [_bar(period, since, until) for period in found]
    return VerdictHistory(since, until, bars, _lengths(bars, since, until), changes(pipeline.name, SHOWN_CHANGES))


def bars_of(pipeline: PipelineStatus, found: list[VerdictPeriod], length: timedelta) -> list[Bar]:
    """Return the bars of the last time of this length. found: the recorded periods that overlap it, oldest first."""
    now = timezone.now()
    return [_bar(period, now - length, now) for period in _until_now(pipeline, list(found), now)]


def _until_now(pipeline: PipelineStatus, found: list[VerdictPeriod], now: datetime) -> list[VerdictPeriod]:
    """Extend the history from the last check until now, with the same verdict, or the present one if it differs."""
    if not found or not found[-1].is_current or now - found[-1].until > LONGEST_PAUSE:
        return found
    last, name = found[-1], recorded_name(pipeline)
    if last.verdict == name:
        last.until = now
        return found
    return [*found, VerdictPeriod(pipeline=pipeline.name, verdict=name, began_at=last.until, until=now)]


def _bar(period: VerdictPeriod, since: datetime, until: datetime) -> Bar:
    begin, end = max(period.began_at, since), min(period.until, until)
    whole = (until - since) / WIDTH
    x, width = (begin - since) / whole, max(LEAST_WIDTH, (end - begin) / whole)
    return Bar(period.verdict, begin, end, round(min(x, WIDTH - width), 1), round(width, 1))


def _lengths(bars: Sequence[Bar], since: datetime, until: datetime) -> dict[str, timedelta]:
    lengths: dict[str, timedelta] = defaultdict(timedelta)
    for bar in bars:
        lengths[bar.verdict] += max(timedelta(), bar.until - bar.since)
    unknown = until - since - sum(lengths.values(), timedelta())
    found = dict(sorted(lengths.items(), key=lambda each: -each[1]))
    return found | ({UNKNOWN: unknown} if unknown > LONGEST_PAUSE else {})

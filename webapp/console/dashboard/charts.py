"""SVG coordinates of charts without axes: the bars and sparklines of tables. For a time axis see time_charts.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidegauge.webapp.catalog.batches import BatchRate, BatchSummary

WIDTH, HEIGHT = 1000, 100
SPARKLINE_WIDTH, SPARKLINE_HEIGHT = 240, 40

# Room for the stroke, so that it is not cut off at the highest and the lowest point.
MARGIN = 3
SPARKLINE_MARGIN = 2
SPARKLINE_OUTSIDE = 9


@dataclass(frozen=True)
class ChartBar:
    """A bar, in units of the chart."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class BarChart:
    """highest: the number at the top of the chart."""

    bars: list[ChartBar]
    highest: float


@dataclass(frozen=True)
class Sparkline:
    """Rows per second of each batch, at the time of its commit. outline: points for SVG, oldest batch first.

    The outline is closed outside of the drawing, so that only its upper edge shows. span: from the first commit to the
    last.
    """

    outline: str
    lowest: float
    highest: float
    batches: int
    span: timedelta


def bar_chart(numbers: Sequence[float]) -> BarChart | None:
    """Draw numbers from left to right; None for fewer than two."""
    if len(numbers) < 2:
        return None
    highest = max(numbers) or 1.0
    slot = WIDTH / len(numbers)
    bars = [
        ChartBar(
            x=round(index * slot + 0.1 * slot, 2),
            y=round(HEIGHT - _bar_height(number, highest), 2),
            width=round(0.8 * slot, 2),
            height=round(_bar_height(number, highest), 2),
        )
        for index, number in enumerate(numbers)
    ]
    return BarChart(bars, highest)


def sparkline(batches: Sequence[BatchSummary | BatchRate]) -> Sparkline | None:
    """Draw the committed batches of `batches`, which come newest first; None for fewer than two."""
    rates = [(batch.committed_at, batch.rows_per_second) for batch in reversed(batches) if batch.committed_at]
    if len(rates) < 2:
        return None
    (since, _), (until, _) = rates[0], rates[-1]
    lowest, highest = min(rate for _, rate in rates), max(rate for _, rate in rates)
    height = SPARKLINE_HEIGHT - 2 * SPARKLINE_MARGIN
    points = [
        (
            round(_across(at, since, until) * SPARKLINE_WIDTH / WIDTH, 1),
            round(SPARKLINE_HEIGHT - SPARKLINE_MARGIN - rate / (highest or 1) * height, 1),
        )
        for at, rate in rates
    ]
    left, right, below = -SPARKLINE_OUTSIDE, SPARKLINE_WIDTH + SPARKLINE_OUTSIDE, SPARKLINE_HEIGHT + SPARKLINE_OUTSIDE
    points = [(left, below), (left, points[0][1]), *points, (right, points[-1][1]), (right, below)]
    outline = " ".join(f"{x:g},{y:g}" for x, y in points)
    return Sparkline(outline, lowest, highest, len(rates), until - since)


def _bar_height(number: float, highest: float) -> float:
    # At least 1, so that a number close to 0 stays visible.
    return max(1.0, number / highest * (HEIGHT - MARGIN))


def _across(at: datetime, since: datetime, until: datetime) -> float:
    whole = (until - since).total_seconds()
    return round(WIDTH * (at - since).total_seconds() / whole, 1) if whole else WIDTH

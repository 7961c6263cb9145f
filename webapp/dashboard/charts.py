"""Charts as coordinates for SVG: durations of a page of batches, and sparklines. For a time axis see time_charts.py.

The SVG is stretched to the width of its page, which would distort text: templates write the axes in HTML.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from webapp.states.batches import BatchRate, BatchSummary

WIDTH, HEIGHT = 1000, 100
SPARKLINE_WIDTH, SPARKLINE_HEIGHT = 240, 40

# Room for the stroke at the highest and the lowest point.
MARGIN = 3
SPARKLINE_MARGIN = 2
SPARKLINE_OUTSIDE = 9


@dataclass(frozen=True)
class ChartBar:
    """x, y, width, height: in units of the chart. txid: the batch shown. tone: `watch` to mark it."""

    x: float
    y: float
    width: float
    height: float
    txid: int
    number: float
    tone: str = ""


@dataclass(frozen=True)
class BarChart:
    """bars: oldest first. highest: the number at the top of the chart."""

    bars: list[ChartBar]
    highest: float

    @property
    def is_marked(self) -> bool:
        return any(bar.tone for bar in self.bars)

    @property
    def first_txid(self) -> int:
        return self.bars[0].txid

    @property
    def last_txid(self) -> int:
        return self.bars[-1].txid


@dataclass(frozen=True)
class Sparkline:
    """Rows per second of each batch, at the time of its commit. outline: points for SVG, oldest batch first.

    It is closed outside of the drawing, so that of its edge only the line shows. span: between the first and the last
    of these times.
    """

    outline: str
    lowest: float
    highest: float
    batches: int
    span: timedelta


def bar_chart(numbers: Sequence[tuple[int, float, str]]) -> BarChart | None:
    """Draw (txid, number, tone), oldest first; None for fewer than two."""
    if len(numbers) < 2:
        return None
    highest = max(number for _, number, _ in numbers) or 1.0
    slot = WIDTH / len(numbers)
    bars = [
        ChartBar(
            x=round(index * slot + 0.1 * slot, 2),
            y=round(HEIGHT - _bar_height(number, highest), 2),
            width=round(0.8 * slot, 2),
            height=round(_bar_height(number, highest), 2),
            txid=txid,
            number=number,
            tone=tone,
        )
        for index, (txid, number, tone) in enumerate(numbers)
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
    # A batch that took almost no time stays visible.
    return max(1.0, number / highest * (HEIGHT - MARGIN))


def _across(at: datetime, since: datetime, until: datetime) -> float:
    whole = (until - since).total_seconds()
    return round(WIDTH * (at - since).total_seconds() / whole, 1) if whole else WIDTH

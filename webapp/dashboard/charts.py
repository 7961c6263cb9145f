"""Charts as coordinates for SVG: batch durations, the versions of a value over time, and sparklines.

The SVG is stretched to the width of its page, which would distort text and circles: templates write the axes in HTML,
and dots are zero-length strokes, whose width does not scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from webapp.states.batches import BatchSummary

WIDTH, HEIGHT = 1000, 100
SPARKLINE_WIDTH, SPARKLINE_HEIGHT = 240, 40

# Room for the stroke at the highest and the lowest point.
MARGIN = 3
SPARKLINE_MARGIN = 2


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
class StepChart:
    """A value over time. lines: one path per stretch without a gap. dots: one path with a point per change.

    lowest, highest: the numbers at the bottom and at the top. since, until: the ends of the time axis.
    """

    lines: list[str]
    dots: str
    lowest: float
    highest: float
    since: datetime
    until: datetime
    points: int


@dataclass(frozen=True)
class Sparkline:
    """Rows per second of each batch, at the time of its commit. line, area: points for SVG, oldest batch first.

    span: between the first and the last of these times.
    """

    line: str
    area: str
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


def step_chart(versions: Sequence[tuple[datetime, float | None]]) -> StepChart | None:
    """Draw a number that holds until its next version, oldest first; None is a gap.

    Returns None for fewer than two numbers.
    """
    numbers = [number for _, number in versions if number is not None]
    if len(numbers) < 2:
        return None
    since, until = versions[0][0], versions[-1][0]
    lowest, highest = min(numbers), max(numbers)
    placed = [
        (_across(at, since, until), None if number is None else _up(number, lowest, highest)) for at, number in versions
    ]
    dots = " ".join(f"M{x} {y}h0" for x, y in placed if y is not None)
    return StepChart(_stretches(placed), dots, lowest, highest, since, until, len(numbers))


def sparkline(batches: Sequence[BatchSummary]) -> Sparkline | None:
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
    line = " ".join(f"{x},{y}" for x, y in points)
    area = f"{points[0][0]},{SPARKLINE_HEIGHT} {line} {SPARKLINE_WIDTH},{SPARKLINE_HEIGHT}"
    return Sparkline(line, area, lowest, highest, len(rates), until - since)


def _bar_height(number: float, highest: float) -> float:
    # A batch that took almost no time stays visible.
    return max(1.0, number / highest * (HEIGHT - MARGIN))


def _across(at: datetime, since: datetime, until: datetime) -> float:
    whole = (until - since).total_seconds()
    return round(WIDTH * (at - since).total_seconds() / whole, 1) if whole else WIDTH


def _up(number: float, lowest: float, highest: float) -> float:
    share = (number - lowest) / (highest - lowest) if highest > lowest else 0.5
    return round(HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN), 1)


def _stretches(placed: Sequence[tuple[float, float | None]]) -> list[str]:
    lines, line = [], ""
    for x, y in placed:
        if y is None:
            lines.append(f"{line}H{x}" if line else "")
            line = ""
        else:
            line = f"{line}H{x}V{y}" if line else f"M{x} {y}"
    return [path for path in (*lines, line) if "H" in path]

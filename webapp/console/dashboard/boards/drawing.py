"""A chart over time as SVG, for pages that show many small ones and have to work without JavaScript."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidegauge.webapp.console.dashboard.time_charts import Chart

WIDTH, HEIGHT = 600, 150


@dataclass(frozen=True)
class Line:
    """place: of its colour, from 1. path: through what is complete. open_path: through the step that is still counted.

    latest: the newest number; None if there is none.
    """

    place: int
    label: str
    path: str
    open_path: str
    latest: float | None


@dataclass(frozen=True)
class Drawing:
    """title: the measure. lowest, highest: the ends of the axis of numbers. since, until: those of the axis of time."""

    title: str
    lines: Sequence[Line]
    lowest: float
    highest: float
    since: datetime
    until: datetime

    width, height = WIDTH, HEIGHT

    @property
    def has_open_step(self) -> bool:
        return any(line.open_path for line in self.lines)


def drawing(chart: Chart, answer: Mapping[str, Any]) -> Drawing | None:
    """Return the chart of series at common times, as of `series_by_time`; None without any number."""
    series = [(label, answer["series"].get(name, [])) for name, label in chart.lines]
    numbers = [number for _, line in series for number in line if number is not None]
    if not numbers:
        return None
    since, until = answer["from"], answer["to"]
    ends = [*numbers, 0] if chart.from_zero else numbers
    lowest, highest = min(ends), max(ends)
    scale = _Scale(since.timestamp(), until.timestamp(), lowest, highest)
    open_from = len(answer["times"]) - 1 if answer["is_open"] else None
    lines = [
        Line(place, label, *scale.paths(answer["times"], line, answer["step_seconds"], open_from), _latest(line))
        for place, (label, line) in enumerate(series, 1)
    ]
    return Drawing(chart.title, lines, lowest, highest, _utc(since), _utc(until))


@dataclass(frozen=True)
class _Scale:
    since: float
    until: float
    lowest: float
    highest: float

    def paths(
        self, times: Sequence[float], line: Sequence[float | None], step: float, open_from: int | None
    ) -> tuple[str, str]:
        """Return the path of the complete steps, each as long as its number holds, and that of the open one."""
        paths = ["", ""]
        before: tuple[float, bool] | None = None
        for place, (at, number) in enumerate(zip(times, line, strict=True)):
            if number is None:
                before = None
                continue
            is_open = open_from is not None and place >= open_from
            x, y = self._x(at), self._y(number)
            if before is None or at - times[place - 1] > step:
                paths[is_open] += f"M{x} {y}"
            else:
                # An open step begins where the complete ones end, in a path of its own.
                paths[is_open] += f"V{y}" if is_open == before[1] else f"M{x} {before[0]}V{y}"
            paths[is_open] += f"H{self._x(min(at + step, self.until))}"
            before = y, is_open
        return paths[0], paths[1]

    def _x(self, at: float) -> float:
        return round(WIDTH * (at - self.since) / ((self.until - self.since) or 1), 1)

    def _y(self, number: float) -> float:
        # Within a margin of 2, so that the line is not cut off at its ends.
        share = (number - self.lowest) / ((self.highest - self.lowest) or 1)
        return round(HEIGHT - 2 - (HEIGHT - 4) * share, 1)


def _latest(line: Sequence[float | None]) -> float | None:
    return next((number for number in reversed(line) if number is not None), None)


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)

"""Sparklines: the last batches of a pipeline as one small line, drawn on the server."""

from collections.abc import Sequence
from dataclasses import dataclass

from webapp.states.selectors import BatchSummary

WIDTH, HEIGHT = 240, 40

# Room for the stroke at the highest and the lowest point.
MARGIN = 2


@dataclass(frozen=True)
class Sparkline:
    """Rows per second, batch by batch. line, area: points for SVG, oldest batch first."""

    line: str
    area: str
    lowest: float
    highest: float
    batches: int


def sparkline(batches: Sequence[BatchSummary]) -> Sparkline | None:
    """Draw the committed ones among `batches`, newest first; None where fewer than two make no line."""
    rates = [batch.rows_per_second for batch in reversed(batches) if batch.status == "committed"]
    if len(rates) < 2:
        return None
    top = max(rates) or 1
    points = [
        (round(index * WIDTH / (len(rates) - 1), 1), round(HEIGHT - MARGIN - rate / top * (HEIGHT - 2 * MARGIN), 1))
        for index, rate in enumerate(rates)
    ]
    line = " ".join(f"{x},{y}" for x, y in points)
    return Sparkline(line, f"0,{HEIGHT} {line} {WIDTH},{HEIGHT}", min(rates), max(rates), len(rates))

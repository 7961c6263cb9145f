"""A chart of ratios as SVG: a bar from 0 to the median, a line between the quartiles, and the reference at 1.

It draws its own background, so that it is readable on any page, and its colours follow the reader's colour scheme.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, ROW, BAR, CAP = 760, 26, 14, 8  # pixels
TOP, BOTTOM, MARGIN = 14, 46, 16
LETTER = 6.9  # width of a letter in the labels of 12 pixels, enough for the widest common fonts
VALUE = 52  # width reserved for a bar's number
MOST_TICKS = 8

STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328 }
.ground { fill: #ffffff } .bar { fill: #54aeff } .spread { stroke: #0a3069; stroke-width: 1.5 }
.grid { stroke: #d1d9e0 } .one { stroke: #1f2328; stroke-width: 1.5; stroke-dasharray: 4 3 }
.note { fill: #59636e } .number { font-weight: 600; paint-order: stroke; stroke: #ffffff; stroke-width: 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .ground { fill: #0d1117 } .bar { fill: #1f6feb } .spread { stroke: #cae8ff }
  .grid { stroke: #3d444d } .one { stroke: #f0f6fc } .note { fill: #9198a1 } .number { stroke: #0d1117 }
}
"""


@dataclass(frozen=True)
class Bar:
    """A ratio and the quartiles around it."""

    label: str
    ratio: float
    low: float
    high: float


def chart(bars: Sequence[Bar], note: str) -> str:
    """Return the SVG. note: the text below the axis, which says what the ratios mean."""
    left = MARGIN + LETTER * max(len(bar.label) for bar in bars)
    highest, step = _axis(max(1.0, *(bar.high for bar in bars)))
    scale = (WIDTH - left - MARGIN - VALUE) / highest
    height = TOP + ROW * len(bars) + BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img"><style>{STYLE}</style>',
            f'<rect class="ground" width="{WIDTH}" height="{height}" rx="6"/>',
            *_grid(left, scale, highest, step, bottom=TOP + ROW * len(bars)),
            *(part for place, bar in enumerate(bars) for part in _bar(bar, left, scale, TOP + ROW * (place + 0.5))),
            f'<text class="note" x="{WIDTH - MARGIN}" y="{height - 10}" text-anchor="end">{escape(note)}</text>',
            "</svg>\n",
        ]
    )


def _axis(highest: float) -> tuple[float, float]:
    """Return the end of an axis that includes `highest`, and the step between its ticks: 1, 2 or 5 and zeros."""
    magnitude = 10.0 ** math.floor(math.log10(highest / MOST_TICKS))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude * MOST_TICKS >= highest)
    return step * math.ceil(highest / step - 1e-9), step


def _grid(left: float, scale: float, highest: float, step: float, bottom: float) -> Iterator[str]:
    for number in range(round(highest / step) + 1):
        x = left + scale * step * number
        yield f'<path class="grid" d="M{x:.1f} {TOP}V{bottom}"/>'
        yield f'<text class="note" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{step * number:g}</text>'
    yield f'<path class="one" d="M{left + scale:.1f} {TOP - 6}V{bottom}"/>'


def _bar(bar: Bar, left: float, scale: float, middle: float) -> Iterator[str]:
    low, high = left + scale * bar.low, left + scale * bar.high
    cap = f"M{{:.1f}} {middle - CAP / 2:.1f}v{CAP}"
    yield f'<text x="{left - 8:.1f}" y="{middle + 4:.1f}" text-anchor="end">{escape(bar.label)}</text>'
    yield f'<path class="bar" d="M{left:.1f} {middle - BAR / 2:.1f}h{scale * bar.ratio:.1f}v{BAR}H{left:.1f}z"/>'
    yield f'<path class="spread" d="M{low:.1f} {middle:.1f}H{high:.1f}{cap.format(low)}{cap.format(high)}"/>'
    yield f'<text class="number" x="{high + 8:.1f}" y="{middle + 4:.1f}">{bar.ratio:.2f}</text>'

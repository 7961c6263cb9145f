"""A chart shows each ratio where it is on the axis, and is the same for the same ratios."""

import re
from xml.etree import ElementTree

import pytest

from benchmarks.charts import Bar, chart

BARS = [Bar("lookup / bare_django", 0.76, 0.7, 0.8), Bar("lookup / <pgbench>", 1.0, 1.0, 1.0)]


def places(svg, name):
    """Return where the lines and bars of a class begin and end, in pixels from the left."""
    paths = re.findall(rf'class="{name}" d="M([\d.]+) [\d.]+(?:h([\d.]+)|H([\d.]+))?', svg)
    return [(float(x), float(x) + float(wide) if wide else float(end or x)) for x, wide, end in paths]


def test_a_bar_ends_at_its_ratio():
    svg = chart(BARS, "note")

    (left, at_076), (_, at_1) = places(svg, "bar")
    assert (at_076 - left) / (at_1 - left) == pytest.approx(0.76, abs=0.001)
    assert places(svg, "one")[0][0] == pytest.approx(at_1, abs=0.1)


def test_a_line_lies_between_the_quartiles():
    svg = chart(BARS, "note")

    (left, _), (_, at_1) = places(svg, "bar")
    low, high = places(svg, "spread")[0]
    assert ((low - left) / (at_1 - left), (high - left) / (at_1 - left)) == pytest.approx((0.7, 0.8), abs=0.001)


@pytest.mark.parametrize(
    ("highest", "last"), [(0.1, "1"), (1.0, "1"), (1.3, "1.4"), (7.2, "8"), (19.0, "20"), (120, "120")]
)
def test_the_axis_reaches_the_highest_ratio_and_the_reference(highest, last):
    svg = chart([Bar("revert", highest, highest, highest)], "note")

    ticks = re.findall(r'text-anchor="middle">([\d.]+)<', svg)
    assert (ticks[0], ticks[-1]) == ("0", last)
    assert len(ticks) <= 9


def test_labels_are_escaped_and_nothing_is_loaded_from_elsewhere():
    svg = chart(BARS, "a & b")

    assert "lookup / <pgbench>" in [text.text for text in ElementTree.fromstring(svg).iter()]  # noqa: S314
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_both_colour_schemes_have_a_colour_for_each_class():
    style = chart(BARS, "note").partition("<style>")[2].partition("</style>")[0]

    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    assert set(re.findall(r"\.(\w+) {", light)) == set(re.findall(r"\.(\w+) {", dark))

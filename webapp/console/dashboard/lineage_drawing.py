"""Draws the lineage graph: boxes and lines from left to right, as coordinates for SVG."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.console.dashboard.layered_layout import layered
from tidegauge.webapp.console.dashboard.lineage import SOURCE, STATE, StateLineage
from tidegauge.webapp.console.dashboard.lineage_graph import PIPELINE, Node, graph, together

# Above MANY_NODES, similar nodes are drawn as one; above MOST_NODES or MOST_EDGES nothing is drawn.
MANY_NODES = 40
MOST_NODES = 200
MOST_EDGES = 400

# The first layer of each kind; consumers come last.
FIRST_LAYER = {SOURCE: 0, PIPELINE: 1, STATE: 2}

# In pixels at the default text size. TURN: how far a line that leads back extends beyond its box.
# Chosen so that five layers fit the widest page.
WIDTH, HEIGHT = 200, 46
COLUMN, ROW = 245, 60
MARGIN, TURN = 16, 44
MOST_CHARACTERS = 23

Place = tuple[int, float]


@dataclass(frozen=True)
class Box:
    """x, y: of its upper left corner."""

    number: int
    node: Node
    x: float
    y: float
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def text(self) -> str:
        name, half = self.node.name, MOST_CHARACTERS // 2
        return name if len(name) <= MOST_CHARACTERS else f"{name[:half]}…{name[-half:]}"


@dataclass(frozen=True)
class Line:
    """start, end: numbers of boxes. path: for SVG. kind: lookup, feedback, both or neither."""

    start: int
    end: int
    path: str
    kind: str


@dataclass(frozen=True)
class Drawing:
    """count: number of nodes before similar ones are joined. boxes: empty if there are too many."""

    count: int
    boxes: Sequence[Box] = ()
    lines: Sequence[Line] = ()
    width: float = 0
    height: float = 0

    @property
    def kinds(self) -> set[str]:
        """The kinds of lines and boxes that the caption has to explain."""
        joined = {"together" for box in self.boxes if box.node.together}
        return joined.union(*(line.kind.split() for line in self.lines))

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in rem, so that the drawing scales with the reader's text size."""
        return self.width / 16, self.height / 16


def drawing(
    rows: Iterable[StateLineage], every: Iterable[StateLineage], pipelines: Iterable[PipelineStatus]
) -> Drawing:
    """Return the drawing of some states and their neighbours. every: all states that the user sees.

    pipelines: those of these states.
    """
    shown = graph(rows, every, pipelines)
    count = len(shown.nodes)
    if count > MANY_NODES:
        shown = together(shown)
    if len(shown.nodes) > MOST_NODES or len(shown.edges) > MOST_EDGES:
        return Drawing(count)
    consumers = [found for found, node in shown.nodes.items() if node.kind not in FIRST_LAYER]
    least = {found: FIRST_LAYER.get(node.kind, 0) for found, node in shown.nodes.items()}
    layout = layered(least, sorted(shown.edges, key=shown.edges.__getitem__), consumers)
    # Room for lines that lead back, which pass above all boxes.
    top = MARGIN + (ROW / 2 if layout.feedback else 0)
    side = MARGIN + (TURN if layout.feedback else 0)
    corners = {found: _corner(place, side, top) for found, place in layout.places.items()}
    numbers = {found: number for number, found in enumerate(sorted(shown.nodes, key=corners.__getitem__))}
    boxes = [Box(number, shown.nodes[found], *corners[found]) for found, number in numbers.items()]
    lines = []
    for edge, is_lookup in shown.edges.items():
        is_feedback = edge in layout.feedback
        points = [_corner(place, side, top) for place in layout.lines[edge]]
        path = _back(points, MARGIN) if is_feedback else _forward(points)
        kind = " ".join(name for name, holds in (("lookup", is_lookup), ("feedback", is_feedback)) if holds)
        lines.append(Line(numbers[edge[0]], numbers[edge[1]], path, kind))
    right, bottom = (max((corner[axis] for corner in corners.values()), default=0) for axis in (0, 1))
    return Drawing(count, boxes, lines, right + WIDTH + side, bottom + HEIGHT + MARGIN)


def _corner(place: Place, side: float, top: float) -> tuple[float, float]:
    layer, height = place
    return side + layer * COLUMN, round(top + height * ROW, 1)


def _forward(corners: Sequence[tuple[float, float]]) -> str:
    """Return the path from the right of a box to the left of another one, straight through the layers between."""
    middles = [(x, y + HEIGHT / 2) for x, y in corners]
    path = f"M{middles[0][0] + WIDTH:g} {middles[0][1]:g}"
    for (x, y), (next_x, next_y) in pairwise(middles):
        half = (x + WIDTH + next_x) / 2
        path += f"C{half:g} {y:g} {half:g} {next_y:g} {next_x:g} {next_y:g}"
        path += f"h{WIDTH}" if (next_x, next_y) != middles[-1] else ""
    return path + ARROW


def _back(corners: Sequence[tuple[float, float]], lane: float) -> str:
    """Return the path from the right of a box, above all others, to the left of one that is not further right."""
    (start, y), (end, end_y) = [(x, y + HEIGHT / 2) for x, y in corners]
    start += WIDTH
    return (
        f"M{start:g} {y:g}C{start + TURN:g} {y:g} {start + TURN:g} {lane:g} {start:g} {lane:g}H{end:g}"
        f"C{end - TURN:g} {lane:g} {end - TURN:g} {end_y:g} {end:g} {end_y:g}{ARROW}"
    )


# Drawn as part of the path, so that it has the colour of the line.
ARROW = "m-6-4 6 4-6 4"

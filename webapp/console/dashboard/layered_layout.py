"""Layered layout of a directed graph: each edge leads to a later layer, with few crossings and short lines.

The steps are those of Sugiyama: set apart the edges that close a cycle, assign layers by the longest path, give an edge
across several layers a waypoint in each of them, then order the nodes of a layer by the mean place of their neighbours,
and choose their heights in the same way. Nodes of a layer are at least 1 apart.
"""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, pairwise
from statistics import fmean

Edge = tuple[str, str]
# A node, or the waypoint of an edge in a layer.
Point = str | tuple[Edge, int]
Row = list[Point]
Neighbours = Mapping[Point, Sequence[Point]]

SWEEPS = 8
WAYPOINT_GAP = 0.5


@dataclass(frozen=True)
class Layout:
    """places: layer and height of each node, from 0. lines: the places that each edge goes through, its ends included.

    feedback: the edges that close a cycle; they lead to the same layer or an earlier one, and have no waypoints.
    """

    places: Mapping[str, tuple[int, float]]
    lines: Mapping[Edge, Sequence[tuple[int, float]]]
    feedback: Collection[Edge]


def layered(least: Mapping[str, int], edges: Iterable[Edge], last: Collection[str] = ()) -> Layout:
    """Lay out a graph.

    least: the nodes, each with the first layer that it may be in. edges: in a cycle, the one that leads back furthest
    by `least` becomes feedback, and of several the last. last: nodes without outgoing edges, to place after all others.
    Layers without nodes are left out.
    """
    edges = list(dict.fromkeys(edges))
    feedback, topological = _feedback(least, edges)
    forward = [edge for edge in edges if edge not in feedback]
    layers = _layers(least, topological, forward, last)
    chains: dict[Edge, Row] = {
        (a, b): [a, *(((a, b), at) for at in range(layers[a] + 1, layers[b])), b] for a, b in forward
    }
    rows: list[Row] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for node in topological:
        rows[layers[node]].append(node)
    before: defaultdict[Point, Row] = defaultdict(list)
    after: defaultdict[Point, Row] = defaultdict(list)
    for (a, _), chain in chains.items():
        for layer, point in enumerate(chain[1:-1], layers[a] + 1):
            rows[layer].append(point)
        for left, right in pairwise(chain):
            before[right].append(left)
            after[left].append(right)
    places = _places(_ordered(rows, before, after), before, after)
    lines = {edge: [places[node] for node in chain] for edge, chain in chains.items()}
    lines |= {(a, b): [places[a], places[b]] for a, b in feedback}
    return Layout({node: places[node] for node in least}, lines, feedback)


def _feedback(least: Mapping[str, int], edges: Sequence[Edge]) -> tuple[set[Edge], list[str]]:
    """Return edges whose removal leaves no cycle, and the nodes in topological order."""
    feedback: set[Edge] = set()
    order = {edge: place for place, edge in enumerate(edges)}
    while True:
        sorter = TopologicalSorter({node: [] for node in least})
        for a, b in edges:
            if (a, b) not in feedback:
                sorter.add(b, a)
        try:
            return feedback, list(sorter.static_order())
        except CycleError as error:
            cycle = pairwise(error.args[1])
            feedback.add(max(cycle, key=lambda edge: (least[edge[0]] - least[edge[1]], order[edge])))


def _layers(
    least: Mapping[str, int], topological: Iterable[str], edges: Iterable[Edge], last: Collection[str]
) -> dict[str, int]:
    before = defaultdict(list)
    for a, b in edges:
        before[b].append(a)
    layers: dict[str, int] = {}
    for node in topological:
        layers[node] = max([least[node], *(layers[other] + 1 for other in before[node])])
    end = 1 + max((layer for node, layer in layers.items() if node not in last), default=0)
    layers |= dict.fromkeys(last, end)
    used = {layer: place for place, layer in enumerate(sorted(set(layers.values())))}
    return {node: used[layer] for node, layer in layers.items()}


def _ordered(rows: list[Row], before: Neighbours, after: Neighbours) -> list[Row]:
    """Return the layers in an order with few crossings: the best of some sweeps to the right and back."""
    rows, best, fewest = [*rows], [*rows], _crossings(rows, after)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        there = range(1, len(rows)) if sweep % 2 == 0 else range(len(rows) - 2, -1, -1)
        step, neighbours = (-1, before) if sweep % 2 == 0 else (1, after)
        for at in there:
            rank = {node: place for place, node in enumerate(rows[at + step])}
            own = {node: place for place, node in enumerate(rows[at])}
            mean = {node: fmean([rank[other] for other in neighbours[node]] or [own[node]]) for node in rows[at]}
            rows[at] = sorted(rows[at], key=mean.__getitem__)
        if (found := _crossings(rows, after)) < fewest:
            best, fewest = [*rows], found
    return best


def _crossings(rows: Sequence[Row], after: Neighbours) -> int:
    crossings = 0
    for left, right in pairwise(rows):
        rank = {node: place for place, node in enumerate(right)}
        passed: list[int] = []
        for node in left:
            ends = sorted(rank[other] for other in after[node])
            crossings += sum(len(passed) - bisect_right(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return crossings


def _places(rows: Sequence[Row], before: Neighbours, after: Neighbours) -> dict[Point, tuple[int, float]]:
    heights: dict[Point, float] = {}
    for row in rows:
        heights |= zip(row, accumulate(_gaps(row)), strict=True)
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [fmean([heights[other] for other in (*before[n], *after[n])] or [heights[n]]) for n in row]
            heights |= zip(row, _apart(wanted, _gaps(row)), strict=True)
    top = min(heights.values(), default=0)
    return {node: (layer, heights[node] - top) for layer, row in enumerate(rows) for node in row}


def _gaps(row: Row) -> list[float]:
    """Return the least distance of each node from the one above it; waypoints need less room."""
    sizes = [1 if isinstance(node, str) else WAYPOINT_GAP for node in row]
    return [0, *(max(pair) for pair in pairwise(sizes))][: len(row)]


def _apart(wanted: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """Return the heights closest to the wanted ones, by least squares, that keep order and gaps.

    This is isotonic regression by pooling adjacent violators.
    """
    offsets = list(accumulate(gaps))
    blocks: list[list[float]] = []
    for height, offset in zip(wanted, offsets, strict=True):
        blocks.append([height - offset])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            lower = blocks.pop()
            blocks[-1] += lower
    means = [mean for block in blocks for mean in [fmean(block)] * len(block)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]

"""The lineage graph: sources, pipelines, states and consumers as nodes, and the flow of data as edges.

An edge leads from a state to each of its consumers and to each pipeline that reads it; if its own pipeline reads it,
the edge leads to the state computed from it. Nodes with the same neighbours can be joined.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlencode

from django.urls import reverse

from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.verdicts import verdict
from tidegauge.webapp.console.dashboard.layered_layout import Edge
from tidegauge.webapp.console.dashboard.lineage import LOOKED_UP, LOOKS_UP, SOURCE, STATE, Link, StateLineage

PIPELINE = "pipeline"

TONES = {"served": "good", "not served": "bad", "not fed": "watch"}


@dataclass(frozen=True)
class Node:
    """tone: bad, watch, good or calm; empty without a status. together: the names of the nodes that it stands for."""

    kind: str
    name: str
    address: str
    status: str = ""
    tone: str = ""
    together: str = ""


@dataclass
class Graph:
    """nodes: by id. edges: whether each is only used for lookups."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[Edge, bool] = field(default_factory=dict)

    def connect(self, start: str, end: str, *, is_lookup: bool = False) -> None:
        self.edges[start, end] = is_lookup and self.edges.get((start, end), True)


def graph(rows: Iterable[StateLineage], every: Iterable[StateLineage], pipelines: Iterable[PipelineStatus]) -> Graph:
    """Return the graph of some states and their neighbours. every: all states that the user sees.

    pipelines: those of these states.
    """
    building = _Building(every, pipelines)
    for row in rows:
        building.add(row)
    building.add_pipelines()
    return building.graph


class _Building:
    def __init__(self, every: Iterable[StateLineage], pipelines: Iterable[PipelineStatus]) -> None:
        self.graph = Graph()
        self._every = {row.state: row for row in every}
        self._pipelines = {pipeline.name: pipeline for pipeline in pipelines}
        self._computed_from_another: set[str] = set()

    def add(self, row: StateLineage) -> None:
        state = self._state(row.state)
        for link in row.inputs:
            if link.kind == SOURCE:
                self.graph.connect(self._link(link), self._pipeline(row.pipeline))
            else:
                self._feed(link.name, row.state, link.kind)
        for link in row.consumers:
            if link.kind in (STATE, LOOKED_UP):
                self._feed(row.state, link.name, link.kind)
            else:
                self.graph.connect(state, self._link(link))

    def add_pipelines(self) -> None:
        """Connect each state with its pipeline, unless it is computed from another state of that pipeline."""
        for name, row in self._every.items():
            if f"{STATE} {name}" in self.graph.nodes and name not in self._computed_from_another:
                self.graph.connect(self._pipeline(row.pipeline), self._state(name))

    def _feed(self, start: str, end: str, kind: str) -> None:
        into, is_lookup = self._every[end], kind in (LOOKS_UP, LOOKED_UP)
        fed = self._state(end)
        if start not in self._every or self._every[start].pipeline != into.pipeline:
            fed = self._pipeline(into.pipeline)
        elif not is_lookup:
            self._computed_from_another.add(end)
        self.graph.connect(self._state(start), fed, is_lookup=is_lookup)

    def _pipeline(self, name: str) -> str:
        found = self._pipelines.get(name)
        judged = verdict(found) if found else None
        status, tone = (judged.name, judged.tone) if judged else ("", "")
        return self._node(Node(PIPELINE, name, reverse("dashboard:pipeline", args=[name]), status, tone))

    def _state(self, name: str) -> str:
        if name not in self._every:
            return self._link(Link(STATE, name))
        status = self._every[name].status
        return self._node(Node(STATE, name, reverse("dashboard:state", args=[name]), status, TONES[status]))

    def _link(self, link: Link) -> str:
        return self._node(Node(link.kind, link.name, link.address or _around(q=link.name)))

    def _node(self, node: Node) -> str:
        found = f"{node.kind} {node.name}"
        self.graph.nodes.setdefault(found, node)
        return found


def together(graph: Graph) -> Graph:
    """Return the graph with nodes of the same kind, status and neighbours joined into one; pipelines stay separate."""
    before, after = defaultdict(list), defaultdict(list)
    for (start, end), is_lookup in graph.edges.items():
        before[end].append((start, is_lookup))
        after[start].append((end, is_lookup))
    alike = defaultdict(list)
    for found, node in graph.nodes.items():
        own = found if node.kind == PIPELINE else ""
        alike[node.kind, node.status, own, frozenset(before[found]), frozenset(after[found])].append(found)
    into = {found: same[0] for same in alike.values() for found in same}
    joined = Graph()
    for first, *others in alike.values():
        nearest = [other for other, _ in (*before[first], *after[first])][:1]
        nodes = [graph.nodes[found] for found in (first, *others)]
        joined.nodes[first] = _joined(nodes, graph.nodes[nearest[0]]) if others and nearest else nodes[0]
    for (start, end), is_lookup in graph.edges.items():
        joined.connect(into[start], into[end], is_lookup=is_lookup)
    return joined


def _joined(nodes: list[Node], neighbour: Node) -> Node:
    first = nodes[0]
    address = _around(**{"pipeline" if neighbour.kind == PIPELINE else "q": neighbour.name})
    kinds = f"{first.kind[:-1]}ies" if first.kind.endswith("y") else f"{first.kind}s"
    names = ", ".join(node.name for node in nodes)
    return Node(first.kind, f"{len(nodes)} {kinds}", address, first.status, first.tone, names)


def _around(**asked: str) -> str:
    return f"{reverse('dashboard:lineage')}?{urlencode(asked)}"

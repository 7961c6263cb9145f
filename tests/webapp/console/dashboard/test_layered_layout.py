"""The layered layout: edges lead to later layers, nodes are apart, and few lines cross."""

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.webapp.console.dashboard.layered_layout import layered


@st.composite
def graphs(draw):
    """Nodes with their first layers, edges between any of them, and some of the nodes that lead nowhere."""
    least = {f"n{n}": draw(st.integers(0, 3)) for n in range(draw(st.integers(1, 14)))}
    nodes = st.sampled_from(sorted(least))
    edges = draw(st.lists(st.tuples(nodes, nodes), max_size=30))
    sinks = set(least) - {start for start, _ in edges}
    return least, edges, draw(st.sets(st.sampled_from(sorted(sinks)))) if sinks else set()


@given(graphs())
def test_each_edge_leads_to_a_later_layer_unless_it_is_feedback(graph):
    least, edges, last = graph
    layout = layered(least, edges, last)

    for start, end in edges:
        left, right = layout.places[start][0], layout.places[end][0]
        assert right <= left if (start, end) in layout.feedback else right > left


@given(graphs())
def test_no_two_nodes_of_a_layer_are_nearer_than_1(graph):
    layout = layered(*graph)

    for (layer, height), (other_layer, other_height) in combinations(layout.places.values(), 2):
        assert layer != other_layer or abs(height - other_height) > 1 - 1e-9


@given(graphs())
def test_an_edge_has_a_place_in_each_layer_on_its_way_and_passes_no_node(graph):
    least, edges, last = graph
    layout = layered(least, edges, last)
    nodes = set(layout.places.values())

    for (start, end), line in layout.lines.items():
        assert (line[0], line[-1]) == (layout.places[start], layout.places[end])
        if (start, end) not in layout.feedback:
            assert all(right[0] == left[0] + 1 for left, right in pairwise(line))
            for layer, height in line[1:-1]:
                assert all(abs(height - other) > 1 - 1e-9 for at, other in nodes if at == layer)
    assert set(layout.lines) == set(edges)


@given(graphs())
def test_the_last_layer_has_those_that_are_to_be_last_and_no_others(graph):
    least, edges, last = graph
    layers = {node: place[0] for node, place in layered(least, edges, last).places.items()}

    assert all((layer == max(layers.values())) == (node in last) for node, layer in layers.items() if last)
    assert set(layers.values()) == set(range(max(layers.values()) + 1))


@given(graphs())
def test_edges_without_cycle_are_no_feedback(graph):
    least, edges, last = graph
    forward = [(start, end) for start, end in edges if start < end]

    assert not layered(least, forward, last).feedback


def test_a_cycle_is_cut_where_it_leads_to_the_kind_before():
    least = {"pipeline": 1, "state": 2}

    assert layered(least, [("pipeline", "state"), ("state", "pipeline")]).feedback == {("state", "pipeline")}
    assert layered(least, [("state", "state")]).feedback == {("state", "state")}


def test_of_a_cycle_the_last_edge_of_that_kind_is_cut():
    least = {"p": 1, "q": 1, "s": 2, "t": 2}
    computed, looked_up = [("p", "s"), ("s", "q"), ("q", "t")], ("t", "p")

    assert layered(least, [*computed, looked_up]).feedback == {looked_up}
    assert layered(least, [looked_up, *computed]).feedback == {("s", "q")}


def test_lines_that_need_not_cross_do_not():
    least = {"a": 0, "b": 0, "x": 1, "y": 1}

    places = layered(least, [("a", "y"), ("b", "x")]).places

    assert (places["a"] < places["b"]) == (places["y"] < places["x"])


def test_a_node_is_in_the_middle_of_what_it_leads_to():
    places = layered({"a": 0, "x": 1, "y": 1, "z": 1}, [("a", "x"), ("a", "y"), ("a", "z")]).places

    assert places == {"a": (0, 1), "x": (1, 0), "y": (1, 1), "z": (1, 2)}

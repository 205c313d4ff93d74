"""Graphs of tensors: what is accepted, and what a selection costs."""

import random

import networkx
import pytest

from offcert.core.errors import InputError
from offcert.questions.selection.graph import CheckpointGraph, bits
from support.oracles.graphs import objective, random_graphs


def diamond() -> networkx.DiGraph:
    graph = networkx.DiGraph()
    for name, size in (("t", 7), ("a", 2), ("s", 5), ("b", 3)):
        graph.add_node(name, size=size)
    graph.add_edges_from([("s", "a"), ("s", "b"), ("a", "t"), ("b", "t")])
    return graph


def test_a_networkx_graph_is_numbered_in_topological_order() -> None:
    graph = CheckpointGraph.of(diamond())
    assert graph.names == ("s", "a", "b", "t")
    assert graph.sizes == (5, 2, 3, 7)
    assert graph.edges == ((0, 1), (0, 2), (1, 3), (2, 3))
    assert graph.inner_bytes == 5
    assert CheckpointGraph.of(graph) is graph
    assert CheckpointGraph.of(graph.digraph()).edges == graph.edges


def test_branches_are_components_of_their_own() -> None:
    graph = CheckpointGraph.of(diamond())
    nothing = graph.select(())
    assert nothing.components == ((1,), (2,))
    assert (nothing.stored_bytes, nothing.component_bytes, nothing.objective) == (0, 3, 3)
    assert graph.select([2, 2]).objective == 3 + 2


def test_selections_cost_what_networkx_finds() -> None:
    rng = random.Random(1)
    for graph in random_graphs(120, most=12):
        stored = tuple(v for v in graph.inner if rng.random() < 0.4)
        selection = graph.select(stored)
        assert selection.objective == objective(graph, stored)
        assert sorted(v for part in selection.components for v in part) == [
            v for v in graph.inner if v not in stored
        ]


def test_paths_are_those_of_networkx() -> None:
    for graph in random_graphs(40, most=10):
        flow = graph.digraph()
        for vertex in range(len(graph)):
            assert set(bits(graph.descendants[vertex])) == networkx.descendants(flow, vertex)
            assert set(bits(graph.ancestors[vertex])) == networkx.ancestors(flow, vertex)


@pytest.mark.parametrize(
    ("sizes", "edges", "message"),
    [
        ([1], [], "a source and a target, not 1 vertices"),
        ([1, -1, 1], [(0, 1), (1, 2)], r"graph.sizes\[1\] must be at least 0, not -1"),
        ([1, 1.5, 1], [(0, 1), (1, 2)], r"graph.sizes\[1\] must be an integer, not 1.5"),
        ([1, 1], [(1, 0)], r"graph.edges\[0\] must lead .* not from 1 to 0"),
        ([1, 1], [(0, 2)], r"graph.edges\[0\] must lead .* below 2, not from 0 to 2"),
        ([1, 1], [(0, 1), (0, 1)], "has the edge from 0 to 1 twice"),
        ([1, 1, 1], [(0, 2), (1, 2)], r"vertex 1 \(1\) must lie between"),
        ([1, 1, 1], [(0, 2), (0, 1)], r"vertex 1 \(1\) must lie between"),
        ([2**60, 2**60], [(0, 1)], r"less than 2\*\*61 bytes"),
    ],
)
def test_bad_graphs_are_refused(sizes: list, edges: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        CheckpointGraph(sizes, edges)


def test_names_must_be_as_many_as_vertices() -> None:
    with pytest.raises(InputError, match=r"graph\.names must have 2 entries, not 1"):
        CheckpointGraph([0, 0], [(0, 1)], ["s"])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda g: g.add_edge("t", "s"), "must not have a cycle"),
        (lambda g: g.add_node("u", size=1), "must have one source, not 2"),
        (lambda g: g.add_edge("b", "u") or g.add_node("u", size=1), "must have one target, not 2"),
        (lambda g: g.nodes["a"].pop("size"), "vertex 'a' has no attribute 'size'"),
    ],
)
def test_bad_networkx_graphs_are_refused(edit, message: str) -> None:
    graph = diamond()
    edit(graph)
    with pytest.raises(InputError, match=message):
        CheckpointGraph.of(graph)


def test_an_undirected_graph_is_refused() -> None:
    with pytest.raises(InputError, match="must be directed"):
        CheckpointGraph.of(diamond().to_undirected())


@pytest.mark.parametrize("vertex", [0, 3, -1, 9])
def test_the_ends_cannot_be_stored(vertex: int) -> None:
    with pytest.raises(InputError, match=f"from 1 to 2, not {vertex}"):
        CheckpointGraph.of(diamond()).select([vertex])

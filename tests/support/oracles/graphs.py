"""Graphs of tensors by brute force: components by networkx, every selection tried."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import networkx

from offcert.questions.selection.graph import CheckpointGraph
from papers.checkpoint_graphs.random_graphs import random_checkpoint_graph

DENSITIES = (Fraction(1, 8), Fraction(1, 5), Fraction(3, 10), Fraction(1, 2))


def random_graphs(count: int, most: int = 9, first: int = 0) -> Iterator[CheckpointGraph]:
    """Yield random graphs of up to `most` vertices, of all densities, some with sizes of zero."""
    for seed in range(first, first + count):
        density = DENSITIES[seed % len(DENSITIES)]
        vertices = 2 + seed * 7919 % (most - 1)
        graph = random_checkpoint_graph(seed, vertices, density, (1, 3, 9, 1000)[seed // 4 % 4])
        if seed % 5 == 0:
            sizes = [0 if v % 3 == 1 else size for v, size in enumerate(graph.sizes)]
            graph = CheckpointGraph(sizes, graph.edges)
        yield graph


def objective(graph: CheckpointGraph, stored: tuple[int, ...]) -> int:
    """Return what a selection costs."""
    left = networkx.DiGraph(graph.digraph())
    left.remove_nodes_from([0, len(graph) - 1, *stored])
    parts = networkx.weakly_connected_components(left)
    largest = max((sum(graph.sizes[v] for v in part) for part in parts), default=0)
    return sum(graph.sizes[v] for v in stored) + largest


def optimum(graph: CheckpointGraph) -> int:
    """Return the least objective of all selections."""
    inner = range(1, len(graph) - 1)
    return min(
        objective(graph, stored)
        for count in range(len(inner) + 1)
        for stored in combinations(inner, count)
    )

"""Splitting vertices: where a closed set falls into two, one after the other."""

from __future__ import annotations

from offcert.core.checkpoint_graph import CheckpointGraph, bits
from offcert.heuristics.checkpoint_graphs.closed_sets import ClosedSet


def is_splitting_vertex(graph: CheckpointGraph, closed: ClosedSet, vertex: int) -> bool:
    """Return whether a member splits its closed set (re-forwarding paper, Algorithm 2).

    It does if every other vertex of the set, both ends among them, has a path to it or from it, and
    no edge of the set leads past it. The edge from end to end is such an edge if it belongs to the
    set, whatever the graph has besides.
    """
    before = graph.ancestors[vertex] & closed.closure
    after = graph.descendants[vertex] & closed.closure
    if before | after | 1 << vertex != closed.closure:
        return False
    if closed.edge:
        return False
    return all(not _heads(graph, closed, tail) & after for tail in bits(before))


def splitting_vertices(graph: CheckpointGraph, closed: ClosedSet) -> list[int]:
    """Return the splitting vertices of a closed set, from its source to its target."""
    return [v for v in bits(closed.inner) if is_splitting_vertex(graph, closed, v)]


def _heads(graph: CheckpointGraph, closed: ClosedSet, tail: int) -> int:
    """Return where the edges of a closed set lead from a vertex, as bits."""
    heads = graph.successors[tail] & closed.closure
    if tail == closed.source and not closed.edge:
        heads &= ~(1 << closed.target)
    return heads

"""Pairs of vertices that can lie in one component: what the models of graphs are made of.

The models say for pairs ``u < v`` whether v lies in u's component *above u*: connected with u by
vertices that are not stored and not before u. Of the least vertex of a component that is all of it,
so the largest component is the most that any vertex has above itself. A neighbour of v above u is
in it, too, or stored.

A component of a selection that is to be no worse than a known one has no more bytes than the known
objective, so u and v are a pair only if some path between them, above u, is no heavier.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from offcert.questions.selection.graph import CheckpointGraph, bits


@dataclass(frozen=True)
class Pairs:
    """Pairs, and how they follow from each other.

    Attributes
    ----------
    above : dict of int to list of int
        For each inner vertex u, the vertices that can lie in its component above it, u first.
    steps : dict of int to list of (int, int)
        For each inner vertex u pairs ``(v, w)``: if v is in u's component above u, its neighbour w
        is in it or stored.
    """

    above: dict[int, list[int]]
    steps: dict[int, list[tuple[int, int]]]


def component_pairs(graph: CheckpointGraph, limit: int) -> Pairs:
    """Return the pairs for components of at most `limit` bytes."""
    above: dict[int, list[int]] = {}
    steps: dict[int, list[tuple[int, int]]] = {}
    last = len(graph) - 1
    for first in graph.inner:
        higher = (1 << last) - (1 << first + 1)
        found = _lightest_paths(graph, first, higher, limit)
        above[first] = sorted(found)
        steps[first] = [
            (vertex, neighbour)
            for vertex in above[first]
            for neighbour in bits(graph.neighbours[vertex] & higher)
        ]
    return Pairs(above, steps)


def _lightest_paths(graph: CheckpointGraph, first: int, allowed: int, limit: int) -> dict[int, int]:
    """Return the bytes of the lightest path to each vertex with one of at most `limit` bytes."""
    done: dict[int, int] = {}
    waiting = [(graph.sizes[first], first)]
    while waiting:
        weight, vertex = heapq.heappop(waiting)
        if vertex in done or weight > limit:
            continue
        done[vertex] = weight
        for neighbour in bits(graph.neighbours[vertex] & allowed):
            if neighbour not in done:
                heapq.heappush(waiting, (weight + graph.sizes[neighbour], neighbour))
    return done

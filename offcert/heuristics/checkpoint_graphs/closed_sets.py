"""Closed sets: parts of a graph with one way in and one way out (re-forwarding paper, §5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from offcert.core.checkpoint_graph import CheckpointGraph, bits


class Reading(StrEnum):
    """What is taken as the closed set between two vertices.

    ``definition``: the largest set that Definition 1 allows, branches that are not closed left out.
    With it a division misses no edge, as Theorem 1 says. ``algorithm``: as line 2 of Algorithm 4
    has it, *all* vertices between the two, or no closed set if one of them is connected to the
    outside (line 3 has this condition the wrong way round). Then vertices can belong to no member
    of a maximal split.
    """

    DEFINITION = "definition"
    ALGORITHM = "algorithm"


@dataclass(frozen=True, slots=True)
class ClosedSet:
    """Vertices between a source and a target that have no edges to any others (Definition 1).

    Attributes
    ----------
    source, target : int
        The vertices ``v_i`` and ``v_j``, which are not members.
    inner : int
        The members, as bits; none for a set that is only an edge.
    edge : bool
        Whether the edge from source to target belongs to it (Property 2 allows both).
    """

    source: int
    target: int
    inner: int
    edge: bool

    def cost(self, graph: CheckpointGraph) -> int:
        """Return the bytes of the members: source and target are stored by somebody else."""
        return graph.size_of(bits(self.inner))

    @property
    def closure(self) -> int:
        """Members, source and target, as bits: the set in square brackets of Definition 2."""
        return self.inner | 1 << self.source | 1 << self.target

    def inside(self, other: ClosedSet) -> bool:
        """Whether all edges of this set are edges of another one."""
        if self.closure & ~other.closure:
            return False
        ends = (self.source, self.target) == (other.source, other.target)
        return not (self.edge and ends and not other.edge)


def whole(graph: CheckpointGraph) -> ClosedSet:
    """Return the closed set that is the whole graph."""
    last = len(graph) - 1
    inner = (1 << last) - 2
    return ClosedSet(0, last, inner, bool(graph.successors[0] >> last & 1))


def closed_set(
    graph: CheckpointGraph,
    source: int,
    target: int,
    reading: Reading = Reading.DEFINITION,
) -> ClosedSet | None:
    """Return the largest closed set between two vertices, or None if there is none.

    Parameters
    ----------
    graph : CheckpointGraph
        The computation graph.
    source, target : int
        Two vertices.
    reading : Reading
        What counts as the largest one.
    """
    between = graph.descendants[source] & graph.ancestors[target]
    allowed = between | 1 << source | 1 << target
    inner = 0
    for part in graph.components(between):
        if all(not graph.neighbours[vertex] & ~allowed for vertex in bits(part)):
            inner |= part
        elif reading is Reading.ALGORITHM:
            return None
    edge = bool(graph.successors[source] >> target & 1)
    return ClosedSet(source, target, inner, edge) if inner or edge else None

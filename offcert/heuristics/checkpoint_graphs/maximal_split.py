"""The maximal split of a closed set that has neither splitting vertices nor branches."""

from __future__ import annotations

from offcert.core.checkpoint_graph import CheckpointGraph, bits
from offcert.heuristics.checkpoint_graphs.closed_sets import ClosedSet, Reading, closed_set


def maximal_split(
    graph: CheckpointGraph, closed: ClosedSet, reading: Reading = Reading.DEFINITION
) -> list[ClosedSet]:
    """Return the maximal split (re-forwarding paper, Definition 7 and Algorithm 4).

    Forms a closed set for every pair of vertices of ``[s_ij]`` but the pair of its ends, and keeps
    those that lie in no other one that is formed. Line 3 is printed with the opposite condition
    ("if there exists a vertex outside with a connection"); the paper's Property 3 and its examples
    show that a closed set is formed if there is none.

    Parameters
    ----------
    graph : CheckpointGraph
        The computation graph.
    closed : ClosedSet
        Type 3: no splitting vertex, no branches.
    reading : Reading
        Which closed set is formed for a pair.

    Returns
    -------
    list of ClosedSet
        By their ends.
    """
    formed = []
    for source in bits(closed.closure & ~(1 << closed.target)):
        for target in bits(graph.descendants[source] & closed.closure):
            if (source, target) != (closed.source, closed.target):
                found = closed_set(graph, source, target, reading)
                if found is not None:
                    formed.append(found)
    # Larger ones first: whatever contains another one has been looked at before it.
    formed.sort(key=lambda found: _edges(graph, found), reverse=True)
    split: list[ClosedSet] = []
    for candidate in formed:
        if not any(candidate.inside(member) for member in split):
            split.append(candidate)
    return sorted(split, key=lambda member: (member.source, member.target))


def _edges(graph: CheckpointGraph, closed: ClosedSet) -> int:
    """Return the number of edges of a closed set."""
    rows = (graph.successors[vertex] & closed.closure for vertex in bits(closed.closure))
    across = graph.successors[closed.source] >> closed.target & 1
    return sum(row.bit_count() for row in rows) - across + closed.edge

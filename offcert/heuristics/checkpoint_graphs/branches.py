"""Branches: parts of a closed set that have only its ends in common."""

from __future__ import annotations

from offcert.core.checkpoint_graph import CheckpointGraph
from offcert.heuristics.checkpoint_graphs.closed_sets import ClosedSet


def is_branched(graph: CheckpointGraph, closed: ClosedSet) -> bool:
    """Return whether a closed set without splitting vertex has branches.

    Re-forwarding paper, Algorithm 3. It has if it has members and the edge from end to end, or if
    what is connected with one of its members is not all of them. The paper takes that member at
    random; which one it is changes nothing.
    """
    if not closed.inner:
        return False
    return closed.edge or next(graph.components(closed.inner)) != closed.inner


def branches(graph: CheckpointGraph, closed: ClosedSet) -> list[ClosedSet]:
    """Return the branches that cannot be divided into more branches (Definition 8, Type 2)."""
    ends = closed.source, closed.target
    found = [ClosedSet(*ends, part, False) for part in graph.components(closed.inner)]
    return found + ([ClosedSet(*ends, 0, True)] if closed.edge else [])

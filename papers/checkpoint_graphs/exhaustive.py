"""All selections of a small graph: the yardstick for everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from offcert.core.errors import InputError
from offcert.questions.selection.graph import CheckpointGraph, GraphSelection

# There are twice as many selections with every vertex more.
LARGEST = 18


def all_selections(graph: CheckpointGraph) -> Iterator[GraphSelection]:
    """Yield every selection of a graph.

    Raises
    ------
    InputError
        If it has more than `LARGEST` inner vertices.
    """
    if len(graph.inner) > LARGEST:
        raise InputError(
            f"graph has {len(graph.inner)} inner vertices, too many to try all selections; "
            f"{LARGEST} is the most"
        )
    for count in range(len(graph.inner) + 1):
        for stored in combinations(graph.inner, count):
            yield graph.select(stored)


def exhaustive_selection(
    graph: CheckpointGraph, allowed: Callable[[CheckpointGraph, GraphSelection], bool] | None = None
) -> GraphSelection:
    """Return the best selection, of those that are allowed if that is asked.

    Raises
    ------
    InputError
        If the graph has too many vertices.
    """
    found = (s for s in all_selections(graph) if allowed is None or allowed(graph, s))
    return min(found, key=lambda selection: selection.objective)


def recomputes_closed_sets(graph: CheckpointGraph, selection: GraphSelection) -> bool:
    """Return whether every component is entered from one vertex and left to one vertex.

    Then each component is a closed set of the re-forwarding paper between two vertices that are
    there.
    """
    for part in selection.components:
        inside = sum(1 << vertex for vertex in part)
        before = behind = 0
        for vertex in part:
            before |= graph.predecessors[vertex] & ~inside
            behind |= graph.successors[vertex] & ~inside
        if before.bit_count() != 1 or behind.bit_count() != 1:
            return False
    return True

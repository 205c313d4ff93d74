"""The least objective of a graph, by our own search: limit by limit on the largest component."""

from __future__ import annotations

from dataclasses import dataclass

from offcert.questions.selection.graph import CheckpointGraph, GraphSelection
from papers.checkpoint_graphs.frontier import least_stored, size_unit
from papers.checkpoint_graphs.orders import elimination_order


@dataclass(frozen=True)
class LeastSelection:
    """An optimal selection, and how it was found.

    Attributes
    ----------
    selection : GraphSelection
        None has a smaller objective.
    limits : tuple of int
        The limits in bytes for which the least to be stored was computed, decreasing.
    """

    selection: GraphSelection
    limits: tuple[int, ...]


def least_selection(
    graph: CheckpointGraph, known: GraphSelection | None = None, max_states: int = 200_000
) -> LeastSelection:
    """Return a selection with the least stored bytes and largest component together.

    Let ``f(C)`` be the least that is stored if components have at most C bytes. It falls with C. So
    if ``f(C) = b`` and T is the best objective known, no selection whose largest component has from
    ``T - b`` to C bytes is better than T, and the next limit to look at is below ``T - b``.

    Parameters
    ----------
    graph : CheckpointGraph
        Any.
    known : GraphSelection, optional
        A good selection makes the search shorter.
    max_states : int
        As of `least_stored`.

    Raises
    ------
    TooWideError
        If the graph is too wide for this search.
    """
    unit = size_unit(graph)
    best = graph.select(()) if known is None else known
    limit, limits = best.objective - unit, list[int]()
    order = elimination_order(graph)
    while limit >= 0:
        limits.append(limit)
        stored = least_stored(graph, limit, best.objective - unit, max_states, order)
        if stored is None:
            break
        found = graph.select(stored)
        if found.objective < best.objective:
            best = found
        limit = best.objective - found.stored_bytes - unit
    return LeastSelection(best, tuple(limits))

"""Connected sets above a limit that a fractional choice of stored vertices does not hit once.

Finding the least hit one is hard in general; these sets are grown from every vertex. Missing some
weakens a bound and never makes it wrong.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from offcert.questions.selection.graph import CheckpointGraph, bits

# What counts as hit less than once, in floats.
_LACKING = 1e-6


def missed_sets(
    graph: CheckpointGraph, amounts: Mapping[int, float], usable: int, limit: int
) -> set[int]:
    """Return heavy connected sets, as bits, whose stored amounts sum to less than one.

    Parameters
    ----------
    graph : CheckpointGraph
        The graph.
    amounts : mapping of int to float
        How much of a vertex is stored, from 0 to 1; 0 for those that are not mentioned.
    usable : int
        The vertices that sets may be made of, as bits.
    limit : int
        Bytes; sets have more.
    """
    found: set[int] = set()
    for part in graph.components(usable):
        if graph.size_of(bits(part)) <= limit:
            continue
        for start in bits(part):
            above = part & ~((1 << start) - 1)
            for allowed in (above, part):
                for grown in _grown(graph, amounts, start, allowed, limit):
                    least = _pruned(graph, amounts, grown, limit)
                    if sum(amounts.get(v, 0.0) for v in least) < 1 - _LACKING:
                        found.add(sum(1 << v for v in least))
    return found


def _grown(
    graph: CheckpointGraph, amounts: Mapping[int, float], start: int, allowed: int, limit: int
) -> Iterator[list[int]]:
    """Yield heavy sets that grow from a vertex: by the nearest, and by the least amount."""
    for nearest in (True, False):
        chosen: list[int] = []
        weight, total = 0, 0.0
        first = amounts.get(start, 0.0)
        waiting = [(first, -graph.sizes[start], start)]
        seen = 1 << start
        while waiting and weight <= limit and total < 1 - _LACKING:
            key, _, vertex = heapq.heappop(waiting)
            chosen.append(vertex)
            weight += graph.sizes[vertex]
            total += amounts.get(vertex, 0.0)
            for neighbour in bits(graph.neighbours[vertex] & allowed & ~seen):
                seen |= 1 << neighbour
                amount = amounts.get(neighbour, 0.0)
                entry = (key + amount if nearest else amount, -graph.sizes[neighbour], neighbour)
                heapq.heappush(waiting, entry)
        if weight > limit:
            yield chosen


def _pruned(
    graph: CheckpointGraph, amounts: Mapping[int, float], grown: Sequence[int], limit: int
) -> list[int]:
    """Return a heavy connected part of a set, without what it can do without.

    Vertices are taken away in the reverse order in which they came, which keeps it connected if
    nothing that came later hangs on them.
    """
    left = sum(1 << v for v in grown)
    weight = graph.size_of(grown)
    for vertex in sorted(grown, key=lambda v: (-amounts.get(v, 0.0), -graph.sizes[v])):
        rest = left & ~(1 << vertex)
        if weight - graph.sizes[vertex] > limit and next(graph.components(rest)) == rest:
            left = rest
            weight -= graph.sizes[vertex]
    return list(bits(left))

"""In which order to decide about vertices, so that few of them are half decided at any time."""

from __future__ import annotations

from collections.abc import Sequence

from offcert.questions.selection.graph import CheckpointGraph, bits

# How much more a step costs if one more vertex has undecided neighbours: roughly.
_GROWTH = 4


def elimination_order(graph: CheckpointGraph) -> list[int]:
    """Return the inner vertices in an order with narrow frontiers: the better one of two."""
    return min((_greedy(graph), _by_cuts(graph)), key=lambda order: _work(graph, order))


def frontiers(graph: CheckpointGraph, order: Sequence[int]) -> list[list[int]]:
    """Return, after each vertex of an order, those so far with a neighbour behind it."""
    left, frontier, found = _inside(graph), 0, []
    for vertex in order:
        left &= ~(1 << vertex)
        frontier = _narrowed(graph, frontier | 1 << vertex, left)
        found.append(list(bits(frontier)))
    return found


def _inside(graph: CheckpointGraph) -> int:
    return (1 << len(graph) - 1) - 2


def _work(graph: CheckpointGraph, order: Sequence[int]) -> int:
    return sum(_GROWTH ** len(frontier) for frontier in frontiers(graph, order))


def _narrowed(graph: CheckpointGraph, frontier: int, left: int) -> int:
    return sum(1 << v for v in bits(frontier) if graph.neighbours[v] & left)


def _greedy(graph: CheckpointGraph) -> list[int]:
    """Take the neighbour of the frontier that leaves it narrowest, again and again."""
    left, frontier, order = _inside(graph), 0, []
    while left:
        border = 0
        for vertex in bits(frontier):
            border |= graph.neighbours[vertex]
        candidates = border & left or left & -left
        widths = {
            v: _narrowed(graph, frontier | 1 << v, left & ~(1 << v)).bit_count()
            for v in bits(candidates)
        }
        best = min(widths, key=lambda v: (widths[v], v))
        left &= ~(1 << best)
        frontier = _narrowed(graph, frontier | 1 << best, left)
        order.append(best)
    return order


def _by_cuts(graph: CheckpointGraph) -> list[int]:
    """Take the vertices first that cut what is left, so that branches are decided one by one."""
    import networkx

    whole = networkx.Graph()
    whole.add_nodes_from(graph.inner)
    whole.add_edges_from((a, b) for a, b in graph.edges if a and b < len(graph) - 1)
    order: list[int] = []
    waiting = sorted(graph.components(_inside(graph)), reverse=True)
    while waiting:
        part = waiting.pop()
        vertices = list(bits(part))
        if len(vertices) == 1:
            order += vertices
            continue
        own = whole.subgraph(vertices)
        cuts = set(networkx.articulation_points(own))
        if not cuts:
            first = max(vertices, key=lambda v: ((graph.neighbours[v] & part).bit_count(), -v))
            order.append(first)
            waiting += _parts(graph, part & ~(1 << first))
            continue
        fork = max(cuts, key=lambda v: (len(_parts(graph, part & ~(1 << v))), -v))
        rest = _parts(graph, part & ~(1 << fork))
        if len(rest) > 2:
            order.append(fork)
            waiting += rest
            continue
        # Only as far as to the first cut: what is before it is decided before what is behind.
        blocks = sorted(networkx.biconnected_components(own), key=min)
        block = next(block for block in blocks if len(block & cuts) == 1)
        (cut,) = block & cuts
        inner = sum(1 << v for v in block if v != cut)
        if len(block) == 2:
            order += bits(inner)
            waiting += _parts(graph, part & ~inner)
            continue
        order.append(cut)
        waiting += _parts(graph, part & ~inner & ~(1 << cut))
        waiting += _parts(graph, inner)
    return order


def _parts(graph: CheckpointGraph, vertices: int) -> list[int]:
    """Return the components of some vertices, the first one last."""
    return list(graph.components(vertices))[::-1]

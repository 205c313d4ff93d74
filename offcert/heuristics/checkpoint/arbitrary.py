"""The arbitrary-graph solver of the re-forwarding paper (Algorithm 5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from offcert.heuristics.checkpoint.division_tree import Division, Reading, SetKind, division_tree
from offcert.questions.selection.graph import CheckpointGraph, GraphSelection

if TYPE_CHECKING:
    import networkx


def cheapest_leaps(joints: Sequence[int], between: Sequence[int], limit: int) -> list[int]:
    """Return which joints to store: the shortest path in the accessibility graph.

    The ends of the row are stored by somebody else. From one stored joint to the next, what is
    leapt over (joints and closed sets) has at most `limit` bytes.

    Notes
    -----
    Linear in the length of the row: where a leap may begin only moves forward, and a queue keeps
    the cheapest of those places at its head (as in Algorithm 3 of the selection paper).
    """
    count = len(joints)
    # behind[k]: bytes before joint k, which is at place k + 1; place 0 and count + 1 are the ends.
    sizes = [0, *joints, 0]
    behind = [0, *accumulate(a + b for a, b in zip(between, sizes[1:], strict=True))]
    best, previous = [0], [-1]
    queue = deque([0])
    for place in range(1, count + 2):
        while behind[place] - sizes[place] - behind[queue[0]] > limit:
            queue.popleft()
        previous.append(queue[0])
        best.append(best[queue[0]] + sizes[place])
        while queue and best[queue[-1]] >= best[place]:
            queue.pop()
        queue.append(place)
    chosen = []
    place = previous[count + 1]
    while place > 0:
        chosen.append(place - 1)
        place = previous[place]
    return chosen[::-1]


@dataclass(frozen=True)
class ArbitrarySolution:
    """The selection that Algorithm 5 finds, and its cost.

    Attributes
    ----------
    selection : GraphSelection
        The best of the selections that it looks at, by the bytes of what is stored and of the
        largest weakly connected component of the rest.
    max_term : int
        The max term that led to it.
    stated : int
        Bytes: the least total by the paper's own sum, the stored bytes and the largest cost of a
        closed set or row that is leapt over. Equal to ``selection.objective`` on every graph that
        was tried; below it with `Reading.ALGORITHM`, where members of a split hang together.
    max_terms : int
        How many were tried.
    """

    selection: GraphSelection
    max_term: int
    stated: int
    max_terms: int

    @property
    def objective(self) -> int:
        """Bytes of the selection: of the stored vertices, and of the largest component."""
        return self.selection.objective


def arbitrary_graph_solver(
    graph: networkx.DiGraph | CheckpointGraph, reading: Reading = Reading.DEFINITION
) -> ArbitrarySolution:
    """Choose vertices to store by the arbitrary-graph solver (re-forwarding paper, Algorithm 5).

    For every max term, closed sets that cost more are expanded: what they are divided at is stored,
    and the members of the division are looked at in turn. What stays in a row unexpanded in a
    splittable set is solved as a chain is.

    Parameters
    ----------
    graph : networkx.DiGraph or CheckpointGraph
        One source, one target. As a networkx graph, vertices have their bytes as ``size``.
    reading : Reading
        The reading of what a closed set is in a maximal split.

    Returns
    -------
    ArbitrarySolution
        Bytes of source and target are counted nowhere.

    Raises
    ------
    InputError
        If the graph is not what `CheckpointGraph.of` accepts.

    Notes
    -----
    Decided where the paper leaves it open: the whole graph is expanded like any other closed set,
    only if it costs more than the max term. Max terms are the costs of all closed sets of the
    division tree and of all rows of neighbours in splittable ones; between two of them nothing
    that the algorithm does changes. A selection is judged by what it really costs (line 10), not
    by the max term.
    """
    given = CheckpointGraph.of(graph)
    best: tuple[GraphSelection, int] | None = None
    stated, tried = given.inner_bytes, 0
    for term, selection, largest in expansions(given, reading):
        tried += 1
        stated = min(stated, selection.stored_bytes + largest)
        if best is None or selection.objective < best[0].objective:
            best = selection, term
    assert best is not None
    return ArbitrarySolution(best[0], best[1], stated, tried)


def expansions(
    graph: CheckpointGraph, reading: Reading = Reading.DEFINITION
) -> Iterator[tuple[int, GraphSelection, int]]:
    """Yield the vertices that Algorithm 5 stores for each max term, from small to large."""
    tree = division_tree(graph, reading)
    for term in sorted(set(max_terms(graph, tree))):
        expansion = _Expansion(graph, term)
        expansion.look_at(tree)
        yield term, graph.select(expansion.stored), expansion.largest


def max_terms(graph: CheckpointGraph, tree: Division) -> Iterator[int]:
    """Yield the costs of the closed sets of a division tree, and of rows in splittable ones."""
    for node in tree.nodes():
        yield node.cost
        if node.kind is SetKind.SPLITTABLE:
            for first in range(len(node.children)):
                cost = node.children[first].cost
                yield cost
                for joint, child in zip(
                    node.joints[first:], node.children[first + 1 :], strict=True
                ):
                    cost += graph.sizes[joint] + child.cost
                    yield cost


class _Expansion:
    """The data stored for one max term, and the largest size that is leapt over at once."""

    def __init__(self, graph: CheckpointGraph, term: int) -> None:
        self._graph = graph
        self._term = term
        self.stored: list[int] = []
        self.largest = 0

    def look_at(self, node: Division) -> None:
        """Expand a closed set if it costs more than the max term."""
        if node.cost <= self._term:
            self.largest = max(self.largest, node.cost)
        elif node.kind is SetKind.SPLITTABLE:
            self._expand_row(node)
        else:
            self.stored += node.joints
            for child in node.children:
                self.look_at(child)

    def _expand_row(self, node: Division) -> None:
        """Expand the children that cost too much, and solve the linear segments between them."""
        expanded = [i for i, child in enumerate(node.children) if child.cost > self._term]
        for index in expanded:
            # What is before and behind an expanded one separates the segments.
            ends = {index - 1, index}.intersection(range(len(node.joints)))
            self.stored += [node.joints[i] for i in sorted(ends)]
            self.look_at(node.children[index])
        for before, behind in pairwise([-1, *expanded, len(node.children)]):
            if behind - before > 1:
                self._solve_segment(node, before + 1, behind)

    def _solve_segment(self, node: Division, first: int, end: int) -> None:
        """Solve the row of the children from `first` up to `end`, exclusive."""
        joints = node.joints[first : end - 1]
        sizes = [self._graph.sizes[joint] for joint in joints]
        between = [child.cost for child in node.children[first:end]]
        chosen = cheapest_leaps(sizes, between, self._term)
        self.stored += [joints[index] for index in chosen]
        for before, behind in pairwise([-1, *chosen, len(joints)]):
            leapt = sum(sizes[before + 1 : behind]) + sum(between[before + 1 : behind + 1])
            self.largest = max(self.largest, leapt)

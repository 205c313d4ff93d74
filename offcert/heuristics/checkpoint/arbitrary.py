"""The re-forwarding paper's solvers: Algorithm 1 for linear graphs, 5 for arbitrary ones.

Algorithm 1 as printed takes O(n⁴). For each pair of vertices, what lies between them is the largest
cost that a local re-forward may have; then two vertices are *accessible* if no more lies between
them, and a shortest path in the graph of accessible pairs is the cheapest set of stored vertices.
Its actual cost counts. `queued_reforwarding` returns the same memory much sooner, by two steps that
do not change the least cost:

1. *For one limit*, the vertices accessible from the left are a window that moves to the right, so
   the shortest path follows from the selection paper's queue in O(n) instead of O(n²).
2. *Not every limit is tried.* A higher limit allows more, so the least stored bytes ``c(s)`` never
   increase with the limit `s`. For all limits from `a` on and below `b` the cost is at least
   ``a + c(b)``: if that is no better than the best known, none of them is tried; else the middle
   is. Limits are integers from 0 to the sum of all, so nothing has to be listed. For one that no
   segment attains, ``s + c(s)`` is more than the actual cost, and the actual cost counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from offcert.core.compiled import IntArray, plain
from offcert.heuristics.checkpoint.division_tree import Division, Reading, SetKind, division_tree
from offcert.heuristics.checkpoint.live import (
    PREVIOUS,
    ROWS,
    STORED,
    Selection,
    least_stored,
    path_back,
    size_array,
)
from offcert.questions.selection.graph import CheckpointGraph, GraphSelection

# A row of the scratch array, where `sizes` has a queue. By definition.
BEST = 2


def linear_reforwarding(sizes: Sequence[int]) -> Selection:
    """Return stored vertices of least cost, by a shortest path for every pair of vertices.

    Its memory is that of Eq. (1): stored vertices, without source and target, which every solution
    stores, and the largest sum between two.
    """
    array = size_array(sizes)
    scratch = np.zeros((ROWS, len(array)), np.int64)
    memory = int(best_pair(array, np.cumsum(array), scratch))
    return Selection(path_back(scratch[BEST]), memory - int(array[0] + array[-1]))


@plain
def best_pair(sizes: IntArray, totals: IntArray, scratch: IntArray) -> int:
    """Return the least cost, ends included; row ``BEST`` has the vertex stored before each."""
    count = len(sizes)
    stored, previous = scratch[STORED], scratch[PREVIOUS]
    best = 2 * totals[count - 1]
    for first in range(count - 1):
        for second in range(first + 1, count):
            limit = totals[second - 1] - totals[first]
            stored[0] = sizes[0]
            for i in range(1, count):
                previous[i] = i - 1
                for h in range(i - 2, -1, -1):
                    if totals[i - 1] - totals[h] <= limit and stored[h] < stored[previous[i]]:
                        previous[i] = h
                stored[i] = sizes[i] + stored[previous[i]]
            largest, i = 0, count - 1
            while i > 0:
                largest = max(largest, totals[i - 1] - totals[previous[i]])
                i = previous[i]
            if stored[count - 1] + largest < best:
                best = stored[count - 1] + largest
                for i in range(count):
                    scratch[BEST, i] = previous[i]
    return int(best)


# How often a range is halved, at most. Derived: 64 halvings end at one unit.
_DEPTH = 64


def queued_reforwarding(sizes: Sequence[int]) -> Selection:
    """Return stored vertices of least cost; parameters and result as `linear_reforwarding`."""
    array = size_array(sizes)
    memory, _, previous = _searched(array)
    return Selection(path_back(previous), memory - int(array[0] + array[-1]))


def limits_tried(sizes: Sequence[int]) -> int:
    """Return for how many limits `queued_reforwarding` looks for a shortest path."""
    return _searched(size_array(sizes))[1]


def _searched(sizes: IntArray) -> tuple[int, int, IntArray]:
    """Return the least cost, ends included, the limits tried, and each vertex's predecessor."""
    scratch = np.zeros((ROWS, len(sizes)), np.int64)
    waiting = np.zeros((3, 2 * _DEPTH), np.int64)
    memory, tried = search_limits(sizes, np.cumsum(sizes), scratch, waiting)
    return int(memory), int(tried), scratch[PREVIOUS]


@plain
def search_limits(
    sizes: IntArray, totals: IntArray, scratch: IntArray, waiting: IntArray
) -> tuple[int, int]:
    """Return the least cost, ends included, and the limits tried; leave the best path behind.

    Rows of `waiting` are ranges of limits: the first, the first beyond, and ``c`` there.
    """
    last = len(sizes) - 1
    # With both ends alone: no limit above their segment changes anything.
    whole = totals[last - 1] - totals[0]
    best, chosen, tried = whole + sizes[0] + sizes[last], whole, 0
    waiting[0, 0], waiting[1, 0], waiting[2, 0] = 0, whole, sizes[0] + sizes[last]
    count = 1
    while count > 0:
        count -= 1
        low, high, above = waiting[0, count], waiting[1, count], waiting[2, count]
        if low >= high or low + above >= best:
            continue
        middle = low + (high - low) // 2
        stored = least_stored(sizes, totals, middle, scratch)
        tried += 1
        largest, i = 0, last
        while i > 0:
            before = scratch[PREVIOUS, i]
            largest = max(largest, totals[i - 1] - totals[before])
            i = before
        if stored + largest < best:
            best, chosen = stored + largest, middle
        # From `largest` up to the middle the same is stored, and `largest` has been tried.
        waiting[0, count], waiting[1, count], waiting[2, count] = middle + 1, high, above
        count += 1
        waiting[0, count], waiting[1, count], waiting[2, count] = low, largest, stored
        count += 1
    least_stored(sizes, totals, chosen, scratch)
    return int(best), int(tried)


def cheapest_leaps(joints: Sequence[int], between: Sequence[int], limit: int) -> list[int]:
    """Return which joints to store: the shortest path in the accessibility graph.

    The ends of the row are stored by somebody else. From one stored joint to the next, what is
    leapt over (joints and closed sets) has at most `limit` bytes. It takes linear time: where a
    leap may begin only moves forward, and a queue keeps the cheapest of those places at its head
    (as in Algorithm 3 of the selection paper).
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
    """The selection that Algorithm 5 finds, and its cost."""

    # The best of the selections that it looks at, by the bytes of what is stored and of the largest
    # weakly connected component of the rest.
    selection: GraphSelection
    max_term: int  # The max term that led to it.
    # Bytes: the least total by the paper's own sum, the stored bytes and the largest cost of a
    # closed set or row that is leapt over. Equal to ``selection.objective`` on every graph that was
    # tried; below it with `Reading.ALGORITHM`, where members of a split hang together.
    stated: int
    max_terms: int

    @property
    def objective(self) -> int:
        """Bytes of the selection: of the stored vertices, and of the largest component."""
        return self.selection.objective


def arbitrary_graph_solver(
    graph: Any | CheckpointGraph, reading: Reading = Reading.DEFINITION
) -> ArbitrarySolution:
    """Choose vertices to store by the arbitrary-graph solver (re-forwarding paper, Algorithm 5).

    For every max term, closed sets that cost more are expanded: what they are divided at is stored,
    and the members of the division are looked at in turn. What stays in a row unexpanded in a
    splittable set is solved as a chain is. The graph has one source and one target, whose bytes are
    counted nowhere; as a networkx graph, vertices have their bytes as ``size``.

    Decided where the paper leaves it open: the whole graph is expanded like any other closed set,
    only if it costs more than the max term. Max terms are the costs of all closed sets of the
    division tree and of all rows of neighbours in splittable ones; between two of them nothing that
    the algorithm does changes. A selection is judged by what it really costs (line 10), not by the
    max term.
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

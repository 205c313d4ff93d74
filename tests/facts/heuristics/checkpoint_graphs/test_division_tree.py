"""Closed sets, splitting vertices, branches, maximal splits and the tree of all of them."""

from __future__ import annotations

from collections import Counter

import networkx
import pytest

from offcert.heuristics.checkpoint.division_tree import (
    ClosedSet,
    Division,
    Reading,
    SetKind,
    branches,
    closed_set,
    division_tree,
    is_branched,
    is_splitting_vertex,
    maximal_split,
    splitting_vertices,
    whole,
)
from offcert.questions.selection.graph import CheckpointGraph, bits
from support.oracles.graphs import random_graphs


def graph(count: int, *edges: tuple[int, int]) -> CheckpointGraph:
    return CheckpointGraph([0] + [2**v for v in range(count - 2)] + [0], edges)


# Two crossing branches: the paper's figure 4 (c), numbered from 0.
CROSSING = graph(4, (0, 1), (0, 2), (1, 2), (1, 3), (2, 3))
# A chain whose second vertex also depends on the source.
DEPENDING = graph(4, (0, 1), (0, 2), (1, 2), (2, 3))


def members(closed: ClosedSet | None) -> set[int] | None:
    return None if closed is None else set(bits(closed.inner))


def edges_of(tensors: CheckpointGraph, closed: ClosedSet) -> set[tuple[int, int]]:
    """Definition 1, Property 2: all edges between its vertices, that from end to end if it is."""
    return {
        (tail, head)
        for tail, head in tensors.edges
        if closed.closure >> tail & 1
        and closed.closure >> head & 1
        and ((tail, head) != (closed.source, closed.target) or closed.edge)
    }


def test_what_depends_on_others_is_in_no_closed_set() -> None:
    """Figure 3 (a): a vertex between two others that an outer one leads to as well."""
    shared = graph(5, (0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (3, 4))
    assert closed_set(shared, 1, 3) == ClosedSet(1, 3, 0, True)
    assert closed_set(shared, 1, 3, Reading.ALGORITHM) is None
    assert members(closed_set(shared, 0, 3)) == {1, 2}


def test_the_largest_closed_set_leaves_out_branches_that_are_not_closed() -> None:
    # From 1 to 4: 2 is closed; 3 is not, as 0 leads to it.
    tensors = graph(6, (0, 1), (0, 3), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5))
    assert members(closed_set(tensors, 1, 4)) == {2}
    assert closed_set(tensors, 1, 4, Reading.ALGORITHM) is None
    assert closed_set(tensors, 2, 3) is None


def test_splitting_vertices_by_hand() -> None:
    """Algorithm 2: an edge past a vertex, also that from end to end, forbids it to split."""
    assert splitting_vertices(DEPENDING, whole(DEPENDING)) == [2]
    assert splitting_vertices(CROSSING, whole(CROSSING)) == []
    chain = graph(4, (0, 1), (1, 2), (2, 3))
    assert splitting_vertices(chain, whole(chain)) == [1, 2]
    past = graph(4, (0, 1), (1, 2), (2, 3), (0, 3))
    assert splitting_vertices(past, whole(past)) == []
    branch = ClosedSet(0, 3, whole(past).inner, edge=False)
    assert is_splitting_vertex(past, branch, 1)


def test_branches_by_hand() -> None:
    """Algorithm 3: the edge from end to end is a branch, too."""
    past = graph(4, (0, 1), (1, 2), (2, 3), (0, 3))
    assert is_branched(past, whole(past))
    assert branches(past, whole(past)) == [
        ClosedSet(0, 3, 0b110, False),
        ClosedSet(0, 3, 0, True),
    ]
    assert not is_branched(CROSSING, whole(CROSSING))
    edge = graph(2, (0, 1))
    assert not is_branched(edge, whole(edge))


def test_the_maximal_split_of_the_papers_figure() -> None:
    """Figure 4 (c): five members, by their ends."""
    split = maximal_split(CROSSING, whole(CROSSING))
    ends = [(member.source, member.target) for member in split]
    assert ends == [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]
    # Every arrow of the figure may be a chain.
    longer = networkx.DiGraph()
    for tail, head in CROSSING.edges:
        longer.add_edge(tail, f"{tail}-{head}")
        longer.add_edge(f"{tail}-{head}", head)
    networkx.set_node_attributes(longer, 1, "size")
    tensors = CheckpointGraph.of(longer)
    tree = division_tree(tensors)
    assert tree.kind is SetKind.NON_BRANCHED
    assert [tensors.names[v] for v in tree.joints] == ["1", "2"]
    assert [child.cost for child in tree.children] == [1] * 5


def test_the_division_tree_of_a_block_with_a_shortcut() -> None:
    tensors = graph(6, (0, 1), (1, 2), (2, 3), (3, 4), (1, 4), (4, 5))
    tree = division_tree(tensors)
    assert (tree.kind, tree.joints) == (SetKind.SPLITTABLE, (1, 4))
    first, block, last = tree.children
    assert (first.kind, last.kind) == (SetKind.EDGE, SetKind.EDGE)
    assert (block.kind, block.joints) == (SetKind.BRANCHED, ())
    assert [child.kind for child in block.children] == [SetKind.SPLITTABLE, SetKind.EDGE]
    assert block.children[0].joints == (2, 3)


@pytest.mark.parametrize("reading", Reading)
def test_trees_of_random_graphs(reading: Reading) -> None:
    """Types exclude each other; members and joints of a division are its members, once each.

    By Definition 1 the members of a division share out its edges (Theorem 1: complete). By
    Algorithm 4 as printed, some edges belong to none of them.
    """
    kinds: Counter[SetKind] = Counter()
    missing = 0
    for tensors in random_graphs(150, most=11):
        for node in division_tree(tensors, reading).nodes():
            kinds[node.kind] += 1
            check_node(tensors, node)
            if node.kind is SetKind.NON_BRANCHED:
                missing += check_split(tensors, node, reading)
    assert min(kinds.values()) > 30
    assert bool(missing) == (reading is Reading.ALGORITHM)


def check_node(tensors: CheckpointGraph, node: Division) -> None:
    inner = set(bits(node.closed.inner))
    assert node.cost == tensors.size_of(inner)
    outside = node.closed.closure
    assert all(not tensors.neighbours[v] & ~outside for v in inner)
    covered = {v for child in node.children for v in bits(child.closed.inner)}
    assert covered | set(node.joints) == inner
    assert not covered & set(node.joints)
    if node.kind is not SetKind.EDGE:
        assert len(node.children) > 1
    if node.kind in (SetKind.SPLITTABLE, SetKind.BRANCHED):
        shared = [edges_of(tensors, child.closed) for child in node.children]
        assert sum(map(len, shared)) == len(set().union(*shared))
        assert set().union(*shared) == edges_of(tensors, node.closed)


def check_split(tensors: CheckpointGraph, node: Division, reading: Reading) -> int:
    """Check Definition 7 and return how many edges belong to no member."""
    parts = [edges_of(tensors, child.closed) for child in node.children]
    if reading is Reading.DEFINITION:
        assert sum(map(len, parts)) == len(set().union(*parts))
    for one in parts:
        assert not any(one < other for other in parts)
    return len(edges_of(tensors, node.closed) - set().union(*parts))

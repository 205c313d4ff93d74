"""The division tree of a graph: closed sets divided into closed sets, down to single edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from offcert.questions.selection.graph import CheckpointGraph, bits


class Reading(StrEnum):
    """How the paper's "closed set between two vertices" is read.

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

    Source and target are no members; these stand as bits, none for a set that is only an edge. The
    edge from source to target may belong to it (Property 2 allows both).
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
    """Return the largest closed set between two vertices, or None if there is none."""
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


def maximal_split(
    graph: CheckpointGraph, closed: ClosedSet, reading: Reading = Reading.DEFINITION
) -> list[ClosedSet]:
    """Return the maximal split (re-forwarding paper, Definition 7 and Algorithm 4).

    Forms a closed set for every pair of vertices of ``[s_ij]`` but the pair of its ends, and keeps
    those that lie in no other one that is formed. Line 3 is printed with the opposite condition
    ("if there exists a vertex outside with a connection"); the paper's Property 3 and its examples
    show that a closed set is formed if there is none.
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


def is_splitting_vertex(graph: CheckpointGraph, closed: ClosedSet, vertex: int) -> bool:
    """Return whether a member splits its closed set (re-forwarding paper, Algorithm 2).

    It does if every other vertex of the set, both ends among them, has a path to it or from it, and
    no edge of the set leads past it. The edge from end to end is such an edge if it belongs to the
    set, whatever the graph has besides.
    """
    before = graph.ancestors[vertex] & closed.closure
    after = graph.descendants[vertex] & closed.closure
    if before | after | 1 << vertex != closed.closure:
        return False
    if closed.edge:
        return False
    return all(not _heads(graph, closed, tail) & after for tail in bits(before))


def splitting_vertices(graph: CheckpointGraph, closed: ClosedSet) -> list[int]:
    """Return the splitting vertices of a closed set, from its source to its target."""
    return [v for v in bits(closed.inner) if is_splitting_vertex(graph, closed, v)]


def _heads(graph: CheckpointGraph, closed: ClosedSet, tail: int) -> int:
    """Return the vertices to which edges of a closed set lead from a vertex, as bits."""
    heads = graph.successors[tail] & closed.closure
    if tail == closed.source and not closed.edge:
        heads &= ~(1 << closed.target)
    return heads


class SetKind(StrEnum):
    """The three types of closed sets (Definitions 4 to 6), and an edge, which has no members."""

    SPLITTABLE = "splittable"
    BRANCHED = "branched"
    NON_BRANCHED = "non-branched"
    EDGE = "edge"


@dataclass(frozen=True)
class Division:
    """A closed set, and the closed sets that it is divided into (Definitions 8 and 9)."""

    closed: ClosedSet
    kind: SetKind
    cost: int  # Bytes of its members.
    # The members of the division. Of a splittable set, from its source to its target.
    children: tuple[Division, ...]
    # Vertices that belong to none of them: splitting vertices, or the ends of the members of a
    # maximal split. The paper's tree has single tensors as leaves; here a tensor is a joint of the
    # closed set that is divided at it, and the leaves are edges.
    joints: tuple[int, ...]

    def nodes(self) -> Iterator[Division]:
        """Yield this division and all below it."""
        yield self
        for child in self.children:
            yield from child.nodes()


def division_tree(graph: CheckpointGraph, reading: Reading = Reading.DEFINITION) -> Division:
    """Return the division tree of a graph (re-forwarding paper, Definition 9, Algorithms 2-4)."""
    return _divide(graph, whole(graph), reading)


def _divide(graph: CheckpointGraph, closed: ClosedSet, reading: Reading) -> Division:
    kind, parts = _parts(graph, closed, reading)
    children = tuple(_divide(graph, part, reading) for part in parts)
    inside = 0
    for part in parts:
        inside |= part.inner
    joints = tuple(bits(closed.inner & ~inside))
    return Division(closed, kind, closed.cost(graph), children, joints)


def _parts(
    graph: CheckpointGraph, closed: ClosedSet, reading: Reading
) -> tuple[SetKind, list[ClosedSet]]:
    if not closed.inner:
        return SetKind.EDGE, []
    if cuts := splitting_vertices(graph, closed):
        return SetKind.SPLITTABLE, _segments(graph, closed, cuts)
    if is_branched(graph, closed):
        return SetKind.BRANCHED, branches(graph, closed)
    return SetKind.NON_BRANCHED, maximal_split(graph, closed, reading)


def _segments(graph: CheckpointGraph, closed: ClosedSet, cuts: list[int]) -> list[ClosedSet]:
    """Return the closed sets between neighbouring splitting vertices."""
    ends = [closed.source, *cuts, closed.target]
    found = []
    for source, target in pairwise(ends):
        inner = graph.descendants[source] & graph.ancestors[target] & closed.inner
        edge = bool(graph.successors[source] >> target & 1)
        found.append(ClosedSet(source, target, inner, edge))
    return found

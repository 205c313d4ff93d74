"""The division tree of a graph: closed sets divided into closed sets, down to single edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from offcert.core.checkpoint_graph import CheckpointGraph, bits
from offcert.heuristics.checkpoint_graphs.branches import branches, is_branched
from offcert.heuristics.checkpoint_graphs.closed_sets import ClosedSet, Reading, whole
from offcert.heuristics.checkpoint_graphs.maximal_split import maximal_split
from offcert.heuristics.checkpoint_graphs.splitting import splitting_vertices


class Kind(StrEnum):
    """The three types of closed sets (Definitions 4 to 6), and an edge, which has no members."""

    SPLITTABLE = "splittable"
    BRANCHED = "branched"
    NON_BRANCHED = "non-branched"
    EDGE = "edge"


@dataclass(frozen=True)
class Division:
    """A closed set, and the closed sets that it is divided into (Definitions 8 and 9).

    Attributes
    ----------
    closed : ClosedSet
        What is divided.
    kind : Kind
        How.
    cost : int
        Bytes of its members.
    children : tuple of Division
        The members of the division. Of a splittable set, from its source to its target.
    joints : tuple of int
        Vertices that belong to none of them: splitting vertices, or the ends of the members of a
        maximal split. The paper's tree has single tensors as leaves; here a tensor is a joint of
        the closed set that is divided at it, and the leaves are edges.
    """

    closed: ClosedSet
    kind: Kind
    cost: int
    children: tuple[Division, ...]
    joints: tuple[int, ...]

    def nodes(self) -> Iterator[Division]:
        """Yield this division and all below it."""
        yield self
        for child in self.children:
            yield from child.nodes()


def division_tree(graph: CheckpointGraph, reading: Reading = Reading.DEFINITION) -> Division:
    """Return the division tree of a graph (re-forwarding paper, Definition 9, Algorithms 2 to 4).

    Parameters
    ----------
    graph : CheckpointGraph
        The computation graph.
    reading : Reading
        What a maximal split is made of.
    """
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
) -> tuple[Kind, list[ClosedSet]]:
    if not closed.inner:
        return Kind.EDGE, []
    if cuts := splitting_vertices(graph, closed):
        return Kind.SPLITTABLE, _segments(graph, closed, cuts)
    if is_branched(graph, closed):
        return Kind.BRANCHED, branches(graph, closed)
    return Kind.NON_BRANCHED, maximal_split(graph, closed, reading)


def _segments(graph: CheckpointGraph, closed: ClosedSet, cuts: list[int]) -> list[ClosedSet]:
    """Return what lies between neighbouring splitting vertices."""
    ends = [closed.source, *cuts, closed.target]
    found = []
    for source, target in pairwise(ends):
        inner = graph.descendants[source] & graph.ancestors[target] & closed.inner
        edge = bool(graph.successors[source] >> target & 1)
        found.append(ClosedSet(source, target, inner, edge))
    return found

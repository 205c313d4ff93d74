"""`CheckpointGraph`: values that are computed from each other, some of which may be stored."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.trace import LARGEST_TOTAL, require_integer

if TYPE_CHECKING:
    import networkx

# The attribute of a networkx vertex that holds its bytes.
SIZE = "size"


@dataclass(frozen=True)
class GraphSelection:
    """Stored vertices of a graph, and their cost in the papers' model."""

    stored: tuple[int, ...]  # Inner vertices that stay in memory, increasing.
    # Weakly connected components of the inner vertices that are not stored, each increasing, in the
    # order of their first vertices: what is computed again together.
    components: tuple[tuple[int, ...], ...]
    stored_bytes: int  # Of the stored vertices together.
    component_bytes: int  # Of the largest component; 0 if there is none.

    @property
    def objective(self) -> int:
        """Bytes of the stored vertices, and of the largest component."""
        return self.stored_bytes + self.component_bytes


@dataclass(frozen=True)
class CheckpointGraph:
    """A directed acyclic graph of tensors with one source and one target (re-forwarding paper, §4).

    Vertex 0 is the source and the last vertex the target; vertices are numbered in a topological
    order. Both ends are there all the time, whatever is decided, so their bytes count nowhere: the
    objective of a selection is the bytes of what is stored among the *inner* vertices, and of the
    largest weakly connected component of the other inner vertices (Eq. 1 on a chain). The peak
    memory of the model is that and the constant bytes of both ends.
    """

    sizes: tuple[int, ...]  # Bytes of every vertex.
    # Each from a smaller to a larger number; every inner vertex has one in and one out.
    edges: tuple[tuple[int, int], ...]
    names: tuple[str, ...]  # For people; the numbers by default.

    def __init__(
        self,
        sizes: Iterable[int],
        edges: Iterable[tuple[int, int]],
        names: Iterable[str] | None = None,
    ) -> None:
        sizes = tuple(sizes)
        labels = map(str, range(len(sizes))) if names is None else names
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "edges", tuple(sorted((int(u), int(v)) for u, v in edges)))
        object.__setattr__(self, "names", tuple(labels))
        self._validate()

    def _validate(self) -> None:
        count = len(self.sizes)
        if count < 2:
            raise InputError(f"a graph must have a source and a target, not {count} vertices")
        if len(self.names) != count:
            raise InputError(f"graph.names must have {count} entries, not {len(self.names)}")
        for vertex, size in enumerate(self.sizes):
            require_integer(size, f"graph.sizes[{vertex}]", 0)
        if sum(self.sizes) >= LARGEST_TOTAL:
            raise InputError("the sizes of a graph must sum to less than 2**61 bytes")
        for index, (tail, head) in enumerate(self.edges):
            if not 0 <= tail < head < count:
                raise InputError(
                    f"graph.edges[{index}] must lead from a vertex to a later one below {count}, "
                    f"not from {tail} to {head}"
                )
        if len(set(self.edges)) < len(self.edges):
            twice = next(a for a, b in zip(self.edges, self.edges[1:], strict=False) if a == b)
            raise InputError(f"graph.edges has the edge from {twice[0]} to {twice[1]} twice")
        tails, heads = {tail for tail, _ in self.edges}, {head for _, head in self.edges}
        for vertex in range(count):
            if (vertex and vertex not in heads) or (vertex < count - 1 and vertex not in tails):
                raise InputError(
                    f"graph: vertex {vertex} ({self.names[vertex]}) must lie between the source "
                    "and the target"
                )

    @classmethod
    def of(cls, graph: networkx.DiGraph | CheckpointGraph) -> CheckpointGraph:
        """Return a networkx graph, whose vertices have their bytes as attribute ``size``.

        Vertices are numbered in a topological order, which is that of insertion where it can be.
        Names are the keys as strings.
        """
        if isinstance(graph, CheckpointGraph):
            return graph
        return cls(*_numbered(graph))

    def digraph(self) -> networkx.DiGraph:
        """Return the graph for networkx: numbers as keys, attributes ``size`` and ``name``."""
        import networkx

        graph = networkx.DiGraph()
        for vertex, (size, name) in enumerate(zip(self.sizes, self.names, strict=True)):
            graph.add_node(vertex, size=size, name=name)
        graph.add_edges_from(self.edges)
        return graph

    def __len__(self) -> int:
        """Return the number of vertices, both ends among them."""
        return len(self.sizes)

    def __repr__(self) -> str:
        return (
            f"<CheckpointGraph: {len(self)} vertices, {len(self.edges)} edges; "
            f"{self.inner_bytes} bytes inside>"
        )

    @property
    def inner(self) -> range:
        """The vertices between source and target."""
        return range(1, len(self) - 1)

    @cached_property
    def inner_bytes(self) -> int:
        """Bytes of all inner vertices: the objective if everything, or nothing, is stored."""
        return sum(self.sizes[1:-1])

    @cached_property
    def successors(self) -> tuple[int, ...]:
        """For each vertex, those that it has an edge to, as bits."""
        rows = [0] * len(self)
        for tail, head in self.edges:
            rows[tail] |= 1 << head
        return tuple(rows)

    @cached_property
    def predecessors(self) -> tuple[int, ...]:
        """For each vertex, those that have an edge to it, as bits."""
        rows = [0] * len(self)
        for tail, head in self.edges:
            rows[head] |= 1 << tail
        return tuple(rows)

    @cached_property
    def neighbours(self) -> tuple[int, ...]:
        """For each vertex, those with an edge to or from it, as bits."""
        both = zip(self.successors, self.predecessors, strict=True)
        return tuple(out | into for out, into in both)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """For each vertex, those with a path from it, as bits; itself not among them."""
        rows = [0] * len(self)
        for vertex in reversed(range(len(self))):
            for head in bits(self.successors[vertex]):
                rows[vertex] |= rows[head] | 1 << head
        return tuple(rows)

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """For each vertex, those with a path to it, as bits; itself not among them."""
        rows = [0] * len(self)
        for vertex in range(len(self)):
            for tail in bits(self.predecessors[vertex]):
                rows[vertex] |= rows[tail] | 1 << tail
        return tuple(rows)

    def size_of(self, vertices: Iterable[int]) -> int:
        """Return the bytes of some vertices together."""
        return sum(self.sizes[vertex] for vertex in vertices)

    def components(self, vertices: int) -> Iterator[int]:
        """Yield the weakly connected components of some vertices, all of them as bits.

        Neighbours that are not among `vertices` connect nothing. The components come in the order
        of their least vertices.
        """
        left = vertices
        while left:
            found = border = left & -left
            while border:
                reached = 0
                for vertex in bits(border):
                    reached |= self.neighbours[vertex]
                border = reached & left & ~found
                found |= border
            left &= ~found
            yield found

    def select(self, stored: Iterable[int]) -> GraphSelection:
        """Return the bytes needed to store some inner vertices and compute the others again."""
        chosen = sorted(set(stored))
        for vertex in chosen:
            if not 0 < vertex < len(self) - 1:
                raise InputError(
                    f"stored vertices must be from 1 to {len(self) - 2}, not {vertex}: source and "
                    "target are always there"
                )
        kept = sum(1 << vertex for vertex in chosen)
        inside = (1 << len(self) - 1) - 2
        parts = [tuple(bits(part)) for part in self.components(inside & ~kept)]
        largest = max((self.size_of(part) for part in parts), default=0)
        return GraphSelection(tuple(chosen), tuple(parts), self.size_of(chosen), largest)


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, increasing."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _numbered(
    graph: networkx.DiGraph,
) -> tuple[list[int], list[tuple[int, int]], list[str]]:
    """Return sizes, edges and names in a topological order."""
    import networkx

    if not graph.is_directed():
        raise InputError("a graph must be directed")
    position = {vertex: index for index, vertex in enumerate(graph)}
    try:
        order: list[Hashable] = list(
            networkx.lexicographical_topological_sort(graph, key=position.__getitem__)
        )
    except networkx.NetworkXUnfeasible:
        raise InputError("a graph must not have a cycle") from None
    for name, degree in (("source", graph.in_degree), ("target", graph.out_degree)):
        ends = [vertex for vertex in order if degree(vertex) == 0]
        if len(ends) != 1:
            raise InputError(
                f"a graph must have one {name}, not {len(ends)}: {short_repr(ends[:3])}"
            )
    order.sort(key=lambda vertex: graph.out_degree(vertex) == 0)
    number = {vertex: index for index, vertex in enumerate(order)}
    sizes = []
    for vertex in order:
        if SIZE not in graph.nodes[vertex]:
            raise InputError(f"vertex {short_repr(vertex)} has no attribute {SIZE!r}")
        sizes.append(graph.nodes[vertex][SIZE])
    edges = [(number[tail], number[head]) for tail, head in graph.edges()]
    return sizes, edges, [str(vertex) for vertex in order]

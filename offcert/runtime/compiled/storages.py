"""Between which nodes a storage is off the device: the stretches of a plan, in the graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import fx

from offcert.runtime.compiled.anchors import Anchors
from offcert.runtime.compiled.graph_pair import (
    GraphPair,
    is_backward,
    launches,
    storage_of,
    tensor_of,
)
from offcert.runtime.compiled.planned import Planned, PlannedMove
from offcert.runtime.watch.saved_hooks import SavedPlace, dtype_name

# How often what an operation makes is changed in place by those after it: what is added to it, and
# a function of that. Arbitrary.
_CHANGES = 3


@dataclass(eq=False)
class GraphStorage:
    """Nodes of the forward graph whose tensors share their memory."""

    nodes: list[fx.Node] = field(default_factory=list)  # In their order; the first one makes it
    # Nodes that are saved for the backward graph.
    saved: list[fx.Node] = field(default_factory=list)
    returned: bool = False  # Whether one of them goes to the caller

    @property
    def size(self) -> int:
        """Bytes."""
        tensor = tensor_of(self.nodes[0])
        assert tensor is not None
        return int(tensor.untyped_storage().nbytes())

    @property
    def whole(self) -> fx.Node | None:
        """The first node whose tensor is all of it, without a gap or a byte twice; None without."""
        for node in self.nodes:
            tensor = tensor_of(node)
            assert tensor is not None
            if tensor.numel() * tensor.itemsize == self.size and is_dense(tensor):
                return node
        return None

    def why_not(self) -> str | None:
        """Return why it cannot be moved, if that is so."""
        if self.nodes[0].op == "placeholder":
            return "it is an input of the graph"
        if self.returned:
            return "it is an output of the graph, which the caller holds"
        whole = self.whole
        if whole is None:
            return "no node of the graph is all of it"
        dtypes = {tensor.dtype for tensor in map(tensor_of, self.nodes) if tensor is not None}
        if len(dtypes) > 1:
            return "the graph looks at it as several data types"
        return None


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether every element has a place of its own, and there are no others between them."""
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def _any_like(nodes: Sequence[fx.Node], place: SavedPlace) -> bool:
    """Whether one of some nodes computes a tensor of the type and shape of a place."""
    tensors = [tensor for tensor in map(tensor_of, nodes) if tensor is not None]
    return any(
        dtype_name(tensor.dtype) == place.dtype and tuple(tensor.shape) == place.shape
        for tensor in tensors
    )


class GraphStorages:
    """All storages of a forward graph, by their nodes."""

    def __init__(self, pair: GraphPair, owned: Iterable[str] = ()) -> None:
        # What the model holds is no place of a plan.
        self._owned = set(owned)
        by_address: dict[int, GraphStorage] = {}
        self._of: dict[fx.Node, GraphStorage] = {}
        for node in pair.nodes[: pair.forward_end]:
            address = storage_of(node)
            if address is not None:
                storage = by_address.setdefault(address, GraphStorage())
                storage.nodes.append(node)
                self._of[node] = storage
        for node in pair.returned:
            if node in self._of:
                self._of[node].returned = True
        for node in pair.saved:
            if node in self._of and node.name in pair.inputs:
                self._of[node].saved.append(node)

    def of(self, node: fx.Node) -> GraphStorage | None:
        """Return the storage of what a node computes, if it is a tensor."""
        return self._of.get(node)

    def found(self, planned: Planned, anchors: Anchors) -> dict[SavedPlace, GraphStorage]:
        """Return the storages that the plan knows by places.

        Autograd saves what an operation is given or makes. So a place is the first storage among
        the inputs and the results of the operation's nodes, in their order, that is saved for the
        backward graph, is no place yet, and has the size, and the data type and shape in what is
        saved of it; or else in any view of it.
        """
        taken: set[GraphStorage] = set()
        found: dict[SavedPlace, GraphStorage] = {}
        # What the program changes in place afterwards, the graph computes into another storage.
        for look in (self._around, self._behind, self._before):
            for place in planned.saved:
                if place in found:
                    continue
                rows = look(anchors, place.operation, planned)
                like = [
                    each
                    for each in rows
                    if each.saved and each not in taken and each.size == place.size
                ]
                storage = next((each for each in like if _any_like(each.saved, place)), None)
                if storage is None:
                    storage = next((each for each in like if _any_like(each.nodes, place)), None)
                if storage is not None:
                    taken.add(storage)
                    found[place] = storage
        for place in planned.saved:
            if place not in found and place.size:
                near = self._around(anchors, place.operation, planned)
                storage = self._instead(place, near, taken)
                if storage is not None:
                    taken.add(storage)
                    found[place] = storage
        return found

    def _instead(
        self, place: SavedPlace, near: list[GraphStorage], taken: set[GraphStorage]
    ) -> GraphStorage | None:
        """Return the storage that is saved instead of one that the graph only makes.

        Where the program hands grouped heads to attention, the graph repeats them before.
        """
        for each in near:
            if each.saved or each.size != place.size or not _any_like(each.nodes, place):
                continue
            repeated: Iterable[fx.Node] = each.nodes
            for _ in range(_CHANGES):
                repeated = dict.fromkeys(user for node in repeated for user in node.users)
                sizes = {
                    storage.size
                    for node in repeated
                    if (storage := self._of.get(node)) and storage.saved
                }
                for other in near:
                    # A place before this one may have taken what was repeated, for what it is like.
                    if (
                        other.size in sizes
                        and other.size > place.size
                        and other.saved
                        and other not in taken
                        and dtype_name(other.nodes[0].meta["val"].dtype) == place.dtype
                    ):
                        return other
        return None

    def _behind(self, anchors: Anchors, operation: int, planned: Planned) -> list[GraphStorage]:
        """Return the storages that the next few operators compute of what an operation makes."""
        rows: list[GraphStorage] = []
        last: Iterable[fx.Node] = anchors.nodes(operation)
        for _ in range(_CHANGES if operation in planned.kept else 0):
            last = dict.fromkeys(
                user
                for node in last
                for user in node.users
                if user.op == "call_function" and not is_backward(user)
            )
            rows += [self._of[node] for node in last if node in self._of]
        return rows

    def _before(self, anchors: Anchors, operation: int, planned: Planned) -> list[GraphStorage]:
        """Return the storages that the next operation is given; a segment saves them before it."""
        last = operation + 1 == len(anchors.found)
        nodes = () if last else anchors.nodes(operation + 1)
        near = [self._of.get(each) for node in nodes for each in node.all_input_nodes]
        return [each for each in near if each and each.nodes[0].name not in self._owned]

    def _around(self, anchors: Anchors, operation: int, planned: Planned) -> list[GraphStorage]:
        """Return the storages near an operation; if it is one operator alone, also near the next.

        What that is given is saved before it begins. What a segment keeps are results.
        """
        nodes = anchors.nodes(operation)
        order = [each for node in nodes for each in (*node.all_input_nodes, node)]
        if operation in planned.kept:
            order = [*nodes, *order]
        elif planned.by_operators and operation > 0:
            following = anchors.nodes(operation + 1)
            order = [*nodes, *(each for node in following for each in node.all_input_nodes), *order]
        near = dict.fromkeys(self._of[node] for node in order if node in self._of)
        return [each for each in near if each.nodes[0].name not in self._owned]


def why_missing(place: SavedPlace, anchors: Anchors) -> str:
    """Return why a place was not found in the graphs."""
    shape = "x".join(map(str, place.shape)) or "scalar"
    return anchors.why_no_nodes(place.operation) or (
        f"the graph saves no {place.dtype} tensor of shape {shape} and {place.size} bytes there"
    )


def same_layout(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors over equal storages are the same tensor."""
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.storage_offset() == other.storage_offset()
    )


@dataclass(frozen=True)
class Absence:
    """One stretch, in positions."""

    release: int  # Right before this node the storage has left
    claim: int  # Right before this node its return begins
    use: int  # Right before this node it is back


@dataclass(frozen=True)
class Timing:
    """All stretches of a storage, in order, and whether they are those of the plan."""

    absences: tuple[Absence, ...]
    exact: bool


def uses(storage: GraphStorage, pair: GraphPair) -> list[int]:
    """Return the positions of the nodes that need a storage, the one that makes it first."""
    members = set(storage.nodes)
    found = {pair.place[node] for node in storage.nodes}
    readers = [user for node in storage.nodes for user in node.users]
    readers += [user for node in storage.saved for user in pair.inputs[node.name].users]
    found.update(pair.place[node] for node in readers if node.op != "output")
    assert pair.nodes[min(found)] in members
    return sorted(found)


def timing(
    moved: PlannedMove, storage: GraphStorage, anchors: Anchors, pair: GraphPair
) -> Timing | str:
    """Return when a storage is away, or why it cannot be.

    A stretch of the plan becomes one between two consecutive uses in the graphs: of all such the
    one that shares most nodes with it. There the storage leaves when the plan says, or right after
    the use before it if that comes later, and returns when the plan says, or at the latest right
    before the use after it. It leaves in the forward graph and returns in the backward graph: what
    a program needs again in its forward pass, it holds until then.
    """
    used = uses(storage, pair)
    absences: list[Absence] = []
    exact = True
    for eviction in moved.evictions:
        release, claim = anchors.begins(eviction.release), anchors.begins(eviction.claim)
        low = absences[-1].use if absences else 0
        pairs = [each for each in pairwise(used) if each[0] >= low and each[1] >= pair.border]
        widest = _widest(pairs, release, claim)
        if widest is None:
            exact = False
            continue
        before, after = widest
        first = max(release, before + 1)
        if before < pair.border <= first:
            # A copy that begins in the forward graph is complete at its end.
            first = pair.forward_end
        last = max(min(max(claim, first), after), pair.backward_begin)
        exact = exact and _same(pair, first, release) and _same(pair, last, claim)
        absences.append(Absence(first, last, after))
    if not absences:
        return "the graphs use it where the plan has it away"
    if absences[0].release > pair.forward_end:
        return "it leaves for the first time during the backward pass"
    return Timing(tuple(absences), exact)


def _same(pair: GraphPair, one: int, other: int) -> bool:
    """Whether nothing is computed between two positions."""
    nodes = pair.nodes[min(one, other) : max(one, other)]
    return not any(launches(node) for node in nodes)


def _widest(pairs: Iterable[tuple[int, int]], release: int, claim: int) -> tuple[int, int] | None:
    """Return the pair of positions with most positions between both of them and of two others."""
    best: tuple[int, int] | None = None
    most = 0
    for before, after in pairs:
        shared = min(after, max(claim, release + 1)) - max(before + 1, release)
        if after - before > 1 and shared > most:
            best, most = (before, after), shared
    return best

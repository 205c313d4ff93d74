"""Puts transfers into a forward and a backward graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode

from offcert.runtime.compiled.graph_pair import GraphPair, tensor_of
from offcert.runtime.compiled.operators import HOLD, OPERATORS
from offcert.runtime.compiled.storages import Absence, GraphStorage, same_layout

HOST = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class GraphTransfer:
    """A storage that moves."""

    storage: GraphStorage  # The storage
    absences: tuple[Absence, ...]  # When it is away; at least once

    @property
    def whole(self) -> fx.Node:
        """The node that is copied: all of the storage."""
        node = self.storage.whole
        assert node is not None
        return node

    @property
    def tensor(self) -> torch.Tensor:
        """The result of the inserted call, without data."""
        tensor = tensor_of(self.whole)
        assert tensor is not None
        return tensor


def insert(transfers: Sequence[GraphTransfer], pair: GraphPair) -> None:
    """Put transfers into the graphs; the pair does not describe them any more.

    What has been copied to the host is freed by the last reference to it: the wait for the copy
    holds it until then. Nothing is freed by force, as somebody else may look at the same memory.
    The host's copy, too, lives as long as it is saved: a second backward pass finds it.
    """
    if transfers:
        _Insertion(transfers, pair).run()


class _Insertion:
    """The insertion of transfers; nodes before the same node stand in the order that they need."""

    def __init__(self, transfers: Sequence[GraphTransfer], pair: GraphPair) -> None:
        self.pair = pair
        self.transfers = transfers
        # The node that is copied for each, which has to live until the copy is complete.
        self.sources: dict[GraphTransfer, fx.Node] = {}
        # The copy of each on the host: in the forward graph, then in the backward graph.
        self.copies: dict[GraphTransfer, fx.Node] = {}
        # Returns that have begun.
        self.begun: dict[tuple[GraphTransfer, Absence], fx.Node] = {}
        # Nodes that stand for an input of the backward graph after its storage has come back.
        self.later: dict[fx.Node, list[fx.Node]] = {}

    def run(self) -> None:
        """Insert all."""
        for each, position in self._starts():
            self._leave(each, position)
        for each in self.transfers:
            self._gone(each)
        self._hand_over()
        rows = [(absence, each) for each in self.transfers for absence in each.absences]
        # Sorting keeps the plan's order among those before the same node.
        for absence, each in sorted(rows, key=lambda row: row[0].claim):
            self._return(each, absence)
        for absence, each in sorted(rows, key=lambda row: row[0].use):
            self._back(each, absence)
        for each in self.transfers:
            for node in each.storage.saved:
                self.pair.backward.graph.erase_node(self.pair.inputs[node.name])
        for module in (self.pair.forward, self.pair.backward):
            module.graph.lint()
            module.recompile()

    def _starts(self) -> list[tuple[GraphTransfer, int]]:
        """Return the node at which each copy begins: once all is made, but after earlier copies.

        PyTorch's operators copy one after the other.
        """
        cursor, found = 0, []
        for each in self.transfers:
            made = self.pair.place[each.whole] + 1
            cursor = min(max(cursor, made), each.absences[0].release)
            found.append((each, cursor))
            cursor = max(cursor, made)
        return found

    def _leave(self, each: GraphTransfer, position: int) -> None:
        name = each.whole.name
        with self.pair.forward.graph.inserting_before(self.pair.nodes[position]):
            source = call(self.pair.forward.graph, HOLD, (each.whole,), f"held_{name}")
            source.meta["val"] = each.tensor
            target = OPERATORS.offload
            node = call(self.pair.forward.graph, target, (source,), f"leave_{name}")
        node.meta["val"] = value_like(each.tensor, HOST)
        self.sources[each] = source
        self.copies[each] = node

    def _gone(self, each: GraphTransfer) -> None:
        copy = self.copies[each]
        with self.pair.forward.graph.inserting_before(self.pair.nodes[each.absences[0].release]):
            arguments = (copy, None, self.sources[each])
            target = OPERATORS.wait
            node = call(self.pair.forward.graph, target, arguments, f"gone_{each.whole.name}")
        node.meta["val"] = copy.meta["val"]
        self.copies[each] = node

    def _hand_over(self) -> None:
        """Save copies instead of storages."""
        pair = self.pair
        output = pair.nodes[pair.forward_end]
        first = {each.storage.saved[0]: each for each in self.transfers}
        rest = {node for each in self.transfers for node in each.storage.saved[1:]}
        results, kept = [*pair.returned], list(range(pair.outputs))
        for number, result in enumerate(pair.saved, pair.outputs):
            if result not in rest:
                results.append(self.copies[first[result]] if result in first else result)
                kept.append(number)
        for name in ("desc", "output_stack_traces"):
            rows = output.meta.get(name)
            if isinstance(rows, list | tuple) and len(rows) == pair.outputs + len(pair.saved):
                output.meta[name] = [rows[number] for number in kept]
        output.args = (tuple(results),)
        for each in self.transfers:
            copy = self.copies[each]
            with pair.backward.graph.inserting_before(pair.inputs[each.storage.saved[0].name]):
                self.copies[each] = pair.backward.graph.placeholder(copy.name)
            self.copies[each].meta.update(copy.meta)

    def _return(self, each: GraphTransfer, absence: Absence) -> None:
        tensor = each.tensor
        size, stride = list(tensor.shape), list(tensor.stride())
        arguments = (self.copies[each], tensor.device, size, stride)
        target = OPERATORS.reload
        with self.pair.backward.graph.inserting_before(self.pair.nodes[absence.claim]):
            node = call(self.pair.backward.graph, target, arguments, f"return_{each.whole.name}")
        node.meta["val"] = value_like(tensor, tensor.device, stride)
        self.begun[each, absence] = node

    def _back(self, each: GraphTransfer, absence: Absence) -> None:
        begun = self.begun[each, absence]
        with self.pair.backward.graph.inserting_before(self.pair.nodes[absence.use]):
            target = OPERATORS.wait
            arguments = (begun, None, self.copies[each])
            whole = call(self.pair.backward.graph, target, arguments, f"back_{each.whole.name}")
            whole.meta["val"] = begun.meta["val"]
            self._use_instead(each, absence.use, whole)

    def _use_instead(self, each: GraphTransfer, use: int, whole: fx.Node) -> None:
        """Let all nodes from a position on read what has come back, seen as what they read."""
        place = self.pair.place
        for member in each.storage.saved:
            old = self.pair.inputs[member.name]
            before = [old, *self.later.get(old, ())]
            users = dict.fromkeys(user for node in before for user in node.users)
            readers = [user for user in users if place.get(user, -1) >= use]
            if not readers:
                continue
            new = self._seen(each, member, whole)
            for user in readers:
                for node in before:
                    user.replace_input_with(node, new)
            self.later.setdefault(old, []).append(new)

    def _seen(self, each: GraphTransfer, member: fx.Node, whole: fx.Node) -> fx.Node:
        """Return a returned storage as the tensor that was saved, which may have been a view."""
        view = tensor_of(member)
        assert view is not None
        if same_layout(view, each.tensor):
            return whole
        lie = (list(view.shape), list(view.stride()), int(view.storage_offset()))
        target = torch.ops.aten.as_strided.default
        node = call(self.pair.backward.graph, target, (whole, *lie), f"seen_{member.name}")
        node.meta["val"] = view
        return node


def call(graph: fx.Graph, target: Any, arguments: Any, name: str) -> fx.Node:
    """Return a new node of a graph that calls one of our operators."""
    node = graph.create_node("call_function", target, arguments, {}, name)
    node.meta["partitioner_tag"] = "is_forward"
    return node


def value_like(
    like: torch.Tensor, device: torch.device, stride: Sequence[int] | None = None
) -> torch.Tensor:
    """Return a tensor without data of the shape and dtype that a node computes."""
    mode = detect_fake_mode((like,))
    assert mode is not None
    shape = tuple(like.shape)
    with mode:
        if stride is None:
            return torch.empty(shape, dtype=like.dtype, device=device)
        return torch.empty_strided(shape, tuple(stride), dtype=like.dtype, device=device)

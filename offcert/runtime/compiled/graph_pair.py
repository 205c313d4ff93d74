"""`GraphPair`: the nodes of the forward graph and then those of the backward graph, in one row."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import fx


def tensor_of(node: fx.Node) -> torch.Tensor | None:
    """Return the tensor without data that a node has computed while it was traced."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return value


def storage_of(node: fx.Node) -> int | None:
    """Return a number that nodes of one graph share if their tensors share memory, or None."""
    tensor = tensor_of(node)
    if tensor is None:
        return None
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return None


def launches(node: fx.Node) -> bool:
    """Whether a node computes something: views, and parts of results, do not."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    storage = storage_of(node)
    return storage is None or all(storage_of(each) != storage for each in node.all_input_nodes)


class GraphPair:
    """A forward and a backward graph; positions count through the nodes of both.

    Parameters
    ----------
    forward, backward : torch.fx.GraphModule
        As the partitioner has made them of a joint graph.
    outputs : int
        How many outputs of the forward graph go to the caller; the others are saved.

    Attributes
    ----------
    nodes : list of torch.fx.Node
        Of both, as they were when this was made.
    border : int
        The position of the first node of the backward graph.
    place : dict
        The position of each node.
    """

    def __init__(self, forward: fx.GraphModule, backward: fx.GraphModule, outputs: int) -> None:
        self.forward = forward
        self.backward = backward
        self.outputs = outputs
        first = list(forward.graph.nodes)
        self.nodes: list[fx.Node] = [*first, *backward.graph.nodes]
        self.border = len(first)
        self.place = {node: position for position, node in enumerate(self.nodes)}

    @property
    def forward_end(self) -> int:
        """The position of the forward graph's output."""
        return self.border - 1

    @property
    def backward_end(self) -> int:
        """The position of the backward graph's output."""
        return len(self.nodes) - 1

    @cached_property
    def backward_begin(self) -> int:
        """The position of the first node of the backward graph that is no input."""
        return next(
            position
            for position in range(self.border, len(self.nodes))
            if self.nodes[position].op != "placeholder"
        )

    @property
    def returned(self) -> Sequence[Any]:
        """The outputs that go to the caller, by their nodes; some are no nodes."""
        return self._results[: self.outputs]

    @property
    def saved(self) -> Sequence[Any]:
        """The outputs that are saved for the backward graph."""
        return self._results[self.outputs :]

    @property
    def _results(self) -> tuple[Any, ...]:
        return tuple(self.nodes[self.forward_end].args[0])  # type: ignore[arg-type]

    @cached_property
    def inputs(self) -> dict[str, fx.Node]:
        """The inputs of the backward graph by name; what is saved has the same name there."""
        nodes = self.nodes[self.border : self.backward_begin]
        return {node.name: node for node in nodes}

"""`GraphPair`: the nodes of the forward graph and then those of the backward graph, in one row.

A node of a graph belongs to a call of a module, which Dynamo has noted.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import fx

from offcert.runtime.torch_private import OpOverload
from offcert.runtime.watch.operators import is_pure

# Text that Dynamo writes before and inside of the path of a module.
_ROOT = re.compile(r"^[LG]\[['\"](.*?)['\"]\]\.?")
_MODULES = re.compile(r"\._modules\[['\"](.*?)['\"]\]")
_INDEX = re.compile(r"\[['\"]?(.*?)['\"]?\]")
# Namespaces of PyTorch's own operators, without those that communicate. Those of others may draw
# random numbers, or keep state, without anybody's knowing.
_OWN = ("aten", "prims")


class CallKey(NamedTuple):
    """A call of a module."""

    path: str  # As in ``model.named_modules()``
    call: int  # How many calls of the module came before it


Stack = tuple[CallKey, ...]


def is_backward(node: fx.Node) -> bool:
    """Whether a node belongs to the backward pass, not to a forward pass that runs again."""
    return node.meta.get("partitioner_tag") == "is_backward"


def is_known(target: Any) -> bool:
    """Whether a function is an operator of PyTorch itself, or one that was declared to be pure."""
    if not isinstance(target, OpOverload):
        return False
    return target.namespace in _OWN or is_pure(target.name().split(".")[0])


def _noted(node: fx.Node) -> list[CallKey]:
    """Return the calls around a node from the outermost one; paths begin at what was compiled."""
    stack: Any = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    calls = []
    for key, entry in stack.items():
        path = entry[0] if isinstance(entry, tuple) else entry
        path = _INDEX.sub(r".\1", _MODULES.sub(r".\1", _ROOT.sub("", str(path))))
        _, _, number = str(key).partition("@")
        calls.append(CallKey(path, int(number) if number.isdigit() else 0))
    return calls


class NodeCalls:
    """The calls that the nodes of graphs belong to, with paths as the plan has them.

    What is compiled may be the model itself, or something that calls it: the beginning that all
    paths have then is the one with which most of them are paths of the plan.
    """

    def __init__(self, nodes: Iterable[fx.Node], known: Iterable[str]) -> None:
        self._noted = {node: _noted(node) for node in nodes}
        paths = {call.path for calls in self._noted.values() for call in calls}
        self.beginning = _beginning(paths, set(known))

    def stack(self, node: fx.Node) -> Stack:
        """Return the calls that a node lies in, from the outermost one, without the model's own."""
        found = []
        for call in self._noted.get(node, ()):
            path = _without(call.path, self.beginning)
            if path:
                found.append(CallKey(path, call.call))
        return tuple(found)


def _without(path: str, beginning: str) -> str | None:
    """Return the rest of a path behind its beginning; None if it begins otherwise."""
    if not beginning:
        return path
    if path == beginning:
        return ""
    return path[len(beginning) + 1 :] if path.startswith(f"{beginning}.") else None


def _beginning(paths: set[str], known: set[str]) -> str:
    score = Counter({"": sum(path in known for path in paths)})
    for path in paths:
        parts = path.split(".")
        for depth in range(1, len(parts)):
            if ".".join(parts[depth:]) in known:
                score[".".join(parts[:depth])] += 1
    most = max(score.values())
    return min((each for each in score if score[each] == most), key=len)


def tensor_of(node: fx.Node) -> torch.Tensor | None:
    """Return the tensor without data that a node has computed while it was traced."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return value


def storage_of(node: fx.Node) -> int | None:
    """Return a number that nodes of one graph share if their tensors share memory, or None."""
    return _storage(node.meta.get("val"))


def _storage(value: Any) -> int | None:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    try:
        return int(value.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return None


def launches(node: fx.Node) -> bool:
    """Whether a node computes something: views, and parts of results, do not."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    made = storages_of(node)
    return not made or made.isdisjoint(
        storage for each in node.all_input_nodes for storage in storages_of(each)
    )


def storages_of(node: fx.Node) -> set[int]:
    """Return the numbers of the storages of a node's result, or of its several results."""
    value = node.meta.get("val")
    rows = value if isinstance(value, list | tuple) else [value]
    return {storage for each in rows if (storage := _storage(each)) is not None}


class GraphPair:
    """A forward and a backward graph; positions count through the nodes of both.

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

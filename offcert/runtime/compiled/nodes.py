"""Nodes of compiled graphs: what they compute, in which memory, and for which module."""

from __future__ import annotations

import operator
import re
from typing import Any

import torch
from torch import fx

from offcert.runtime.compiled.torch_compiler import bytes_of_node
from offcert.runtime.torch_private import OpOverload
from offcert.runtime.watch.operators import is_pure

# A storage: what `storage_of` says, or the name of a node whose result has none.
Key = int | str

# Text that Dynamo writes before and inside of the path of a module.
_ROOT = re.compile(r"^[LG]\[['\"](.*?)['\"]\]\.?")
_MODULES = re.compile(r"\._modules\[['\"](.*?)['\"]\]")
_INDEX = re.compile(r"\[['\"]?(.*?)['\"]?\]")
# Namespaces of PyTorch's own operators, without those that communicate. Those of others may draw
# random numbers, or keep state, without anybody's knowing.
_OWN = ("aten", "prims")


def is_known(target: Any) -> bool:
    """Whether a function is an operator of PyTorch itself, or one that was declared to be pure."""
    if not isinstance(target, OpOverload):
        return False
    return target.namespace in _OWN or is_pure(target.name().split(".")[0])


def module_of(node: fx.Node) -> str:
    """Return the path of the module that a node belongs to, as Dynamo has noted it."""
    stack: Any = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    if not stack:
        return "model"
    entry = list(stack.values())[-1]
    path = entry[0] if isinstance(entry, tuple) else entry
    return _INDEX.sub(r".\1", _MODULES.sub(r".\1", _ROOT.sub("", str(path)))) or "model"


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


def key_of(node: fx.Node) -> Key:
    """Return the storage of a node's result."""
    storage = storage_of(node)
    return node.name if storage is None else storage


def bytes_of(node: fx.Node) -> int:
    """Return the bytes of the storage of a node's result; of sizes that are not known, a hint."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and storage_of(node) is not None:
        size = value.untyped_storage().nbytes()
        if isinstance(size, int):
            return size
    return int(bytes_of_node(node))


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


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether every element has a place of its own, and there are no others between them."""
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True

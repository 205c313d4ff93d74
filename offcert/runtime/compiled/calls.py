"""The call of a module that a node of a graph belongs to, as Dynamo has noted it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import fx

# Text that Dynamo writes before and inside of the path of a module.
_ROOT = re.compile(r"^[LG]\[['\"](.*?)['\"]\]\.?")
_MODULES = re.compile(r"\._modules\[['\"](.*?)['\"]\]")
_INDEX = re.compile(r"\[['\"]?(.*?)['\"]?\]")


class Call(NamedTuple):
    """A call of a module.

    Attributes
    ----------
    path : str
        As in ``model.named_modules()``.
    call : int
        How many calls of the module came before it.
    """

    path: str
    call: int


Stack = tuple[Call, ...]


def is_backward(node: fx.Node) -> bool:
    """Whether a node belongs to the backward pass, not to a forward pass that runs again."""
    return node.meta.get("partitioner_tag") == "is_backward"


def _noted(node: fx.Node) -> list[Call]:
    """Return the calls around a node from the outermost one; paths begin at what was compiled."""
    stack: Any = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    calls = []
    for key, entry in stack.items():
        path = entry[0] if isinstance(entry, tuple) else entry
        path = _INDEX.sub(r".\1", _MODULES.sub(r".\1", _ROOT.sub("", str(path))))
        _, _, number = str(key).partition("@")
        calls.append(Call(path, int(number) if number.isdigit() else 0))
    return calls


class Calls:
    """The calls that the nodes of graphs belong to, with paths as the plan has them.

    What is compiled may be the model itself, or something that calls it: the beginning that all
    paths have then is the one with which most of them are paths of the plan.

    Parameters
    ----------
    nodes : iterable of torch.fx.Node
        The nodes of a joint graph, or of both of its parts.
    known : iterable of str
        Paths that the plan mentions.
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
                found.append(Call(path, call.call))
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

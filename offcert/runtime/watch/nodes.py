"""Nodes that autograd has for a forward pass, tensors changed in place, modules that run again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from offcert.runtime.torch_private import FRAMES_COUNTED, sequence_number, tree_leaves


def changed_in_place(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """Yield the strided tensors among an operator's arguments that its schema says it writes to."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = args[position] if position < len(args) else kwargs.get(argument.name)
        for leaf in tree_leaves(given):
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
                yield leaf


class _Local(threading.local):
    """How many recomputations of a thread are under way, one inside of the other."""

    def __init__(self) -> None:
        self.depth = 0


_LOCAL = _Local()


def is_recomputing() -> bool:
    """Whether a segment runs again in this thread.

    Nobody waits for gradients of what it computes then: the backward pass goes through the graph of
    the first run.
    """
    return _LOCAL.depth > 0


@contextmanager
def recomputing(value: bool = True) -> Iterator[None]:
    """Note that a segment runs again during the block; or that, in it, something runs first."""
    before, _LOCAL.depth = _LOCAL.depth, _LOCAL.depth + 1 if value else 0
    try:
        yield
    finally:
        _LOCAL.depth = before


# The mark of a node whose place is not known. By definition.
UNKNOWN = -1


class NodeCount:
    """Counts the nodes that autograd makes in the calling thread from now on.

    PyTorch numbers them, so that a forward pass that does more than the captured one shows at the
    cost of reading two numbers, whatever it is made of.
    """

    __slots__ = ("_begun", "_frames")

    def __init__(self) -> None:
        self._begun = sequence_number()
        self._frames = _frames()

    @property
    def made(self) -> int:
        """How many have been made; UNKNOWN if something was compiled, which makes nodes, too."""
        if self._frames != _frames():
            return UNKNOWN
        return int(sequence_number() - self._begun)


def _frames() -> int:
    """Return how many frames `torch.compile` has looked at."""
    return getattr(sys.modules.get(FRAMES_COUNTED), "FRAME_COUNTER", 0)


def keeps_casts(device: str) -> bool:
    """Whether autocast is active for a kind of device, and keeps the weights that it casts."""
    available = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return available and torch.is_autocast_cache_enabled()

"""How much a forward pass does, by autograd's nodes, and whether autocast keeps what it casts."""

from __future__ import annotations

import sys

import torch

# The mark of a node whose place is not known. By definition.
UNKNOWN = -1


class NodeCount:
    """Counts the nodes that autograd makes in the calling thread from now on.

    PyTorch numbers them, so that a forward pass that does more than the captured one shows at the
    cost of reading two numbers, whatever it is made of.
    """

    __slots__ = ("_begun", "_frames")

    def __init__(self) -> None:
        self._begun = torch._C._autograd._get_sequence_nr()
        self._frames = _frames()

    @property
    def made(self) -> int:
        """How many have been made; UNKNOWN if something was compiled, which makes nodes, too."""
        if self._frames != _frames():
            return UNKNOWN
        return int(torch._C._autograd._get_sequence_nr() - self._begun)


def _frames() -> int:
    """Return how many frames `torch.compile` has looked at."""
    compiler = sys.modules.get("torch._dynamo.convert_frame")
    return getattr(compiler, "FRAME_COUNTER", 0)


def keeps_casts(device: str) -> bool:
    """Whether autocast is active for a kind of device, and keeps the weights that it casts."""
    available = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return available and torch.is_autocast_cache_enabled()

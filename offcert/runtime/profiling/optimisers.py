"""Bytes that optimisers keep beside the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from offcert.questions.schedule.device_memory import OPTIMISER_COPIES, require_optimiser
from offcert.runtime.watch.sharded import local

# Bytes of a parameter's count of steps, which Adam has in single precision. Given by PyTorch.
_STEP_BYTES = 4

OPTIMISERS = tuple(OPTIMISER_COPIES)


def named_state_bytes(name: str, model: nn.Module) -> int:
    """Return the bytes of the state of a named optimiser for the trained parameters of `model`.

    Parameters
    ----------
    name : str
        ``"sgd"``, ``"momentum"`` (SGD with it), ``"adam"`` or ``"adamw"``.

    Raises
    ------
    InputError
        If no optimiser has that name.
    """
    require_optimiser(name)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return _state_bytes(trained, OPTIMISER_COPIES[name], counts=name.startswith("adam"))


def _state_bytes(parameters: Sequence[torch.Tensor], copies: int, *, counts: bool) -> int:
    size = copies * sum(map(_bytes, parameters))
    return size + (_STEP_BYTES * len(parameters) if counts else 0)


def state_bytes(optimiser: torch.optim.Optimizer) -> int | None:
    """Return the bytes of an optimiser's state: measured, or foreseen before its first step.

    Returns
    -------
    int or None
        None if it has no state yet, and is of a kind whose state is not known here.
    """
    if optimiser.state:
        leaves = tree_leaves([dict(state) for state in optimiser.state.values()])
        return sum(_bytes(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))
    sizes = [_foreseen(optimiser, group) for group in optimiser.param_groups]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _foreseen(optimiser: torch.optim.Optimizer, group: dict[str, Any]) -> int | None:
    trained = [parameter for parameter in group["params"] if parameter.requires_grad]
    if type(optimiser) is torch.optim.SGD:
        return _state_bytes(trained, 1 if group["momentum"] else 0, counts=False)
    if type(optimiser) in (torch.optim.Adam, torch.optim.AdamW):
        return _state_bytes(trained, 3 if group["amsgrad"] else 2, counts=True)
    return None


def _bytes(tensor: torch.Tensor) -> int:
    part = local(tensor)
    return part.numel() * part.element_size()

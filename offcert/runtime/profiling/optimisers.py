"""Bytes that optimisers keep beside the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from math import prod
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from offcert.core.errors import InputError
from offcert.questions.schedule.device_memory import (
    OPTIMISER_COPIES,
    OPTIMISERS,
    named_optimiser,
)
from offcert.runtime.watch.guard import quiet
from offcert.runtime.watch.sharded import local

# Copies in float32, whatever the type of the parameters, that these have. Given by bitsandbytes.
_WHOLE = {"Adam": 2, "AdamW": 2, "PagedAdam": 2, "PagedAdamW": 2, "SGD": 1, "RMSprop": 1}

Optimiser = str | torch.optim.Optimizer

# Bytes of a parameter's count of steps, which Adam has in single precision. Given by PyTorch.
_STEP_BYTES = 4
# Numbers of 8 bits that share one of float32, and the size of a parameter from which on its state
# is of 8 bits. Given by bitsandbytes, `optim/optimizer.py`.
_BLOCK, _SMALLEST = 256, 4096


def named_state_bytes(name: str, model: nn.Module) -> int:
    """Return the bytes of the state of a named optimiser for the trained parameters of `model`.

    Parameters
    ----------
    name : str
        One of `OPTIMISERS`, in any usual spelling. ``"momentum"`` is SGD with it; ``"adafactor"``
        that of Trainer, with a row and a column in float32 for each matrix, and its mean; ``"lion"``
        has a number in float32 for each of a parameter's; those of 8 bits are of bitsandbytes, with the state
        of embeddings in float32, as Trainer has it.

    Raises
    ------
    InputError
        If no optimiser of that name is known.
    """
    name = named_optimiser(name)
    trained = [local(each) for each in model.parameters() if each.requires_grad]
    if name in OPTIMISER_COPIES:
        counted = _STEP_BYTES * len(trained) if name.startswith("adam") else 0
        return OPTIMISER_COPIES[name] * sum(map(_bytes, trained)) + counted
    if not name.endswith("-8bit"):
        return sum(map(_OF_PARAMETER[name], trained))
    whole = {
        id(local(module.weight)) for module in model.modules() if isinstance(module, nn.Embedding)
    }
    return sum(
        (_whole if id(each) in whole else _quantised)(each, 1 if name == "lion-8bit" else 2)
        for each in trained
    )


def _quantised(parameter: torch.Tensor, copies: int) -> int:
    size = parameter.numel()
    if size < _SMALLEST:
        return _whole(parameter, copies)
    return copies * (size + 4 * -(-size // _BLOCK))


def _whole(parameter: torch.Tensor, copies: int = 1) -> int:
    return copies * 4 * parameter.numel()


def _factored(parameter: torch.Tensor) -> int:
    shape, mean = parameter.shape, 4
    if len(shape) < 2:
        return _whole(parameter) + mean
    return 4 * (prod(shape[:-1]) + prod(shape[:-2]) * shape[-1]) + mean


_OF_PARAMETER: dict[str, Callable[[torch.Tensor], int]] = {"adafactor": _factored, "lion": _whole}


def optimiser_bytes(optimiser: Optimiser, model: nn.Module) -> int | None:
    """Return the bytes of the state of an optimiser that is named, or is there.

    Returns
    -------
    int or None
        As `state_bytes`.
    """
    if isinstance(optimiser, str):
        return named_state_bytes(optimiser, model)
    return state_bytes(optimiser)


def require_state_known(optimiser: object) -> None:
    """Raise an `InputError` if the bytes of an optimiser's state cannot be known."""
    if not isinstance(optimiser, torch.optim.Optimizer):
        named_optimiser(optimiser)
    elif state_bytes(optimiser) is None:
        raise InputError(
            f"the state of {type(optimiser).__name__} is not known before its first step: take "
            f"one, or name one of {', '.join(OPTIMISERS)}"
        )


def state_bytes(optimiser: torch.optim.Optimizer) -> int | None:
    """Return the bytes of an optimiser's state: measured, or foreseen before its first step.

    What the first step makes is found by one on tensors without data, a parameter of each kind.
    The optimiser itself is left as it is.

    Returns
    -------
    int or None
        None if it has no state yet, and takes no step of that kind.
    """
    if optimiser.state:
        return _held(optimiser)
    if type(optimiser).__module__.startswith("bitsandbytes"):
        return _of_bitsandbytes(optimiser)
    found: dict[Any, int | None] = {}
    total = 0
    for number, group in enumerate(optimiser.param_groups):
        for parameter in (each for each in group["params"] if each.requires_grad):
            part = local(parameter)
            kind = number, part.shape, part.dtype
            if kind not in found:
                found[kind] = _after_a_step(optimiser, group, part)
            size = found[kind]
            if size is None:
                return None
            total += size
    return total


def _of_bitsandbytes(optimiser: torch.optim.Optimizer) -> int | None:
    """Return the bytes of a state that its own kernels fill, which take no tensors without data."""
    parameters = [each for group in optimiser.param_groups for each in group["params"]]
    name = type(optimiser).__name__
    if name in _WHOLE:
        return sum(_whole(local(each), _WHOLE[name]) for each in parameters if each.requires_grad)
    try:
        return named_state_bytes(name, nn.ParameterList(parameters))
    except InputError:
        return None


class _Number(TorchDispatchMode):
    """Gives those who read a number of a tensor without data one half."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return True if args[0].dtype is torch.bool else 0.5
        return func(*args, **(kwargs or {}))


def _after_a_step(
    optimiser: torch.optim.Optimizer, group: dict[str, Any], parameter: torch.Tensor
) -> int | None:
    """Return the bytes of the state of one parameter after a step; None if there is none."""
    twin = copy(optimiser)
    twin.state = type(optimiser.state)(optimiser.state.default_factory)
    try:
        with quiet(), FakeTensorMode(), _Number():
            mine = nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype))
            mine.grad = torch.empty_like(mine)
            # Kernels for many parameters at once, or for several operators in one, ask for CUDA.
            plain = {name: False for name in ("foreach", "fused", "capturable") if name in group}
            twin.param_groups = [group | plain | {"params": [mine]}]
            type(optimiser).step(twin)
    except Exception:
        return None
    return _held(twin)


def _held(optimiser: torch.optim.Optimizer) -> int:
    leaves: Iterable[Any] = tree_leaves([dict(state) for state in optimiser.state.values()])
    return sum(_bytes(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))


def _bytes(tensor: torch.Tensor) -> int:
    part = local(tensor)
    return part.numel() * part.element_size()

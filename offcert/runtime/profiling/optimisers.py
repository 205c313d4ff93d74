"""Bytes that optimisers keep beside the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.questions.schedule.device_memory import (
    OPTIMISER_COPIES,
    OPTIMISERS,
    named_optimiser,
)
from offcert.runtime.torch_private import FakeTensorMode, TorchDispatchMode, tree_leaves
from offcert.runtime.watch.guard import quiet
from offcert.runtime.watch.sharded import local
from offcert.runtime.watch.tracker import LiveBytes

# Copies in float32, whatever the type of the parameters, that these have. Given by bitsandbytes.
_WHOLE = {"Adam": 2, "AdamW": 2, "PagedAdam": 2, "PagedAdamW": 2, "SGD": 1, "RMSprop": 1}

# Copies of the largest parameter, in float32, that Trainer's Adafactor makes in its step. Measured
# on tensors without data, transformers 5.23: five in bfloat16, with rows, columns and means, and
# three in float32. No record.
_COPIES = 6

Optimiser = str | torch.optim.Optimizer


@dataclass(frozen=True)
class OptimiserBytes:
    """Bytes that an optimiser takes on the device."""

    state: int  # Of its state, which is there all the time
    during: int  # At most beside that, while it takes its step, when activations are gone


# Bytes of a parameter's count of steps, which Adam has in single precision. Given by PyTorch.
_STEP_BYTES = 4
# Numbers of 8 bits that share one of float32, and the size of a parameter from which on its state
# is of 8 bits. Given by bitsandbytes, `optim/optimizer.py`.
_BLOCK, _SMALLEST = 256, 4096


def named_state_bytes(name: str, model: nn.Module) -> int:
    """Return the bytes of the state of a named optimiser for the trained parameters of `model`.

    One of `OPTIMISERS`, in any usual spelling. ``"momentum"`` is SGD with it; ``"adafactor"`` that
    of Trainer, with a row and a column in float32 for each matrix, and its mean; ``"lion"`` has a
    number in float32 for each of a parameter's; those of 8 bits are of bitsandbytes, with the state
    of embeddings in float32, as Trainer has it.
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


def optimiser_bytes(optimiser: Optimiser, model: nn.Module) -> OptimiserBytes | None:
    """Return the bytes of an optimiser that is named, or is there (`bytes_of`)."""
    if not isinstance(optimiser, str):
        return bytes_of(optimiser)
    state, name = named_state_bytes(optimiser, model), named_optimiser(optimiser)
    sizes = [each for each in map(local, model.parameters()) if each.requires_grad]
    during = 0
    if name in ("adam", "adamw"):
        # PyTorch takes the roots of all second moments at once, unless it is told otherwise.
        during = sum(map(_bytes, sizes))
    elif name == "adafactor":
        during = _COPIES * max(map(_whole, sizes), default=0)
    return OptimiserBytes(state, during)


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
    """Return the bytes of an optimiser's state, as `bytes_of`."""
    found = bytes_of(optimiser)
    return None if found is None else found.state


def bytes_of(optimiser: torch.optim.Optimizer) -> OptimiserBytes | None:
    """Return the bytes of an optimiser: of its state measured, or foreseen before its first step.

    A step is taken on tensors without data, with a parameter of each kind. The optimiser itself is
    left as it is. None if it has no state yet, and takes no step of that kind.
    """
    if type(optimiser).__module__.startswith("bitsandbytes"):
        there = _held(optimiser) if optimiser.state else _of_bitsandbytes(optimiser)
        return None if there is None else OptimiserBytes(there, 0)
    kinds: dict[Any, OptimiserBytes | None] = {}
    state = together = alone = 0
    for number, group in enumerate(optimiser.param_groups):
        for parameter in (each for each in group["params"] if each.requires_grad):
            part = local(parameter)
            kind = number, part.shape, part.dtype
            if kind not in kinds:
                kinds[kind] = _after_a_step(optimiser, group, part)
            found = kinds[kind]
            if found is None:
                return OptimiserBytes(_held(optimiser), 0) if optimiser.state else None
            state += found.state
            if _at_once(group):
                together += found.during
            else:
                alone = max(alone, found.during)
    state = _held(optimiser) if optimiser.state else state
    return OptimiserBytes(state, max(together, alone))


def _at_once(group: Mapping[str, Any]) -> bool:
    """Whether a step on CUDA is one of all parameters of a group, operator by operator."""
    return "foreach" in group and group["foreach"] is not False and not group.get("fused")


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
) -> OptimiserBytes | None:
    """Return the bytes of one parameter's step; None if there is none.

    There are two alike: what a step keeps of one until it has done the next counts, too.
    """
    twin, tracker = copy(optimiser), LiveBytes()
    twin.state = type(optimiser.state)(optimiser.state.default_factory)
    try:
        with quiet(), FakeTensorMode():
            given = [torch.empty(parameter.shape, dtype=parameter.dtype) for _ in range(2)]
            mine = list(map(nn.Parameter, given))
            for each in mine:
                each.grad = torch.empty_like(each)
            plain = {"fused": False, "capturable": False, "foreach": _at_once(group)}
            plain = {name: value for name, value in plain.items() if name in group}
            twin.param_groups = [group | plain | {"params": mine}]
            with tracker, _Number():
                tracker.start()
                type(optimiser).step(twin)
                tracker.stop()
    except Exception:
        return None
    # One kernel for all of it takes nothing beside.
    during = 0 if group.get("fused") else tracker.peak - tracker.live
    return OptimiserBytes(_held(twin) // 2, during // 2 if _at_once(group) else during)


def _held(optimiser: torch.optim.Optimizer) -> int:
    leaves: Iterable[Any] = tree_leaves([dict(state) for state in optimiser.state.values()])
    return sum(_bytes(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))


def _bytes(tensor: torch.Tensor) -> int:
    part = local(tensor)
    return part.numel() * part.element_size()

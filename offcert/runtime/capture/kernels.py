"""Where fake tensors are wrong about the kernels of the CPU.

A fake tensor's operators follow rules that were written by hand. Some of them, under mixed
precision, give other types than the kernels do, or refuse what the kernels accept. The trace then
has other bytes than the step, and a plan for it cannot be followed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

Rule = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class CpuKernels(TorchDispatchMode):
    """Corrects what fake tensors say about operators on the CPU; enter it within the fake mode."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run `func` by its rule here, if it has one."""
        kwargs = kwargs or {}
        rule = _RULES.get(func.overloadpacket)
        if rule is None or args[0].device.type != "cpu":
            return func(*args, **kwargs)
        return rule(func, args, kwargs)


def _is_mixed(tensor: torch.Tensor, parameters: Any) -> bool:
    return any(p is not None and p.dtype != tensor.dtype for p in parameters)


def _as_type(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if tensor.dtype == dtype:
        return tensor
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=dtype, device=tensor.device)


def _normalisation(first: int, end: int) -> Rule:
    """Return the rule of a normalisation whose parameters are `first` to `end` of its arguments."""

    def rule(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out, mean, deviation = func(*args, **kwargs)
        if _is_mixed(args[0], args[first:end]):
            # Statistics are of the type of the parameters, not of the input.
            mean, deviation = _as_type(mean, torch.float32), _as_type(deviation, torch.float32)
        return out, mean, deviation

    return rule


def _group_norm_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    gradient, *others = func(*args, **kwargs)
    if gradient is not None:
        gradient = _as_type(gradient, args[1].dtype)
    return (gradient, *others)


def _grouped_product(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Experts on the CPU are not only of bfloat16."""
    left, right = args[:2]
    if left.dtype == right.dtype == torch.bfloat16 or right.dtype != left.dtype:
        return func(*args, **kwargs)
    ends = args[2] if len(args) > 2 else kwargs.get("offs")
    dtype = args[4] if len(args) > 4 else kwargs.get("out_dtype")
    if left.dim() == right.dim() == 2:
        # One product for each group of columns.
        assert ends is not None
        shape = [ends.size(0), left.size(0), right.size(1)]
    elif left.dim() == 3 and right.dim() == 2:
        shape = [left.size(1), right.size(1)]
    else:
        shape = [*left.shape[:-1], right.size(-1)]
    return torch.empty(shape, dtype=dtype or left.dtype, device=left.device)


_RULES: dict[Any, Rule] = {
    aten.native_layer_norm: _normalisation(2, 4),
    aten.native_group_norm: _normalisation(1, 3),
    aten.native_batch_norm: _normalisation(1, 5),
    aten.native_group_norm_backward: _group_norm_backward,
    aten._grouped_mm: _grouped_product,
}

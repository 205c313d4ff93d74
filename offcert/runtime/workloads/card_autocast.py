"""Autocast on the CPU as it is on a card, where more operators compute in float32.

A step for a card is captured on the CPU, whose autocast leaves many operators in half precision
that a card's computes, and saves, in float32: powers, normalisations, softmax, losses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

# Given by PyTorch: "CUDA Ops that can autocast to float32" of its page about torch.amp. Losses that
# are made of others here are left out.
_NAMES = (
    "__pow__", "__rpow__", "__rdiv__", "__rtruediv__", "acos", "asin", "cosh", "cdist",
    "binary_cross_entropy_with_logits", "cosine_similarity", "cross_entropy", "cumprod", "cumsum",
    "dist", "erfinv", "exp", "expm1", "group_norm", "kl_div", "l1_loss", "layer_norm", "log",
    "log10", "log_softmax", "log1p", "log2", "mse_loss", "nll_loss", "norm", "normalize", "pdist",
    "poisson_nll_loss", "pow", "prod", "reciprocal", "rsqrt", "sinh", "smooth_l1_loss", "softmax",
    "soft_margin_loss", "softmin", "softplus", "sum", "renorm", "tan", "triplet_margin_loss",
)  # fmt: skip
_HALF = (torch.float16, torch.bfloat16)


def _functions() -> Iterable[Callable[..., Any]]:
    for owner in (torch, torch.Tensor, functional):
        yield from (getattr(owner, name) for name in _NAMES if hasattr(owner, name))


_IN_FLOAT32 = frozenset(_functions())


class CardAutocast(TorchFunctionMode):
    """Computes in float32 as a card's autocast does, where autocast of the CPU is on."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function, with its tensors in float32 if a card's autocast sees to that."""
        given = dict(kwargs or {})
        # Whoever names a type, or where the result goes, gets that.
        named = given.get("dtype") is not None or given.get("out") is not None
        if func in _IN_FLOAT32 and not named and torch.is_autocast_enabled("cpu"):
            args = tuple(map(_cast, args))
            given = {name: _cast(value) for name, value in given.items()}
        return func(*args, **given)


def _cast(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALF else value

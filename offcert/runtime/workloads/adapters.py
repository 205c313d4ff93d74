"""Low-rank adapters beside the linear layers of a model that is not trained itself."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from offcert.core.errors import InputError
from offcert.runtime.workloads.quantised import QuantisedLinear


class LowRank(nn.Module):
    """A linear layer that is not trained, and beside it a product of two thin ones that is.

    Parameters
    ----------
    base : nn.Linear or QuantisedLinear
        The layer; the adapter's matrices have its data type.
    rank : int
        Rows of the first matrix.

    References
    ----------
    Hu and others: LoRA: Low-Rank Adaptation of Large Language Models. ICLR 2022, section 4.1. The
    scale is one (alpha is the rank), and nothing is dropped.
    """

    def __init__(self, base: nn.Linear | QuantisedLinear, rank: int) -> None:
        super().__init__()
        self.base = base
        dtype = base.dtype if isinstance(base, QuantisedLinear) else base.weight.dtype
        there = {"device": base.weight.device, "dtype": dtype}
        self.down = nn.Linear(base.in_features, rank, bias=False, **there)
        self.up = nn.Linear(rank, base.out_features, bias=False, **there)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for `x` (..., features) plus the adapter's."""
        out: Tensor = self.base(x) + self.up(self.down(x))
        return out


def with_adapters(model: nn.Module, rank: int) -> nn.Module:
    """Freeze a model and put adapters on all its linear layers but the one that makes its output.

    Returns
    -------
    nn.Module
        The model itself.

    Raises
    ------
    InputError
        If it has no such layers.
    """
    model.requires_grad_(False)
    find: Any = getattr(model, "get_output_embeddings", None)
    output = None if find is None else find()
    layers: list[tuple[nn.Module, str, Any]] = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) in (nn.Linear, QuantisedLinear) and child is not output
    ]
    if not layers:
        raise InputError(f"lora: {type(model).__name__} has no linear layers to put adapters on")
    for parent, name, child in layers:
        setattr(parent, name, LowRank(child, rank))
    return model

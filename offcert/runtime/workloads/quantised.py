"""Linear layers whose frozen weights are of 4 or 8 bits, as bitsandbytes has them.

A layer makes a copy of its weights in the type that it computes in, uses and drops it, in the
forward pass and again in the backward pass. What is kept is the weights in their packed size, and
the statistics of their blocks. Values are those of fresh weights, rounded to what 4 or 8 bits can
say; training with bitsandbytes gives other numbers, in as many bytes.

References
----------
Dettmers, Pagnoni, Holtzman, Zettlemoyer: QLoRA: Efficient Finetuning of Quantized LLMs. NeurIPS
2023, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from offcert.core.errors import InputError
from offcert.core.messages import short_repr, show
from offcert.runtime.watch.operators import pure

# Weights that share a number, and such numbers that share one where these are quantised again.
# Given by QLoRA and bitsandbytes.
_BLOCK, _OUTER = 64, 256
# Numbers of float32 in the tables of both, and the offset. Given by bitsandbytes.
_TABLE, _OUTER_TABLE = 16, 257
# The values of NormalFloat. Given by its paper, appendix E.
_NORMAL_FLOAT = (
    -1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
)  # fmt: skip
_TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class Quantisation:
    """How weights are packed."""

    bits: int  # 4 or 8
    double: bool = True  # Whether the numbers of blocks are quantised, too (with 4 bits)
    # The type in which layers of 4 bits compute; by default that of their input.
    computes: torch.dtype | None = None
    skipped: tuple[str, ...] = ()  # Names of modules that stay as they are


def quantisation_of(config: Mapping[str, Any], bits: int | None) -> Quantisation | None:
    """Return how the weights of a model are packed; None where they are not.

    A configuration's ``quantization_config`` is that of bitsandbytes; where it says nothing, `bits`
    may be 4 (with statistics that are quantised, too) or 8.
    """
    said = config.get("quantization_config")
    if said is None:
        if bits not in (None, 4, 8):
            raise InputError(f"bits must be 4 or 8, not {short_repr(bits)}")
        return None if bits is None else Quantisation(bits)
    if bits is not None:
        raise InputError("bits cannot be given: the configuration has a quantization_config")
    if not isinstance(said, Mapping):
        raise InputError(f"quantization_config must be an object, not {short_repr(said)}")
    four, eight = (bool(_either(said, f"load_in_{size}bit")) for size in (4, 8))
    method = said.get("quant_method", "bitsandbytes" if four or eight else None)
    if method != "bitsandbytes" or four is eight:
        raise InputError(
            f"quantization_config: weights packed by {show(method)} are not supported; those of "
            "bitsandbytes are, with load_in_4bit or load_in_8bit"
        )
    skipped = said.get("llm_int8_skip_modules") or ()
    computes = said.get("bnb_4bit_compute_dtype") or "float32"
    if computes not in _TYPES:
        raise InputError(
            f"quantization_config.bnb_4bit_compute_dtype must be one of {', '.join(_TYPES)}, not "
            f"{show(computes)}"
        )
    if eight:
        return Quantisation(8, skipped=tuple(skipped))
    double = bool(said.get("bnb_4bit_use_double_quant"))
    return Quantisation(4, double, _TYPES[computes], tuple(skipped))


def _either(said: Mapping[str, Any], name: str) -> Any:
    return said.get(name) or said.get(f"_{name}")


def quantise(model: nn.Module, how: Quantisation) -> None:
    """Pack the weights of all linear layers of a model but the one that makes its output."""
    for parent, path, child in _linear(model):
        if type(child) is nn.Linear and not any(f".{each}." in path for each in how.skipped):
            setattr(parent, path.split(".")[-2], QuantisedLinear(child, how))


def _linear(model: nn.Module) -> list[tuple[nn.Module, str, Any]]:
    """Return the linear layers of a model but the one that makes its output.

    Each with the module that holds it, and its path between dots.
    """
    find: Any = getattr(model, "get_output_embeddings", None)
    output = None if find is None else find()
    return [
        (parent, f".{path}.{name}.", child)
        for path, parent in model.named_modules()
        for name, child in parent.named_children()
        if type(child) in (nn.Linear, QuantisedLinear) and child is not output
    ]


class QuantisedLinear(nn.Module):
    """A linear layer whose weights are packed, and not trained; adapters have its type."""

    def __init__(self, base: nn.Linear, how: Quantisation) -> None:
        super().__init__()
        self.in_features, self.out_features = base.in_features, base.out_features
        self.dtype, self.bits, self.computes = base.weight.dtype, how.bits, how.computes
        weight = base.weight.detach()
        packed, statistics = _packed4(weight, how.double) if how.bits == 4 else _packed8(weight)
        self.weight = nn.Parameter(packed, requires_grad=False)
        # No buffers, which would be taken for state that a run may change.
        self.statistics = nn.ParameterList(
            nn.Parameter(each, requires_grad=False) for each in statistics
        )
        fixed = None if base.bias is None else nn.Parameter(base.bias.detach(), requires_grad=False)
        self.bias = fixed

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for `x` (..., features), in its type."""
        given = x.dtype
        x = x if self.computes is None else x.to(self.computes)
        out: Tensor = _Product.apply(x, self)
        return out.to(given)

    def unpacked(self, dtype: torch.dtype) -> Tensor:
        """Return a copy of the weights."""
        shape = [self.out_features, self.in_features]
        statistics = list(self.statistics)
        found: Tensor = torch.ops.offcert.unpack(self.weight, statistics, shape, dtype)
        return found


class _Product(torch.autograd.Function):
    """A product with weights of which each pass has a copy for itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: QuantisedLinear) -> Tensor:
        """Return the product."""
        ctx.layer = layer
        # With 8 bits bitsandbytes holds the input, where no hook of autograd's sees it.
        ctx.held = x if layer.bits == 8 else None
        bias = None if layer.bias is None else layer.bias.to(x.dtype)
        return linear(x, layer.unpacked(x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the input."""
        (gradient,) = gradients
        return gradient @ ctx.layer.unpacked(gradient.dtype), None


def _packed4(weight: Tensor, double: bool) -> tuple[Tensor, list[Tensor]]:
    """Return two weights a byte, and the largest of each block, with its tables."""
    device, count = weight.device, weight.numel()
    blocks = -(-count // _BLOCK)
    if device.type == "meta":
        packed = torch.empty(-(-count // 2), dtype=torch.uint8, device=device)
        largest = torch.empty(blocks, device=device)
    else:
        filled = torch.zeros(blocks * _BLOCK, device=device)
        filled[:count] = weight.flatten().float()
        rows = filled.view(blocks, _BLOCK)
        largest = rows.abs().amax(1).clamp(min=1e-12)
        values = torch.tensor(_NORMAL_FLOAT, device=device)
        middles = (values[1:] + values[:-1]) / 2
        codes = torch.bucketize(rows / largest[:, None], middles).flatten()[: count + count % 2]
        packed = (codes[0::2] * _TABLE + codes[1::2]).to(torch.uint8)
    table = torch.empty(_TABLE, device=device)
    if not double:
        return packed, [largest, table]
    # Of the largest of all blocks the mean is left out, and the rest shares a number a block.
    outer = torch.empty(-(-blocks // _OUTER), device=device)
    tables = torch.empty(_OUTER_TABLE, device=device)
    if device.type != "meta":
        tables[-1] = largest.mean()
        outer.fill_((largest - tables[-1]).abs().max() / 127)
        rounded = (largest - tables[-1]) / outer[0].clamp(min=1e-12) + 128
        return packed, [rounded.round().to(torch.uint8), table, outer, tables]
    return packed, [largest.to(torch.uint8), table, outer, tables]


def _packed8(weight: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return a weight a byte, and the largest of each row."""
    largest = weight.float().abs().amax(1).clamp(min=1e-12)
    return (weight / largest[:, None] * 127).round().to(torch.int8), [largest]


@torch.library.custom_op("offcert::unpack", mutates_args=())
def _unpack(
    packed: Tensor, statistics: list[Tensor], shape: list[int], dtype: torch.dtype
) -> Tensor:
    """Return weights that were packed, in a type; on a card one kernel, that keeps nothing."""
    if packed.dtype is torch.int8:
        return (packed * (statistics[0][:, None] / 127)).to(dtype)
    largest = statistics[0]
    if len(statistics) > 2:
        _, _, outer, tables = statistics
        largest = (largest.float() - 128) * outer[0] + tables[-1]
    codes = torch.stack([packed // _TABLE, packed % _TABLE], 1).flatten().int()
    values = torch.tensor(_NORMAL_FLOAT, device=packed.device).index_select(0, codes)
    count = shape[0] * shape[1]
    scales = largest.repeat_interleave(_BLOCK)[:count]
    return (values[:count] * scales).view(shape).to(dtype)


@_unpack.register_fake
def _(packed: Tensor, statistics: list[Tensor], shape: list[int], dtype: torch.dtype) -> Tensor:
    return packed.new_empty(shape, dtype=dtype)


pure("offcert::unpack")


class LowRank(nn.Module):
    """A linear layer that is not trained, and beside it a product of two thin ones that is.

    The adapter's matrices, the first of `rank` rows, have the layer's data type.

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
    """Freeze a model and put adapters on all linear layers but the one that makes its output."""
    model.requires_grad_(False)
    layers = _linear(model)
    if not layers:
        raise InputError(f"lora: {type(model).__name__} has no linear layers to put adapters on")
    for parent, path, child in layers:
        setattr(parent, path.split(".")[-2], LowRank(child, rank))
    return model

"""How a card computes attention: by which kernel, and what that takes beside its tensors.

A capture runs on the CPU, whose one kernel keeps no scores; the card has several, and the tensors
of a call decide which of them serves (`kernel_of`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor

from offcert.runtime.hardware.model import EFFICIENT, FLASH_2, MATH, Hardware
from offcert.runtime.torch_private import OpOverload

aten = torch.ops.aten


def kernel_of(
    card: Hardware,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dtype: torch.dtype,
    masked: bool,
    causal: bool,
) -> str:
    """Return how PyTorch computes attention on a card: by which kernel, or by products.

    FlashAttention is for half precision, from Ampere on (which multiplies bfloat16 on tensor
    cores), without a mask, with heads of at most 256; the memory-efficient kernel is for as many
    heads of keys as of queries. Where neither serves, products and a softmax do, which keep the
    scores. Query, key and value are (..., heads, tokens, width); under autocast `dtype` is another
    than theirs. `causal` is the mask by which each token sees those before it.

    References
    ----------
    ``sdp_utils.cpp`` of PyTorch: ``can_use_flash_attention``, ``can_use_mem_efficient_attention``.
    """
    recent = card.on_tensor_cores("bfloat16")
    half = dtype is torch.float16 or (recent and dtype is torch.bfloat16)
    fits = query.shape[-1] == value.shape[-1] <= 256
    fits &= not causal or query.shape[-2] == key.shape[-2]
    if card.attention != EFFICIENT and recent and half and fits and not masked:
        return card.attention
    shared = key.shape[-3] != query.shape[-3] if query.dim() > 3 else False
    return EFFICIENT if (half or dtype is torch.float32) and not shared else MATH


def attention_by(
    card: Hardware, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """Return how a call of attention is computed on a card; None for other operators.

    The kernel of the CPU stands for that which the card has for the same tensors.
    """
    packet = func.overloadpacket
    if packet is aten._safe_softmax:
        # Nothing else calls it.
        return MATH
    if not is_fused(func):
        return None
    if "cpu" not in packet.__name__:
        lean = "efficient" in packet.__name__
        return EFFICIENT if lean else FLASH_2 if card.attention == EFFICIENT else card.attention
    query, key, value = args[1:4] if "backward" in packet.__name__ else args[:3]
    masked = argument(func, args, kwargs, "attn_mask") is not None
    causal = bool(argument(func, args, kwargs, "is_causal"))
    kernel = kernel_of(card, query, key, value, query.dtype, masked, causal)
    # Where the card has none, real tensors alone have met this kernel, which keeps no scores.
    return EFFICIENT if kernel == MATH else kernel


def attention_scratch(func: OpOverload, args: Sequence[Any]) -> int:
    """Return the bytes that a kernel of attention allocates and frees within an operator.

    FlashAttention's backward pass adds up the gradient of the queries in float32, with rows filled
    up to 128 and columns to 32, and row sums beside it; where several heads share keys and values,
    it makes their gradients for every head first. For the memory-efficient kernel the same is
    assumed: it adds up that gradient, too, and in float32 it sums a product of that size by rows.
    Kernels on the CPU, which are captured, do otherwise.

    References
    ----------
    Dao: FlashAttention-2. 2023, algorithm 2; `mha_bwd` of its implementation.
    """
    if func.overloadpacket is not aten._scaled_dot_product_flash_attention_for_cpu_backward:
        return 0
    query, key = args[1:3]
    batch, heads, rows, width = query.shape
    rows = -(-rows // 128) * 128
    scratch = 4 * batch * heads * rows * (-(-width // 32) * 32 + 1)
    if key.shape[1] != heads:
        scratch += 2 * batch * heads * key.shape[2] * width * key.itemsize
    return int(scratch)


# Kernels whose tensors are (batch, tokens, heads, width). Sequences of several lengths, one behind
# the other, are (tokens, heads, width).
_BY_TOKENS = ("_flash_attention_", "_efficient_attention_")


def attention_flops(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
    """Return the multiplications and additions of attention by a kernel; None of other operators.

    Each score that a query may see, a masked one as well unless the kernel leaves it out, takes a
    product over the width of queries and one over that of values; backwards three and two, since it
    is computed again. Heads of keys and values that several heads of queries share count for each
    of these. Sequences of several lengths count as if they had their mean length.
    """
    packet = func.overloadpacket.__name__
    if not (is_fused(func) or packet.startswith((*_BY_TOKENS, "_cudnn_attention_"))):
        return None
    query, key, value, ends = (
        argument(func, args, kwargs, name) for name in ("query", "key", "value", "cum_seq_q")
    )
    if packet.startswith("_efficient_attention_"):
        ends = argument(func, args, kwargs, "cu_seqlens_q")
    several = ends is not None and not is_fused(func)
    by_tokens = several or packet.startswith(_BY_TOKENS)
    heads = query.shape[-2] if by_tokens else query.shape[-3]
    sequences = prod(query.shape[:-3])
    rows, columns = (each.shape[-3 if by_tokens else -2] for each in (query, key))
    if several:
        sequences = max(1, ends.shape[-1] - 1)
        rows, columns = (-(-tokens // sequences) for tokens in (rows, columns))
    scores = sequences * heads * _scores(rows, columns, *_seen(func, args, kwargs, rows, columns))
    again, back = (3, 2) if "backward" in packet else (1, 1)
    return int(2 * scores * (again * query.shape[-1] + back * value.shape[-1]))


def _seen(
    func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], rows: int, columns: int
) -> tuple[int, int]:
    """Return how far the first query sees backwards and onwards; each next one sees one further."""
    packet = func.overloadpacket.__name__
    last = columns - rows
    if packet.startswith("_efficient_attention_"):
        mask = argument(func, args, kwargs, "custom_mask_type")
        window = argument(func, args, kwargs, "window_size") or columns + rows
        shift = last if mask == 2 else 0
        return (window - 1 - shift, shift) if mask else (columns + rows, columns)
    if packet.startswith("_flash_attention_"):
        causal = argument(func, args, kwargs, "is_causal")
        left = argument(func, args, kwargs, "window_size_left")
        right = argument(func, args, kwargs, "window_size_right")
        left = columns + rows if left is None or left < 0 else left
        right = columns + rows if right is None or right < 0 else right
        return left - last, (0 if causal else right) + last
    causal = argument(func, args, kwargs, "is_causal")
    return columns + rows, 0 if causal else columns


@cache
def _scores(rows: int, columns: int, back: int, onwards: int) -> int:
    """Return the scores of queries that see keys from `back` before their number to `onwards`."""
    ranges = ((max(0, i - back), min(columns - 1, i + onwards)) for i in range(rows))
    return sum(max(0, last - first + 1) for first, last in ranges)


def is_fused(func: OpOverload) -> bool:
    """Return whether an operator is attention by a kernel, forward or backward."""
    return func.overloadpacket.__name__.startswith("_scaled_dot_product_")


def argument(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> Any:
    """Return the argument of an operator by its name, or its default; None if it has none."""
    for index, each in enumerate(func._schema.arguments):
        if each.name == name:
            return args[index] if index < len(args) else kwargs.get(name, each.default_value)
    return None

"""Arithmetic and bytes of one ATen operator, the input of a roofline.

The operators are the ones that a `TorchDispatchMode` sees, that is below autograd; real and
fake tensors give the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import conv_flop_count, flop_registry

from offcert.runtime.hardware import Hardware, OperationClass, roofline_ns
from offcert.runtime.hardware.attention import argument, attention_by, attention_flops
from offcert.runtime.torch_private import OpOverload, of_core
from offcert.runtime.watch.operators import changed_in_place, strided_tensors

aten = torch.ops.aten

# These return memory without writing to it.
_ALLOCATIONS = frozenset({
    aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided,
    aten.empty_permuted,
})  # fmt: skip

# These overwrite their first argument without reading it.
_OVERWRITES = frozenset({
    aten.copy_, aten.fill_, aten.zero_, aten.normal_, aten.uniform_, aten.random_,
    aten.exponential_, aten.bernoulli_,
})  # fmt: skip

# These read from their first argument no more than what they write.
_GATHERS = frozenset({aten.embedding, aten.gather, aten.index, aten.index_select})

# Products that are added to their first argument, and what they compute.
_SUMS = {aten.addmm_: aten.addmm, aten.baddbmm_: aten.baddbmm}

_CONVOLUTIONS = frozenset({aten.convolution, aten._convolution, aten.convolution_backward})

# Normalisations that read their operands twice: for the statistics (or the gradients of the
# parameters), and again for what they return. None of these fits a cache.
_TWICE = frozenset({
    aten.native_batch_norm, aten._native_batch_norm_legit, aten.cudnn_batch_norm,
    aten.native_batch_norm_backward, aten.cudnn_batch_norm_backward,
    aten.native_group_norm, aten.native_group_norm_backward, aten.native_layer_norm_backward,
})  # fmt: skip

_Key = tuple[int, int, tuple[int, ...], tuple[int, ...]]


def operator_cost(
    func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any
) -> tuple[int, int]:
    """Return the flops of one operator call, and the bytes that it moves.

    The call is as a dispatch mode gets it. Flops are multiplications and additions of matrix
    products, convolutions and attention; 0 for every other operator, which memory traffic
    dominates. Bytes are those of every distinct tensor that is read, once, and of every one that is
    written, once: a tensor changed in place counts twice, an expanded one with the bytes it has in
    memory. Views, operators on metadata and allocations cost (0, 0): they launch no kernel.
    """
    if _launches_nothing(func, args, kwargs, out):
        return 0, 0
    return _flops(func, args, kwargs, out), _traffic(func, args, kwargs, out)


def operator_ns(
    card: Hardware, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any
) -> int:
    """Return the nanoseconds that a card takes for one operator call, as for `operator_cost`.

    Batch and group normalisation read their input twice, as the backward passes of all
    normalisations do; the two gradients of a convolution are a kernel each, which reads the
    gradient of the output. A convolution on tensor cores takes images with their channels last.
    Others are rearranged before it and back after it, by kernels that no operator shows.
    """
    flops, traffic = operator_cost(func, args, kwargs, out)
    dtype, work = computed_as(func, args)
    if work is OperationClass.ATTENTION:
        card = replace(card, attention=attention_by(card, func, args, kwargs) or card.attention)
    if card.once or not (flops or traffic):
        return roofline_ns(card, flops, traffic, dtype, work)
    traffic += _read_again(func, args, kwargs)
    time = roofline_ns(card, flops, traffic, dtype, work)
    if work is OperationClass.CONVOLUTION and card.on_tensor_cores(dtype):
        time += roofline_ns(card, 0, _rearranged(func, args, kwargs, out))
    return time


def _rearranged(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
    """Return the bytes that are read and written to put the channels of images last, and back."""
    if func.overloadpacket is not aten.convolution_backward:
        return 0 if _channels_last(args[0]) else 2 * (_bytes(args[0]) + _bytes(out))
    gradient, x = args[:2]
    if _channels_last(x):
        return 0
    of_input, of_weight = _wanted(args, kwargs)
    return 2 * (_bytes(gradient) + _bytes(x)) * (of_input + of_weight)


def _channels_last(images: Tensor) -> bool:
    return images.shape[1] == 1 or images.stride(1) == 1


def _wanted(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether a convolution's backward makes the gradients of its input and its weight."""
    mask = args[10] if len(args) > 10 else kwargs["output_mask"]
    return bool(mask[0]), bool(mask[1])


def attention_parts(
    card: Hardware, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Fraction]:
    """Return the part of its peak that a call of attention reaches, by its kernel, if it is one."""
    kernel = attention_by(card, func, args, kwargs)
    if kernel is None:
        return {}
    dtype, work = computed_as(func, args)
    known = work is OperationClass.ATTENTION
    return {kernel: replace(card, attention=kernel).reached(work, dtype) if known else Fraction(1)}


def computed_as(func: OpOverload, args: Sequence[Any]) -> tuple[str, OperationClass]:
    """Return in which of `TYPES` an operator multiplies, and of which class of work it is.

    The call is one below autocast, which has cast its operands. Products in float32 count as TF32
    where PyTorch may use that: convolutions by default, other products if it was asked for. Of an
    operator without products neither matters.
    """
    packet = func.overloadpacket
    work = OperationClass.PRODUCT
    if packet in _CONVOLUTIONS:
        work = OperationClass.CONVOLUTION
    elif "attention" in packet.__name__:
        work = OperationClass.ATTENTION
    operands = [each.dtype for each in strided_tensors(args) if each.dtype.is_floating_point]
    dtype = min(operands, key=lambda each: each.itemsize, default=torch.float32)
    if dtype is torch.float32:
        return ("tf32" if _allows_tf32(work) else "float32"), work
    return "float8" if dtype.itemsize == 1 else str(dtype).removeprefix("torch."), work


def _allows_tf32(work: OperationClass) -> bool:
    convolves = work is OperationClass.CONVOLUTION
    getter = of_core("_get_fp32_precision_getter")
    if getter is not None:
        return bool(getter("cuda", "conv" if convolves else "matmul") == "tf32")
    matmul = torch.backends.cuda.matmul
    return bool(torch.backends.cudnn.allow_tf32 if convolves else matmul.allow_tf32)


def _launches_nothing(
    func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any
) -> bool:
    if func.overloadpacket in _ALLOCATIONS or torch.Tag.inplace_view in func.tags:
        return True
    if func._schema.is_mutable:
        return False
    inputs = {_storage(tensor) for tensor in strided_tensors((args, kwargs))}
    # Without any tensor in `out` it asked for metadata; a value (`item`) is read from the
    # device, but moves nothing worth counting.
    return all(_storage(tensor) in inputs for tensor in strided_tensors(out))


def _flops(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
    packet = func.overloadpacket
    attention = attention_flops(func, args, kwargs)
    if attention is not None:
        return attention
    if packet is aten.convolution_backward:
        return _convolution_backward_flops(*args, **kwargs)
    formula = flop_registry.get(_SUMS.get(packet, packet))
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))


def _convolution_backward_flops(
    grad: Tensor, x: Tensor, weight: Tensor, *options: Any, output_mask: Any = None
) -> int:
    # Each of the two gradients takes the multiplications of the forward pass. PyTorch's own
    # formula says the same without groups, but forgets them in the gradient of the weights.
    transposed = options[4]
    mask = options[7] if output_mask is None else output_mask
    forward = conv_flop_count(list(x.shape), list(weight.shape), list(grad.shape), transposed)
    return forward * (bool(mask[0]) + bool(mask[1]))


def _traffic(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
    packet = func.overloadpacket
    read = _distinct(strided_tensors((args, kwargs)))
    written = _distinct([*changed_in_place(func, args, kwargs), *strided_tensors(out)])
    bytes_written = sum(written.values())
    if packet in _OVERWRITES:
        del read[_key(args[0])]
    elif packet in _GATHERS:
        table = _key(args[0])
        read[table] = min(read[table], bytes_written)
    return sum(read.values()) + bytes_written


def _read_again(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return the bytes of what an operator reads twice, because it is more than one kernel."""
    packet = func.overloadpacket
    if packet is aten.convolution_backward:
        return _bytes(args[0]) if all(_wanted(args, kwargs)) else 0
    if packet not in _TWICE:
        return 0
    for name in ("training", "train"):
        # With the statistics of another time, there is nothing to do first.
        if argument(func, args, kwargs, name) is False:
            return 0
    if packet is aten.native_layer_norm_backward and not any(args[-1][1:]):
        return 0
    count = 2 if "backward" in packet.__name__ else 1
    return sum(_bytes(each) for each in strided_tensors(args)[:count])


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _key(tensor: Tensor) -> _Key:
    return _storage(tensor), int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride()


def _distinct(tensors: Iterable[Tensor]) -> dict[_Key, int]:
    return {_key(tensor): _bytes(tensor) for tensor in tensors}


def _bytes(tensor: Tensor) -> int:
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return prod(size for size, stride in sizes if stride != 0 or size == 0) * tensor.itemsize

"""Fingerprints of tensors: all bytes, summed with random weights on the tensor's own device.

A tensor's memory is read as words of 32 bits. Words are multiplied by random weights and summed in
integers of 64 bits; the sums of rows of words are multiplied by random odd weights and summed again
(multilinear hashing). Two families of weights give two sums. If two tensors differ, and their
difference does not depend on the weights, which are drawn anew in each process, both sums agree
with a probability of at most 2^-54: for one family it is at most 33 * 2^-32, which is reached only
if all differences lie in the highest bits of words.
"""

from __future__ import annotations

import secrets
from functools import cache
from typing import Any

import torch

from offcert.runtime.torch_private import FakeTensor, undispatched
from offcert.runtime.watch.entries import is_plain

# Words of a row. Measured with tensors of 32 MB: a row and its products stay in the cache.
_ROW = 2**15
# Rows that are multiplied at once on a GPU, so that kernels are few. Arbitrary.
_ROWS = 64
_FAMILIES = 2


def kind_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the facts about a tensor that must be equal before its bytes are compared."""
    if tensor.layout is not torch.strided:
        return tensor.shape, tensor.dtype, tensor.device
    return tensor.shape, tensor.dtype, tensor.device, tensor.stride()


def fingerprint(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return two numbers on its device that depend on every bit of a tensor, and on its place.

    Nothing waits for them. None for fake tensors and those without plain storages, whose bytes
    cannot be read.
    """
    if not has_bytes(tensor):
        return None
    with undispatched():
        words = _words(tensor.detach())
        weights = _weights(words.device)
        if len(words) < _ROW:
            return (weights[:, : len(words)] * words).sum(1)
        return _of_rows(words, weights)


def _of_rows(words: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted sums of many words, row by row."""
    rows, rest = divmod(len(words), _ROW)
    factors = _factors(words.device, max(256, 1 << (rows - 1).bit_length()))
    total = (weights[:, :rest] * words[rows * _ROW :]).sum(1)
    table = words[: rows * _ROW].view(rows, _ROW)
    step = 1 if words.device.type == "cpu" else _ROWS
    for first in range(0, rows, step):
        wide = table[first : first + step].to(torch.int64)
        these = factors[:, first : first + len(wide)]
        found = [((wide * weights[k]).sum(1) * these[k]).sum() for k in range(_FAMILIES)]
        total += torch.stack(found)
    return total


def has_bytes(tensor: torch.Tensor) -> bool:
    """Whether a tensor is an ordinary one with bytes that can be read."""
    return is_plain(tensor) and not isinstance(tensor, FakeTensor) and not tensor.is_meta


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor as integers, in the order in which they lie in memory."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    tensor = tensor.resolve_neg()
    if not tensor.is_contiguous():
        # Along a dimension without a stride all elements are one.
        for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
            if stride == 0 and size > 1:
                tensor = tensor.narrow(dimension, 0, 1)
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        tensor = tensor.permute(order).contiguous()
    flat = tensor.reshape(-1)
    size = flat.element_size()
    if size >= 4:
        return flat.view(torch.int32)
    aligned = flat.numel() * size % 4 == 0 and int(flat.storage_offset()) * size % 4 == 0
    if aligned:
        return flat.view(torch.int32)
    return flat.view(torch.int16 if size == 2 else torch.int8)


@cache
def _seed() -> int:
    return secrets.randbits(62)


def _random(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    low, high = -(2**63), 2**63 - 1
    return torch.randint(low, high, (_FAMILIES, count), generator=generator, dtype=torch.int64)


@cache
def _weights(device: torch.device) -> torch.Tensor:
    """Return the weights of the words of a row, for each family."""
    return _random(_ROW, _seed()).to(device)


@cache
def _factors(device: torch.device, rows: int) -> torch.Tensor:
    """Return odd weights of rows, for each family."""
    return (_random(rows, _seed() + 1) | 1).to(device)

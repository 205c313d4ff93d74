"""Tensors that a segment's code can reach: by what it shows that they have been changed."""

from __future__ import annotations

import ctypes
import zlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from offcert.runtime.watch.entries import is_plain

# Elements in a sample. A difference in a share p of a tensor's elements is missed with probability
# (1 - p)^32 in one step. Arbitrary.
_SAMPLED = 32
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Sample:
    """Shape, type, device and some elements of a tensor.

    Parameters
    ----------
    tensor : torch.Tensor
        Of any kind; of fake tensors and of kinds without plain storages no elements are taken.
    turn : int
        Number that chooses the elements that are taken: steps should differ in it.
    """

    __slots__ = ("bits", "kind", "turn")

    def __init__(self, tensor: torch.Tensor, turn: int) -> None:
        self.kind = tensor.shape, tensor.dtype, tensor.device
        self.turn = turn
        self.bits = _bits(tensor, turn)

    def fits(self, tensor: torch.Tensor) -> bool | torch.Tensor:
        """Return whether a tensor is like the one that was sampled; for devices as a tensor."""
        if self.kind != (tensor.shape, tensor.dtype, tensor.device):
            return False
        found = _bits(tensor, self.turn)
        if isinstance(found, torch.Tensor) and isinstance(self.bits, torch.Tensor):
            return (found == self.bits).all()
        return type(found) is type(self.bits) and bool(found == self.bits)


def _bits(tensor: torch.Tensor, turn: int) -> bytes | torch.Tensor | None:
    """Return some elements of a tensor: on the CPU as bytes, elsewhere as numbers of theirs."""
    if isinstance(tensor, FakeTensor) or not is_plain(tensor) or tensor.is_meta:
        return None
    with torch._C._DisableTorchDispatch():
        found = _elements(tensor.detach(), turn).view(_INTEGERS[_itemsize(tensor)])
        return found.numpy().tobytes() if found.device.type == "cpu" else found


def _itemsize(tensor: torch.Tensor) -> int:
    # Complex numbers of 16 bytes are taken as two of 8.
    return min(8, tensor.element_size())


def _elements(tensor: torch.Tensor, turn: int) -> torch.Tensor:
    """Return a copy of up to `_SAMPLED` elements, evenly spaced in memory."""
    count = tensor.numel()
    step = -(-count // _SAMPLED) or 1
    first = turn * 7919 % step
    begin = int(tensor.storage_offset())
    if tensor.is_contiguous() or _span(tensor) == count:
        number = -(-(count - first) // step)
        return tensor.as_strided((number,), (step,), begin + first).clone()
    places = []
    for index in range(first, count, step):
        place = begin
        for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
            index, within = divmod(index, size)
            place += within * stride
        places.append(place)
    whole = tensor.as_strided((begin + _span(tensor),), (1,), 0)
    return whole[torch.tensor(places, device=tensor.device)]


def _span(tensor: torch.Tensor) -> int:
    """Return how far apart the first and the last element of a tensor lie in memory, and one."""
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor in the host's memory."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        found = tensor.detach()
        return found.clone() if found.device.type == "cpu" else found.cpu()


def is_same(original: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether a tensor has the very bits of a copy."""
    if original.shape != tensor.shape or original.dtype != tensor.dtype:
        return False
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        return torch.equal(_integers(original), _integers(tensor.detach().to(original.device)))


def _integers(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.resolve_neg().view(_INTEGERS[tensor.element_size()])


def digest(tensor: torch.Tensor) -> Any:
    """Return numbers that two tensors of the same kind hardly share unless they are the same."""
    if isinstance(tensor, FakeTensor) or not is_plain(tensor) or tensor.is_meta:
        return None
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        bits = _integers(tensor.detach())
        if bits.device.type == "cpu":
            bits = bits.contiguous()
            # NumPy would forbid that the storage is ever resized, as that of a gathered parameter
            # is that it was made for.
            size = bits.nbytes
            numbers = (ctypes.c_char * size).from_address(bits.data_ptr()) if size else b""
            return zlib.crc32(numbers), zlib.adler32(numbers)
        bits = bits.reshape(-1).to(torch.int64)
        odd = torch.arange(1, 2 * len(bits), 2, device=bits.device)
        return int(bits.sum()), int((bits * odd).sum())


@dataclass(slots=True)
class Row:
    """A tensor that a segment's code can reach, when the segment began.

    Attributes
    ----------
    name : str
        Name for people.
    key : hashable
        Where it is held.
    tensor : torch.Tensor
        The tensor.
    version, address : int
        By which it shows that it has been changed, or has another storage.
    copy : torch.Tensor or None
        Of it, as it was.
    fixed : bool
        Whether it must not change: a parameter.
    ignored : bool
        Whether nothing depends on it: running statistics of what normalises by the batch.
    lost : bool
        Whether what it was is not known any more: it was changed, and never had been before.
    digest : object
        Of its elements, in a rehearsal.
    """

    name: str
    key: Any
    tensor: torch.Tensor
    version: int
    address: int
    copy: torch.Tensor | None = None
    fixed: bool = False
    ignored: bool = False
    lost: bool = False
    digest: Any = None

    @property
    def moved(self) -> bool:
        """Whether the tensor shows that it has been changed."""
        return version_of(self.tensor) != self.version or address_of(self.tensor) != self.address

    @property
    def storage(self) -> int:
        """The address of its storage object; 0 for tensors without."""
        try:
            return self.tensor.untyped_storage()._cdata
        except (NotImplementedError, RuntimeError):
            return 0

    def shows_change(self, *, closely: bool) -> bool:
        """Whether it has been changed, and matters; `closely`: by its elements, too."""
        if self.ignored:
            return False
        return self.moved or (closely and self.fixed and digest(self.tensor) != self.digest)


def same_elements(copy: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether a tensor has the shape and the very bits of a copy."""
    return copy.shape == tensor.shape and is_same(copied(tensor), copied(copy))


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor has been changed in place, as far as that is counted."""
    return 0 if tensor.is_inference() else tensor._version


def address_of(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's bytes; 0 for those without an address.

    Of a parameter, in which storage: `fully_shard` frees and gathers what is in it.
    """
    try:
        if isinstance(tensor, nn.Parameter):
            return hash((tensor.untyped_storage()._cdata, tensor.storage_offset()))
        return 0 if isinstance(tensor, FakeTensor) else tensor.data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0

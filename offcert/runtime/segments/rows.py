"""Tensors that a segment's code can reach: by what it shows that they have been changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from offcert.runtime.segments.evidence import copied, digest, is_same


@dataclass(slots=True)
class Row:
    """A tensor that a segment's code can reach, when the segment began.

    Attributes
    ----------
    name : str
        For people.
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
        """Whether the tensor shows that it is not what it was."""
        return version_of(self.tensor) != self.version or address_of(self.tensor) != self.address

    @property
    def storage(self) -> int:
        """The address of its storage object; 0 for tensors without."""
        try:
            return self.tensor.untyped_storage()._cdata
        except (NotImplementedError, RuntimeError):
            return 0

    def shows_change(self, *, closely: bool) -> bool:
        """Whether it is not what it was, and matters; `closely`: by its elements, too."""
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
    """Return where the bytes of a tensor are; 0 for those without an address."""
    try:
        return 0 if isinstance(tensor, FakeTensor) else tensor.data_ptr()
    except RuntimeError:
        return 0

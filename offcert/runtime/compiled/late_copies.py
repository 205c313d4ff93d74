"""Operators for the CPU that are called like PyTorch's for accelerators, and copy when waited for.

On an accelerator, a copy runs in a stream of its own and is complete at the latest when somebody
has waited for it. So here it is made just then, no sooner, and what it goes to holds nonsense until
then: a graph that lacks a wait, or lets a source go too early, computes wrong numbers every time.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch.fx import has_side_effect

from offcert.runtime.compiled.operators import Operators

# A byte whose repetition is no number in floating point. Derived.
_NONSENSE = 255

# Copies that have begun, by the address of what they go to: that and where they come from.
_begun: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

_library = torch.library.Library("offcert", "FRAGMENT")
_library.define("offload(Tensor tensor) -> Tensor")
_library.define(
    "reload(Tensor tensor, Device device, SymInt[]? original_size=None, "
    "SymInt[]? original_stride=None) -> Tensor"
)
_library.define(
    "wait_tensor(Tensor(a) tensor, Tensor? keepalive=None, Tensor? last_use_of_storage=None) "
    "-> Tensor(a)"
)


def _begin(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    for address, (reference, _) in list(_begun.items()):
        if reference() is None:
            del _begun[address]
    torch.empty(0, dtype=torch.uint8).set_(target.untyped_storage()).fill_(_NONSENSE)
    _begun[target.data_ptr()] = weakref.ref(target), source
    return target


def _room(
    tensor: torch.Tensor,
    device: torch.device,
    size: Sequence[int] | None,
    stride: Sequence[int] | None,
) -> torch.Tensor:
    size = tensor.shape if size is None else size
    stride = tensor.stride() if stride is None else stride
    return torch.empty_strided(tuple(size), tuple(stride), dtype=tensor.dtype, device=device)


def pending_copies() -> int:
    """Return how many copies have begun and were not waited for."""
    return sum(reference() is not None for reference, _ in _begun.values())


@torch.library.impl(_library, "offload", "CPU")
def _offload(tensor: torch.Tensor) -> torch.Tensor:
    return _begin(torch.empty(tensor.shape, dtype=tensor.dtype), tensor)


@torch.library.impl(_library, "reload", "CPU")
def _reload(
    tensor: torch.Tensor,
    device: torch.device,
    original_size: Sequence[int] | None = None,
    original_stride: Sequence[int] | None = None,
) -> torch.Tensor:
    return _begin(_room(tensor, device, original_size, original_stride), tensor)


@torch.library.impl(_library, "wait_tensor", "CPU")
def _wait(
    tensor: torch.Tensor,
    keepalive: torch.Tensor | None = None,
    last_use_of_storage: torch.Tensor | None = None,
) -> torch.Tensor:
    found = _begun.pop(tensor.data_ptr(), None)
    if found is None:
        raise RuntimeError("offcert::wait_tensor: no copy to this tensor has begun")
    tensor.copy_(found[1])
    return tensor


@torch.library.register_fake("offcert::offload", lib=_library)
def _fake_offload(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


@torch.library.register_fake("offcert::reload", lib=_library)
def _fake_reload(
    tensor: torch.Tensor,
    device: torch.device,
    original_size: Sequence[int] | None = None,
    original_stride: Sequence[int] | None = None,
) -> torch.Tensor:
    return _room(tensor, device, original_size, original_stride)


@torch.library.register_fake("offcert::wait_tensor", lib=_library)
def _fake_wait(
    tensor: torch.Tensor,
    keepalive: torch.Tensor | None = None,
    last_use_of_storage: torch.Tensor | None = None,
) -> torch.Tensor:
    return tensor


OPERATORS = Operators(
    torch.ops.offcert.offload.default,
    torch.ops.offcert.reload.default,
    torch.ops.offcert.wait_tensor.default,
)
# Whoever removes dead nodes must not remove a wait.
has_side_effect(OPERATORS.wait)

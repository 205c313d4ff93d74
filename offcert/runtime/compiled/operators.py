"""The operators of the graphs: copies that are begun by one and waited for by another."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import fx
from torch.fx import has_side_effect


@dataclass(frozen=True)
class Operators:
    """The operators of ours that the graphs call.

    Attributes
    ----------
    offload : torch._ops.OpOverload
        ``(tensor) -> tensor``: begins to copy to the host.
    reload : torch._ops.OpOverload
        ``(tensor, device, size, stride) -> tensor``: takes memory on the device, and begins to copy
        into it.
    wait : torch._ops.OpOverload
        ``(tensor, None, source) -> tensor``: what runs after it finds the copy complete; the source
        lives until then.
    """

    offload: Any
    reload: Any
    wait: Any


# A byte whose repetition is no number in floating point. Derived.
_NONSENSE = 255

# Copies that have begun, by the address of what they go to: that, and what is yet to be copied, or
# how to wait for what is under way.
_begun: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor | Callable[[], object]]] = {}

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


def _begin(target: torch.Tensor, source: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Begin to copy between a device and the host; `_wait` waits for it.

    The CPU has no streams: there the target is nonsense until it is waited for.
    """
    for address, (reference, _) in list(_begun.items()):
        if reference() is None:
            del _begun[address]
    pending: torch.Tensor | Callable[[], object] = source
    if device.type == "cpu":
        torch.empty(0, dtype=torch.uint8).set_(target.untyped_storage()).fill_(_NONSENSE)
    else:
        pending = _begin_beside(target, source, device)
    _begun[target.data_ptr()] = weakref.ref(target), pending
    return target


def _begin_beside(
    target: torch.Tensor, source: torch.Tensor, device: torch.device
) -> Callable[[], object]:
    """Copy in the stream that a device has for copies, after all that its own stream has to do.

    The graph keeps what is on the device until its own stream has waited, so that nobody else gets
    that memory; what is pinned waits for the copy by itself.
    """
    computing, copying = torch.accelerator.current_stream(device), _copying(device)
    copying.wait_stream(computing)
    torch.accelerator.set_stream(copying)
    try:
        target.copy_(source, non_blocking=True)
    finally:
        torch.accelerator.set_stream(computing)
    copied = copying.record_event()
    return lambda: torch.accelerator.current_stream(device).wait_event(copied)


@cache
def _copying(device: torch.device) -> torch.Stream:
    return torch.Stream(device=device)


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


@torch.library.impl(_library, "offload", "CompositeExplicitAutograd")
def _offload(tensor: torch.Tensor) -> torch.Tensor:
    pinned = tensor.device.type != "cpu"
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)
    return _begin(host, tensor, tensor.device)


@torch.library.impl(_library, "reload", "CompositeExplicitAutograd")
def _reload(
    tensor: torch.Tensor,
    device: torch.device,
    original_size: Sequence[int] | None = None,
    original_stride: Sequence[int] | None = None,
) -> torch.Tensor:
    return _begin(_room(tensor, device, original_size, original_stride), tensor, device)


@torch.library.impl(_library, "wait_tensor", "CompositeExplicitAutograd")
def _wait(
    tensor: torch.Tensor,
    keepalive: torch.Tensor | None = None,
    last_use_of_storage: torch.Tensor | None = None,
) -> torch.Tensor:
    found = _begun.pop(tensor.data_ptr(), None)
    if found is None:
        raise RuntimeError("offcert::wait_tensor: no copy to this tensor has begun")
    pending = found[1]
    if isinstance(pending, torch.Tensor):
        tensor.copy_(pending)
    else:
        pending()
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


_library.define("hold(Tensor(a) tensor) -> Tensor(a)")


@torch.library.impl(_library, "hold", "CompositeExplicitAutograd")
def _hold(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@torch.library.register_fake("offcert::hold", lib=_library)
def _fake_hold(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


# ``(tensor) -> tensor``: the same; for a compiler a tensor that must be in memory, just once.
HOLD = torch.ops.offcert.hold.default


def is_leave(target: Any) -> bool:
    """Whether a function is an operator that begins a copy to the host."""
    return str(target) in ("offcert.offload.default", "ao.offload.default")


def is_return(node: fx.Node) -> bool:
    """Whether a node begins a copy from the host."""
    return str(node.target) in ("offcert.reload.default", "ao.reload.default")


# Whoever removes dead nodes must not remove a wait.
has_side_effect(OPERATORS.wait)

"""The operators of the graphs: copies that are begun by one and waited for by another."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch.fx import has_side_effect

HOST = torch.device("cpu")

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


def begin(
    source: torch.Tensor,
    device: torch.device | None = None,
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> torch.Tensor:
    """Begin to copy to a device, or to the host, and return the copy; `wait` waits for it.

    The CPU has no streams: there the copy is nonsense until it is waited for.
    """
    for address, (reference, _) in list(_begun.items()):
        if reference() is None:
            del _begun[address]
    there = source.device if device is None else device
    if device is None or size is None or stride is None:
        pinned = device is None and there.type != "cpu"
        target = torch.empty(
            source.shape, dtype=source.dtype, device=device or "cpu", pin_memory=pinned
        )
    else:
        target = torch.empty_strided(size, stride, dtype=source.dtype, device=device)
    pending: torch.Tensor | Callable[[], object] = source
    if there.type == "cpu":
        torch.empty(0, dtype=torch.uint8).set_(target.untyped_storage()).fill_(_NONSENSE)
    else:
        pending = _begin_beside(target, source, there)
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


def pending_copies() -> int:
    """Return how many copies have begun and were not waited for."""
    return sum(reference() is not None for reference, _ in _begun.values())


def wait(
    tensor: torch.Tensor,
    keepalive: torch.Tensor | None = None,
    last_use_of_storage: torch.Tensor | None = None,
) -> torch.Tensor:
    """Wait for a copy that has begun, and return it."""
    found = _begun.pop(tensor.data_ptr(), None)
    if found is None:
        raise RuntimeError("offcert::wait_tensor: no copy to this tensor has begun")
    pending = found[1]
    if isinstance(pending, torch.Tensor):
        tensor.copy_(pending)
    else:
        pending()
    return tensor


def _same(tensor: torch.Tensor, *others: object) -> torch.Tensor:
    return tensor


def _foreseen(
    tensor: torch.Tensor,
    device: torch.device | str = "cpu",
    original_size: Sequence[int] | None = None,
    original_stride: Sequence[int] | None = None,
) -> torch.Tensor:
    size = tensor.shape if original_size is None else original_size
    if original_stride is None:
        return torch.empty(size, dtype=tensor.dtype, device=device)
    return torch.empty_strided(size, original_stride, dtype=tensor.dtype, device=device)


_library.define("hold(Tensor(a) tensor) -> Tensor(a)")
for _name, _real, _fake in (
    ("offload", begin, _foreseen),
    ("reload", begin, _foreseen),
    ("wait_tensor", wait, _same),
    ("hold", _same, _same),
):
    torch.library.impl(_library, _name, "CompositeExplicitAutograd")(_real)
    torch.library.register_fake(f"offcert::{_name}", _fake, lib=_library)

# ``(tensor) -> tensor``: begins to copy to the host.
OFFLOAD = torch.ops.offcert.offload.default
# ``(tensor, device, size, stride) -> tensor``: takes memory on the device, and begins to copy into
# it.
RELOAD = torch.ops.offcert.reload.default
# ``(tensor, None, source) -> tensor``: what runs after it finds the copy complete; the source lives
# until then.
WAIT = torch.ops.offcert.wait_tensor.default
# ``(tensor) -> tensor``: the same; for a compiler a tensor that must be in memory, just once.
HOLD = torch.ops.offcert.hold.default

# Expressions that kernels of Inductor may call instead of the operators, without asking PyTorch
# which function that is; holding a tensor is no call at all.
DIRECT: dict[Any, str] = {
    HOLD: "",
    OFFLOAD: f"{__name__}.begin",
    RELOAD: f"{__name__}.begin",
    WAIT: f"{__name__}.wait",
}


def call(graph: fx.Graph, target: Any, arguments: Any, name: str) -> fx.Node:
    """Return a new node of a graph that calls one of our operators."""
    node = graph.create_node("call_function", target, arguments, {}, name)
    node.meta["partitioner_tag"] = "is_forward"
    return node


def value_like(
    like: torch.Tensor, device: torch.device, stride: Sequence[int] | None = None
) -> torch.Tensor:
    """Return a tensor without data of the shape and dtype that a node computes."""
    mode = detect_fake_mode((like,))
    assert mode is not None
    with mode:
        return _foreseen(like, device, None, stride)


# Whoever removes dead nodes must not remove a wait.
has_side_effect(WAIT)

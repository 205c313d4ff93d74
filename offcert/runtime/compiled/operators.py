"""The operators of the graphs: PyTorch's own for accelerators, and stand-ins for the CPU."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import fx
from torch.fx import has_side_effect

from offcert.core.errors import InputError

# Where PyTorch registers them, and the arguments with which they are called here.
_HOME = "torch._functorch._activation_offloading.offload_ops"
ARGUMENTS = {
    "offload": ("tensor",),
    "reload": ("tensor", "device", "original_size", "original_stride"),
    "wait_tensor": ("tensor", "keepalive", "last_use_of_storage"),
}


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


def torch_operators() -> Operators:
    """Return PyTorch's operators, which copy in a stream of their own.

    Raises
    ------
    InputError
        If the PyTorch that is installed lacks one of them, or calls it otherwise.
    """
    try:
        import_module(_HOME)
    except ImportError:
        raise _missing("offload") from None
    found = {}
    for name, arguments in ARGUMENTS.items():
        packet = getattr(torch.ops.ao, name, None)
        if packet is None or not hasattr(packet, "default"):
            raise _missing(name)
        has = tuple(argument.name for argument in packet.default._schema.arguments)
        if has != arguments:
            raise InputError(
                f"torch {torch.__version__} calls torch.ops.ao.{name} with ({', '.join(has)}), not "
                f"with ({', '.join(arguments)}) as torch 2.13 does: plans that move tensors cannot "
                "be compiled with it"
            )
        found[name] = packet.default
    return Operators(found["offload"], found["reload"], found["wait_tensor"])


def _missing(name: str) -> InputError:
    return InputError(
        f"torch {torch.__version__} has no operator torch.ops.ao.{name}: plans that move tensors "
        "cannot be compiled with it; torch 2.13 has it, and offcert.offload needs none"
    )


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

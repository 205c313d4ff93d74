"""The operators of the graphs: PyTorch's own for accelerators, and stand-ins for the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

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

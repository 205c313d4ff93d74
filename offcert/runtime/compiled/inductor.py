"""Graphs that follow a plan, made into kernels by TorchInductor.

It works from what depends on what. So the numbers are right if everything that somebody must wait
for, or must keep, is there as a dependency. Two things were not, and made wrong numbers of right
graphs:

1. Whatever is cheap, it computes anew for each operator that takes it. The operator that begins a
   copy and the one that waits for it then have two tensors; the copied one is given up at once, and
   overwritten during the copy. So a storage that leaves passes through `HOLD` first, an operator
   that does nothing: its one result is what both take.
2. It writes over what is saved for the backward pass ("donated buffers") after the last use of that
   tensor. PyTorch's default partitioner, whose graphs plans know, saves several tensors over one
   storage, and Inductor takes them for strangers: one is overwritten while another is still needed,
   without any plan, too. So nothing is donated.

Inductor puts operators in another order where dependencies allow it, and computes several in one
kernel, of which it may keep nothing in memory. A plan says before which operations a tensor leaves
and returns; where these are in the kernels is for Inductor to say. The numbers differ from those
of the program as Inductor's do: each kernel rounds otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch import config as aot_config

from offcert.core.errors import InputError

NAME = "inductor"

Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]

_library = torch.library.Library("offcert", "FRAGMENT")
_library.define("hold(Tensor(a) tensor) -> Tensor(a)")


@torch.library.impl(_library, "hold", "CompositeExplicitAutograd")
def _hold(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@torch.library.register_fake("offcert::hold", lib=_library)
def _fake_hold(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


# ``(tensor) -> tensor``: the same; for a compiler a tensor that must be in memory, just once.
HOLD = torch.ops.offcert.hold.default


def compiled_by_inductor(
    module: fx.GraphModule, inputs: Sequence[Any], partition: Partition
) -> Any:
    """Return Inductor's kernels for a graph that Dynamo has traced and our partitioner divides.

    Parameters
    ----------
    module : torch.fx.GraphModule
        The graph that was traced.
    inputs : sequence
        Its inputs.
    partition : callable
        As `offcert.runtime.compiled.backend.Backend.partition`.

    Raises
    ------
    InputError
        If the PyTorch that is installed takes no partitioner.
    """
    from torch._inductor.compile_fx import compile_fx

    patches = {
        "custom_partitioner_fn": _partitioner(partition),
        # Copies inside of CUDA graphs would go to the same addresses again, whoever has them then.
        "triton.cudagraphs": False,
    }
    with aot_config.patch(donated_buffer=False):
        return compile_fx(module, inputs, config_patches=patches)


def require_inductor() -> None:
    """Raise an `InputError` if Inductor takes no partitioner."""
    try:
        from torch._inductor.custom_graph_pass import CustomPartitionerFn  # noqa: F401
    except ImportError:
        raise InputError(
            f"the Inductor of torch {torch.__version__} takes no partitioner, which a plan needs; "
            "that of torch 2.13 does"
        ) from None


def _partitioner(partition: Partition) -> Any:
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    class Partitioner(CustomPartitionerFn):
        """Divides a joint graph as a plan wants it."""

        def __call__(
            self, gm: fx.GraphModule, joint_inputs: Sequence[object], **options: Any
        ) -> tuple[fx.GraphModule, fx.GraphModule]:
            options.pop("compiler", None)
            return partition(gm, joint_inputs, **options)

        def uuid(self) -> None:
            """Return None: graphs of a plan are for no cache, as reports are made with them."""

    return Partitioner()

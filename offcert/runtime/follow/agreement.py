"""Whether all processes that train a model together follow the same plan.

Each process moves its own tensors, so no gradient depends on it. But processes wait for each other
in every step, the time of a step is that of the slowest one, and a process that follows another
plan has another limit than was promised for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import distributed as dist
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.watch.sharded import is_distributed, states_of


def require_agreement(model: nn.Module, step_plans: Sequence[StepPlan]) -> None:
    """Compare plans with the other processes of a model that is replicated or sharded.

    All of them must come here, as they must come to every step; if one has other plans, all raise
    an `InputError`. Of other models nothing is known of any other process, and nothing is done.
    """
    if not dist.is_available() or not dist.is_initialized():
        return
    known = [(dist.get_rank(), digest_of(step_plans))]
    for group in _groups(model):
        # Along one dimension of a mesh after the other, everybody hears of everybody.
        found: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(found, known, group)
        known = sorted({pair for each in found for pair in each})
    first, digest = known[0]
    other = next(((rank, each) for rank, each in known if each != digest), None)
    if other is not None:
        raise InputError(
            f"process {other[0]} follows another plan than process {first}: their digests begin "
            f"with {other[1][:12]} and {digest[:12]}; all processes that train a model together "
            "must be given the same certificates"
        )


def is_sharded(model: nn.Module) -> bool:
    """Whether processes hold parts of a model, so that each of its calls is one of all of them."""
    return bool(states_of(model.modules())) or any(map(is_distributed, model.parameters()))


def _groups(model: nn.Module) -> list[Any]:
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return [model.process_group]
    held: list[Any] = [each for each in model.parameters() if is_distributed(each)]
    meshes = [each.device_mesh for each in held]
    largest = max(meshes, key=lambda mesh: (mesh.ndim, mesh.size()), default=None)
    return [] if largest is None else list(largest.get_all_groups())


def digest_of(step_plans: Sequence[StepPlan]) -> str:
    """Return a digest of plans: equal if they move and run again the same at the same moments."""
    return " ".join(step_plan.digest for step_plan in step_plans)

"""Whether all processes of a data-parallel training follow the same plan.

Each process moves its own tensors, so no gradient depends on it. But processes wait for each other
in every step, the time of a step is that of the slowest one, and a process that follows another
plan has another limit than was promised for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import distributed as dist
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.plan.step_plan import StepPlan


def require_agreement(model: nn.Module, step_plans: Sequence[StepPlan]) -> None:
    """Compare plans with the other processes of a model under DistributedDataParallel.

    All of them must come here, as they must come to every step. Of other models nothing is known
    of any other process, and nothing is done.

    Raises
    ------
    InputError
        In all of them, if one has other plans.
    """
    if not isinstance(model, nn.parallel.DistributedDataParallel) or not dist.is_initialized():
        return
    group = model.process_group
    found: list[str | None] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, digest_of(step_plans), group)
    other = next((rank for rank, each in enumerate(found) if each != found[0]), None)
    if other is not None:
        raise InputError(
            f"process {other} follows another plan than process 0: their digests begin with "
            f"{str(found[other])[:12]} and {str(found[0])[:12]}; all processes of a data-parallel "
            "training must be given the same certificates"
        )


def digest_of(step_plans: Sequence[StepPlan]) -> str:
    """Return a digest of plans: equal if they move and run again the same at the same moments."""
    return " ".join(step_plan.digest for step_plan in step_plans)

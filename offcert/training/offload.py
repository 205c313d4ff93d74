"""`offload`: train under plans that are given, or that are made while the training begins."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from offcert.certify.kept_plans import KeptPlans
from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.options import require_count
from offcert.proofs.certificate import Certificate, read_certificate
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.cuda import cuda_device
from offcert.runtime.device.interface import Device
from offcert.runtime.follow.memory import memory_limit, within_host
from offcert.runtime.follow.offload import Offload, follow
from offcert.runtime.plan.step_plan import AnyPlan, CertificateLike
from offcert.runtime.watch.hooks import unwrap
from offcert.training.auto import AutoOffload
from offcert.training.feedback import tell_of_kernels, tell_of_plans
from offcert.training.planner import Planner

# Seconds to look for a plan. Arbitrary.
SECONDS = 10.0


def offload(
    model: nn.Module,
    plan: AnyPlan | Sequence[CertificateLike] | str | Path,
    problem: Problem | None = None,
    *,
    memory: int | str | None = None,
    device_memory: int | str | None = None,
    example: TrainingStep | None = None,
    optimiser: torch.optim.Optimizer | None = None,
    hardware: str | None = None,
    recompute: str | None = None,
    time_limit: float = SECONDS,
    max_plans: int = 4,
    buckets: int = 1,
    background: bool = True,
    plans: str | Path | None = None,
    strict: bool = False,
    count: bool | None = None,
    directory: str | None = None,
    device: Device | None = None,
    timed: bool = False,
    host_memory: int | str | None = None,
    host_spill: bool | str = False,
    reserved_memory: int | str | None = None,
    verify_every: int | None = None,
) -> Offload:
    """Prepare to train `model` under a plan; see `offcert.runtime.follow.offload.follow`.

    With ``plan="auto"`` and a budget, plans are made on the way. The first step with inputs of a
    new kind is captured; where its bytes would exceed the budget, what autograd has saved leaves,
    and returns in the backward pass. The next steps follow a makeshift for the same budget, and are
    timed, until a plan has been found and certified in a process of its own. With an `example` the
    capture happens before the training begins, on fake tensors if possible, so that even the first
    step follows a plan; it should be the largest step that there will be, since smaller ones follow
    its plan (`docs/theory/smaller-steps.md`).

    A plan moves what is dear to compute, and has the rest computed again in the backward pass,
    whichever takes less time. What runs again does so as under PyTorch's own non-reentrant
    checkpointing: losses and gradients are bitwise those of plain training, what modules remember
    changes once, and forward hooks of the program's own are called again. Where that cannot be done
    (it is not clear what the step computes from what, or the program refuses), an `OffloadWarning`
    says why, and plans only move tensors.

    Parameters
    ----------
    model : nn.Module
        The network.
    plan : Certificate, Plan, Schedule, sequence of certificates, path, or ``"auto"``
        The plan to follow; a path is that of a certificate's file.
    problem : Problem, optional
        The problem that a plan or schedule was made for.
    memory : int or str, optional
        With ``"auto"``: the budget, in bytes or as ``"6GiB"``, without what a trace does not count
        (parameters, gradients, buffers, batch, optimiser state), or ``"25%"`` of the way from the
        least with which anything runs to the peak.
    device_memory : int or str, optional
        With ``"auto"``: the budget with all that, in bytes or as ``"16GiB"``.
    example : TrainingStep, optional
        With ``"auto"``: a step that is captured before the training begins.
    optimiser : torch.optim.Optimizer, optional
        With ``"auto"``: counts for `device_memory`, with the state that it has when a plan is made.
    hardware : str, optional
        With ``"auto"``: the name of a hardware model that gives the times; by default they are
        measured.
    recompute : str, optional
        With ``"auto"``: ``"any"`` (the default) if modules may run again, or ``"none"``.
    time_limit : float
        With ``"auto"``: seconds to look for a plan.
    max_plans : int
        With ``"auto"``: for so many kinds of steps; others keep their tensors.
    buckets : int
        With ``"auto"``: how many plans share the steps that the plan of the largest would do for.
        Their sizes are chosen when some steps have been seen, so that steps take least time
        (`docs/theory/smaller-steps.md`). Searches for them come after that of the largest, each as
        long as `time_limit` says.
    background : bool
        With ``"auto"``: whether plans are searched for in a process of its own while the training
        goes on, or the training waits for them.
    plans : str or Path, optional
        With ``"auto"``: a folder in which certificates are kept, and found again: by the next run,
        by another process, or on another machine with the same device (with `hardware`: on any).
        They are named by the digest of step, limit and machine. What is found is verified, and has
        to be about the very step; what is damaged is said, and searched for anew.
    strict, count, directory
        As for `offcert.runtime.follow.offload.follow`; steps that are captured or timed on the way
        are nothing that `strict` objects to.
    device, timed
        As there.
    host_memory, host_spill
        As there. With ``"auto"`` the limit is one of the search, too: what does not fit stays, or
        is computed again, and the best of the plans that keep to the limit is followed. If there
        is none, that is said, and training goes on without a plan. With `host_spill` plans are
        made as if there were no limit.
    reserved_memory
        As there. With ``"auto"`` it may be the budget: `device_memory`, without what the allocator
        has reserved in vain in the step that was captured.
    verify_every
        As there.

    Raises
    ------
    InputError
        If what is given does not go together, or as `offcert.runtime.follow.offload.follow`.
    """
    following: dict[str, Any] = {
        "strict": strict,
        "count": count,
        "directory": directory,
        "device": device,
        "timed": timed,
        "verify_every": verify_every,
    }
    asked: dict[str, Any] = {
        "memory": memory,
        "device_memory": device_memory,
        "optimiser": optimiser,
        "hardware": hardware,
        "recompute": recompute,
    }
    if plan != "auto" and isinstance(plan, str | Path):
        plan = _read(plan)
    if not isinstance(plan, str | Path):
        _refuse(asked | {"example": example, "plans": plans}, 'with plan="auto"')
        given: dict[str, Any] = {
            "host_memory": host_memory,
            "host_spill": host_spill,
            "reserved_memory": reserved_memory,
        }
        followed = follow(model, plan, problem, **following, **given)
        for each in followed.step_plans:
            tell_of_kernels(each, model)
        several = plan if isinstance(plan, Sequence) else [plan]
        tell_of_plans(followed, zip(several, followed.step_plans, strict=True))
        return followed
    if problem is not None:
        raise InputError('problem cannot be given with plan="auto", which captures it')
    # What is wrong with the limit shows now, not in the middle of the training.
    within_host((), host_memory, host_spill)
    following["host_memory"] = memory_limit(host_memory)
    following["background"] = background
    if plans is not None:
        following["plans"] = KeptPlans(plans, "" if hardware is not None else _machine(model))
    following["spills"] = host_spill is not False
    following["spill"] = host_spill if isinstance(host_spill, str) else None
    reserved = following["reserved_memory"] = memory_limit(reserved_memory, "reserved_memory")
    if memory is None and device_memory is None:
        asked["device_memory"] = reserved
    if device is None:
        following["device"] = cuda_device(unwrap(model), timed=timed)
    again = "any" if recompute is None else recompute
    planner = Planner(**asked | {"time_limit": time_limit, "recompute": again})
    planner.require_room(unwrap(model), example)
    most = require_count(max_plans, "max_plans")
    following["buckets"] = require_count(buckets, "buckets")
    found = AutoOffload(model, planner, most, **following)
    if example is not None:
        found.plan_for(example)
    return found


def _read(path: str | Path) -> Certificate:
    """Return the certificate in a file; what is neither a file nor "auto" is refused."""
    if not Path(path).is_file():
        raise InputError(
            f'plan must be a certificate, a plan, a schedule, "auto" or the path of a '
            f"certificate's file, not {short_repr(str(path))}"
        )
    return read_certificate(path)


def _refuse(options: Mapping[str, Any], where: str) -> None:
    """Refuse options that belong elsewhere."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise InputError(f"{name} can only be given {where}")


def _machine(model: nn.Module) -> str:
    """Return the name of the device whose times are measured."""
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} {platform.machine()} {platform.processor()}".strip()

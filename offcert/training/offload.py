"""`offload`: train under plans that are given, or that are made while the training begins."""

from __future__ import annotations

import platform
import weakref
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from offcert.certification.kept_plans import KeptPlans
from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.proofs.certificate import Certificate, read_certificate
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.interface import Device
from offcert.runtime.follow.follower import Follower
from offcert.runtime.follow.offload import Offload, follow
from offcert.runtime.plan.step_plan import AnyPlan, CertificateLike
from offcert.runtime.watch.hooks import unwrap
from offcert.runtime.workloads.standard_step import device_of
from offcert.training.auto import AutoPlans
from offcert.training.feedback import tell_of_kernels, tell_of_plans
from offcert.training.planner import SECONDS, OffloadOptions, Planner


def offload(
    model: nn.Module,
    plan: AnyPlan | Sequence[CertificateLike] | str | Path,
    problem: Problem | None = None,
    *,
    memory: int | str | None = None,
    device_memory: int | str | None = None,
    optimiser: torch.optim.Optimizer | None = None,
    time_limit: float = SECONDS,
    example: TrainingStep | None = None,
    hardware: str | None = None,
    recompute: str | None = None,
    max_plans: int = 4,
    background: bool = True,
    plans: str | Path | None = None,
    strict: bool = False,
    count: bool | None = None,
    timed: bool = False,
    verify_every: int | None = None,
    host_memory: int | str | None = None,
    host_spill: bool | str = False,
    reserved_memory: int | str | None = None,
    directory: str | None = None,
    device: Device | None = None,
) -> Offload:
    """Train `model` within a memory limit: return a context manager for your training loop.

    Inside of it each step follows a plan: tensors that autograd saves leave for the host and come
    back, or are computed again. The model's own forward pass runs; losses, gradients, parameters
    and buffers are bitwise those of plain training. A step that is not the one that was planned for
    keeps its tensors on the device; that is reported, and warned of once.

    The plan is given, or made on the way with ``plan="auto"`` and a limit. Then the first step with
    inputs of a new kind is recorded; where its bytes would exceed the limit, saved tensors leave at
    once. The next steps follow a quick heuristic plan and are timed, until a certified plan has
    been found in a process of its own. With an `example` the step is recorded before the training
    begins, on fake tensors if possible, so that even the first step follows a plan. The example
    should be the largest step that there will be: smaller ones follow its plan
    (`docs/theory/smaller-steps.md`).

    What runs again does so as under PyTorch's non-reentrant checkpointing: what modules remember
    changes once, and forward hooks of your own are called again. Where that cannot be done, an
    `OffloadWarning` says why, and plans only move tensors.

    Most programs need the first options alone: a limit, and how long to look for a plan.

    Parameters
    ----------
    model : nn.Module
        The network, on the CPU or one CUDA device; DistributedDataParallel may wrap it.
    plan : Certificate, Plan, Schedule, sequence of certificates, path, or ``"auto"``
        The plan to follow; a path is that of a certificate's file. Of several certificates each
        step follows the one for inputs like its own.
    problem : Problem, optional
        The problem that a plan or schedule was made for; a certificate brings its own.
    memory : int or str, optional
        With ``"auto"``: the limit, in bytes or as ``"6GiB"``, without what a trace does not count
        (parameters, gradients, buffers, batch, optimiser state), or ``"25%"`` of the way from the
        least with which anything runs to the peak.
    device_memory : int or str, optional
        With ``"auto"``: the limit with all that, in bytes or as ``"16GiB"``.
    optimiser : torch.optim.Optimizer, optional
        With ``"auto"``: counts for `device_memory`, with the state that it has when a plan is made.
    time_limit : float
        With ``"auto"``: seconds to look for a plan.
    example : TrainingStep, optional
        With ``"auto"``: a step that is recorded before the training begins.
    hardware : str, optional
        With ``"auto"``: the hardware model that gives the times; by default they are measured.
    recompute : str, optional
        With ``"auto"``: ``"any"`` (the default) if modules may run again, or ``"none"``.
    max_plans : int
        With ``"auto"``: for so many kinds of steps; others keep their tensors.
    background : bool
        With ``"auto"``: search for plans in a process of its own while the training goes on; if
        false, the training waits for them.
    plans : str or Path, optional
        With ``"auto"``: a folder in which certificates are kept, and found again: by the next run,
        by another process, or on another machine with the same device (with `hardware`: on any).
        What is found is verified, and has to be about the very step.
    strict : bool
        Raise a `PlanError` where a step does not follow its plan; steps that are recorded or timed
        on the way are no such steps.
    count : bool, optional
        Count live bytes at every operation, in all steps or in none; by default in the first two of
        each plan, and where the autograd graph has a new shape or inputs are larger than before. It
        costs 20 to 40 microseconds an operator.
    timed : bool
        Take note of the times of operations and transfers; see `Offload.times`.
    verify_every : int, optional
        After how many steps each segment that runs again is compared in full with its first run; by
        default after as many as there are segments, one in each step.
    host_memory : int or str, optional
        Bytes of the host's memory that copies may take (``"8GiB"``); by default any number. A given
        plan that needs more is refused; with ``"auto"`` the search keeps to it, and if no plan
        does, that is said and training goes on without one.
    host_spill : bool or str
        Put copies that do not fit into `host_memory` into a memory-mapped file (in this folder).
    reserved_memory : int or str, optional
        Bytes that PyTorch's allocator may have reserved on the device at most (``"16GiB"``), pieces
        between tensors included; a step in which it reserves more has not followed its plan. Peaks
        of the allocator's statistics are reset in every step then. With ``"auto"`` it may be the
        limit: `device_memory`, without what the allocator reserved in vain in the recorded step.
    directory : str, optional
        Where the temporary file with the offloaded bytes is made, on a device without streams.
    device : Device, optional
        Whose streams copy; by default those of the CUDA device that the model is on, and none for a
        model on the CPU.

    Returns
    -------
    Offload
        A context manager, which can be entered again and again; its `report` tells of the latest
        step, its `steps` count them.

    Raises
    ------
    InputError
        If what is given does not go together, the model or plan is not of a kind that can be
        trained so, or the host has too little memory for a given plan.

    Examples
    --------
    >>> import offcert, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    >>> optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with offcert.offload(
    ...     model, "auto", memory="25%", hardware="v100-pcie", time_limit=1, background=False
    ... ) as training:
    ...     for _ in range(3):
    ...         model(torch.randn(4, 8)).square().mean().backward()
    ...         optimiser.step()
    ...         optimiser.zero_grad()
    >>> sum(training.steps.values())
    3
    """
    options = OffloadOptions(
        memory=memory,
        device_memory=device_memory,
        optimiser=optimiser,
        time_limit=time_limit,
        example=example,
        hardware=hardware,
        recompute=recompute,
        max_plans=max_plans,
        background=background,
        plans=plans,
        strict=strict,
        count=count,
        timed=timed,
        verify_every=verify_every,
        host_memory=host_memory,
        host_spill=host_spill,
        reserved_memory=reserved_memory,
        directory=directory,
        device=device,
    )
    if plan == "auto":
        if problem is not None:
            raise InputError('problem cannot be given with plan="auto", which captures it')
        return _planned(model, options)
    if isinstance(plan, str | Path):
        plan = _read(plan)
    options.require_given()
    followed = follow(model, plan, problem, options)
    for each in followed.step_plans:
        tell_of_kernels(each, model)
    several = plan if isinstance(plan, Sequence) else [plan]
    tell_of_plans(followed.follower, zip(several, followed.step_plans, strict=True))
    return followed


def _planned(model: nn.Module, options: OffloadOptions) -> Offload:
    """Return a training whose plans are made on the way."""
    options = options.on_device_of(model)
    root, planner = unwrap(model), Planner(options)
    planner.require_room(root)
    kept = None
    if options.plans is not None:
        kept = KeptPlans(options.plans, "" if options.hardware is not None else _machine(root))
    follower = Follower(root, (), options, grows=True)
    planning = AutoPlans(follower, planner, kept)
    follower.relay.listener = weakref.ref(planning)
    if options.example is not None:
        planning.plan(planner.problem_of_step(options.example))
    return Offload(model, follower=follower, planning=planning)


def _read(path: str | Path) -> Certificate:
    """Return the certificate in a file; what is neither a file nor "auto" is refused."""
    if not Path(path).is_file():
        raise InputError(
            f'plan must be a certificate, a plan, a schedule, "auto" or the path of a '
            f"certificate's file, not {short_repr(str(path))}"
        )
    return read_certificate(path)


def _machine(model: nn.Module) -> str:
    """Return the name of the device whose times are measured."""
    device = device_of(model)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} {platform.machine()} {platform.processor()}".strip()

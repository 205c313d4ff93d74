"""`follow`: the user's own training loop, under a plan."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol

from torch import distributed as dist
from torch import nn

from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.training_record import HostMemory
from offcert.runtime.follow.counting import host_memory_of
from offcert.runtime.follow.follower import Follower, StepListener, unhook
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.reports import StepReport
from offcert.runtime.plan.step_plan import AnyPlan, CertificateLike, StepPlan, step_plans
from offcert.runtime.watch.guard import OffloadWarning
from offcert.runtime.watch.hooks import unwrap
from offcert.runtime.watch.sharded import is_distributed

__all__ = ["Offload", "OffloadWarning", "follow"]


def follow(
    model: nn.Module,
    plan: AnyPlan | Sequence[CertificateLike],
    problem: Problem | None = None,
    options: FollowOptions | None = None,
) -> Offload:
    """Prepare to train `model` under a plan that is given, as `offcert.training.offload` does.

    The model's own forward runs; hooks on its modules are the clock, and hooks on what autograd
    saves move it. A step that is not the captured one (another batch size, another branch,
    evaluation) keeps its tensors; that is reported, and warned of once.

    Problems that training cannot follow, a model on several devices, schedules that move tensors in
    pieces and too little memory of the host are an `InputError`; plans that do not make sense, or
    exceed their problem's memory, a `PlanError`.
    """
    options = (options or FollowOptions()).on_device_of(model)
    found = step_plans(plan, problem, streams=options.device is not None)
    return Offload(model, options.within_host(found), options)


class Planning(StepListener, Protocol):
    """The object that makes plans while a training goes on, and hears of its steps first."""

    @property
    def certificates(self) -> list[Any]:
        """The certificates of the plans that were made so far."""

    def close(self) -> None:
        """End all searches and studies: the context ends."""


class Offload(AbstractContextManager["Offload"]):
    """A training under plans, to be entered again and again. Dropped, it undoes what it did.

    DistributedDataParallel may wrap the model. Plans that are made on the way are made by
    `planning`, and followed by its `follower`; others are the `step_plans`.
    """

    def __init__(
        self,
        model: nn.Module,
        step_plans: Sequence[StepPlan] = (),
        options: FollowOptions | None = None,
        *,
        follower: Follower | None = None,
        planning: Planning | None = None,
    ) -> None:
        if follower is None:
            follower = Follower(unwrap(model), step_plans, options or FollowOptions())
        self.follower = follower
        self._model, self._planning = model, planning
        # The stack that undoes entering, and the finalizer that closes it if nobody leaves.
        self._open: ExitStack | None = None
        self._finalizer: weakref.finalize[..., Offload] | None = None

    def __repr__(self) -> str:
        plans = "1 plan" if len(self.step_plans) == 1 else f"{len(self.step_plans)} plans"
        steps = ", ".join(f"{number} {kind}" for kind, number in self.steps.items())
        state = "not entered" if self._open is None else "entered"
        return (
            f"<Offload of {type(self.follower.root).__name__}: {plans}; steps: "
            f"{steps or 'none'}; {state}>"
        )

    def __enter__(self) -> Offload:
        """Hook the model."""
        if self._open is not None:
            raise InputError("this offload context has been entered already")
        follower = self.follower
        require_agreement(self._model, follower.step_plans)
        follower.accounts.begin()
        # The stack must not hold this object, which may be dropped without being left.
        with ExitStack() as undo:
            undo.callback(follower.mover_maker.close)
            undo.callback(unhook, follower.hooks, follower.segments)
            follower.attach()
            undo.callback(follower.wait_for_a_call().close)
            undo.callback(follower.counting.enter())
            self._open = undo.pop_all()
        follower.is_open = True
        self._finalizer = weakref.finalize(self, _give_up, self._open)
        self._finalizer.atexit = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the hooks; warn if no step has moved anything although it should have."""
        undo, self._open = self._open, None
        follower = self.follower
        follower.is_open = False
        if undo is not None:
            assert self._finalizer is not None
            self._finalizer.detach()
            with follower.hooks.guard.end(failing=kind is not None), undo:
                if self._planning is not None:
                    self._planning.close()
                follower.detach()
        if kind is None:
            follower.accounts.warn_if_nothing_moved(follower.step_plans)

    @property
    def model(self) -> nn.Module:
        """The network that trains."""
        return self._model

    @property
    def step_plans(self) -> list[StepPlan]:
        """The plans that steps follow."""
        return self.follower.step_plans

    @property
    def certificates(self) -> list[Any]:
        """The certificates of the plans that were made on the way."""
        return [] if self._planning is None else self._planning.certificates

    @property
    def steps(self) -> Counter[str]:
        """How many steps there were of each kind.

        They were ``"planned"`` (followed their plan to the end), ``"deviating"``, ``"unplanned"``
        (there is no plan for such a step), ``"unfinished"``, or ``"studied"`` for a plan.
        """
        return self.follower.accounts.steps

    @property
    def report(self) -> StepReport:
        """The report of the latest step so far; complete after its backward pass."""
        run = self.follower.run
        found = self.follower.accounts.report if run is None else run.report()
        return replace(found, refused=tuple(self.refused.items())) if self.refused else found

    @property
    def promises(self) -> list[dict[str, float]]:
        """The promises of each plan, by their names, in the order in which plans were made."""
        return self.follower.accounts.promises

    @property
    def refused(self) -> dict[str, str]:
        """Segments that do not run again any more, by name, with the reasons."""
        segments = self.follower.segments
        found = {} if segments is None else segments.refused
        return {name: str(proof.refused) for name, proof in found.items()}

    @property
    def host(self) -> HostMemory:
        """The memory of the host that all plans together need."""
        return host_memory_of(self.step_plans)

    @property
    def times(self) -> Schedule | None:
        """When operations and transfers of the latest step ran, in nanoseconds; waits for them.

        None unless times are taken note of, and before a step has ended.
        """
        record = self.follower.mover_maker.record
        return record.schedule() if record is not None and record.operations > 0 else None


def _give_up(undo: ExitStack) -> None:
    """Undo the changes of a context that has been dropped without being left."""
    # Nobody hears of errors here.
    with suppress(Exception):
        undo.close()


def require_agreement(model: nn.Module, step_plans: Sequence[StepPlan]) -> None:
    """Compare plans with the other processes of a model that is replicated or sharded.

    All of them must come here, as they must come to every step; if one has other plans, all raise
    an `InputError`. Of other models nothing is known of any other process, and nothing is done.
    """
    if not dist.is_available() or not dist.is_initialized():
        return
    known = [(dist.get_rank(), " ".join(each.digest for each in step_plans))]
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


def _groups(model: nn.Module) -> list[Any]:
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return [model.process_group]
    held: list[Any] = [each for each in model.parameters() if is_distributed(each)]
    meshes = [each.device_mesh for each in held]
    largest = max(meshes, key=lambda mesh: (mesh.ndim, mesh.size()), default=None)
    return [] if largest is None else list(largest.get_all_groups())
